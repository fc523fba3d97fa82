// SPDX-License-Identifier: Apache-2.0
//
// Optimizers for Python, on arrays that are updated in place, and the learning rate as a function of the step.
//
//     gradients ── global_norm, clip_factor ──▶ gradient_scale ──▶ adamw_step, muon_step ──▶ parameters, moments
//
// All but adamw_step are absent if the package was built without regard::explain. Read next: regard/adamw.h,
// regard/train/optimizer.h.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>

#include "layer_call.h"
#include "module.h"
#include "regard/adamw.h"
#ifdef REGARD_PYTHON_MODEL
#include "regard/train/optimizer.h"
#endif

namespace regard::python {
namespace {

// Requires equal shapes: in arrays of the same size but different shapes, elements do not correspond to each other.
void expect_shape(const char* operator_name, const char* name, const Array& array, const char* other,
                  const Array& expected) {
  if (array.shape() == expected.shape()) return;
  const auto text = [](const Array& of) { return shape_text(of.shape().data(), of.rank()); };
  reject(operator_name,
         std::string(name) + " has shape " + text(array) + "; expected " + text(expected) + ", the shape of " + other);
}

void adamw_step_of(nb::handle parameters_object, nb::handle gradients_object, nb::handle first_moment_object,
                   nb::handle second_moment_object, nb::kwargs kwargs) {
  constexpr const char* kName = "adamw_step";
  const Array parameters(kName, "parameters", parameters_object, Access::write);
  const Array gradients(kName, "gradients", gradients_object);
  const Array first_moment(kName, "first_moment", first_moment_object, Access::write);
  const Array second_moment(kName, "second_moment", second_moment_object, Access::write);
  LayerCall call(kName, parameters_object, std::move(kwargs), {});
  AdamwOptions options;
  options.learning_rate = call.number("learning_rate", options.learning_rate);
  options.beta1 = call.number("beta1", options.beta1);
  options.beta2 = call.number("beta2", options.beta2);
  options.epsilon = call.number("epsilon", options.epsilon);
  options.weight_decay = call.number("weight_decay", options.weight_decay);
  options.gradient_scale = call.number("gradient_scale", options.gradient_scale);
  options.step = call.whole("step", options.step);
  call.finish();
  expect_shape(kName, "gradients", gradients, "parameters", parameters);
  expect_shape(kName, "first_moment", first_moment, "parameters", parameters);
  expect_shape(kName, "second_moment", second_moment, "parameters", parameters);
  with_compute_type(kName, "parameters", parameters.type(), [&]<class T>(T) {
    const auto p = parameters.elements<T>(kName, "parameters");
    const auto g = gradients.elements<const T>(kName, "gradients");
    const auto m = first_moment.elements<T>(kName, "first_moment");
    const auto v = second_moment.elements<T>(kName, "second_moment");
    call.run(30.0 * static_cast<double>(p.size()),
             [&](const Runtime& runtime) { adamw_step<T>(p, g, m, v, options, runtime); });
  });
}

#ifdef REGARD_PYTHON_MODEL
void muon_step_of(nb::handle matrix_object, nb::handle gradient_object, nb::handle first_moment_object,
                  nb::kwargs kwargs) {
  constexpr const char* kName = "muon_step";
  const Array matrix(kName, "matrix", matrix_object, Access::write);
  const Array gradient(kName, "gradient", gradient_object);
  const Array first_moment(kName, "first_moment", first_moment_object, Access::write);
  LayerCall call(kName, matrix_object, std::move(kwargs), {});
  MuonOptions options;
  options.learning_rate = call.number("learning_rate", options.learning_rate);
  options.momentum = call.number("momentum", options.momentum);
  options.nesterov = call.keywords.take_bool("nesterov", options.nesterov);
  options.weight_decay = call.number("weight_decay", options.weight_decay);
  options.gradient_scale = call.number("gradient_scale", options.gradient_scale);
  options.iterations = call.keywords.take_int("iterations", options.iterations);
  call.finish();
  with_compute_type(kName, "matrix", matrix.type(), [&]<class T>(T) {
    const auto p = matrix.view<T, 2>(kName, "matrix");
    const auto g = gradient.view<const T, 2>(kName, "gradient");
    const auto m = first_moment.view<T, 2>(kName, "first_moment");
    const auto size = static_cast<std::size_t>(muon_scratch_size(p.shape[0], p.shape[1]));
    const auto scratch = std::make_unique_for_overwrite<T[]>(size);
    const double shorter = static_cast<double>(std::min(p.shape[0], p.shape[1]));
    call.run(6.0 * options.iterations * shorter * static_cast<double>(p.size()),
             [&](const Runtime& runtime) { muon_step<T>(p, g, m, options, {scratch.get(), size}, runtime); });
  });
}

double global_norm_of(nb::handle values_object, int num_threads) {
  constexpr const char* kName = "global_norm";
  const Array values(kName, "values", values_object);
  double norm = 0;
  with_compute_type(kName, "values", values.type(), [&]<class T>(T) {
    const auto x = values.elements<const T>(kName, "values");
    run(2.0 * static_cast<double>(x.size()), num_threads,
        [&](const Runtime& runtime) { norm = global_norm<T>(x, runtime); });
  });
  return norm;
}

TrainingSettings schedule_of(const char* operator_name, Index steps, double learning_rate, double min_learning_rate,
                             Index warmup, const std::string& schedule) {
  TrainingSettings settings;
  settings.steps = steps;
  settings.learning_rate = learning_rate;
  settings.min_learning_rate = min_learning_rate;
  settings.warmup = warmup;
  const auto found = std::ranges::find(kScheduleNames, schedule);
  if (found == kScheduleNames.end()) {
    reject(operator_name, "schedule is '" + schedule + "'; expected constant, cosine, linear or warmup_stable_decay");
  }
  settings.schedule = static_cast<ScheduleKind>(found - kScheduleNames.begin());
  return settings;
}

double learning_rate_of(Index step, Index steps, double learning_rate, double min_learning_rate, Index warmup,
                        const std::string& schedule) {
  return learning_rate_at(schedule_of("learning_rate_at", steps, learning_rate, min_learning_rate, warmup, schedule),
                          step);
}

double muon_learning_rate_of(Index step, Index steps, double muon_learning_rate, double learning_rate,
                             double min_learning_rate, Index warmup, const std::string& schedule) {
  TrainingSettings settings =
      schedule_of("muon_learning_rate_at", steps, learning_rate, min_learning_rate, warmup, schedule);
  settings.muon_learning_rate = muon_learning_rate;
  return muon_learning_rate_at(settings, step);
}
#endif

}  // namespace

void bind_optimizers(nb::module_& module) {
  module.def("adamw_step", &adamw_step_of, nb::arg("parameters"), nb::arg("gradients"), nb::arg("first_moment"),
             nb::arg("second_moment"), nb::arg("kwargs"),
             nb::sig("def adamw_step(parameters: object, gradients: object, first_moment: object, "
                     "second_moment: object, *, learning_rate: float = 0.001, beta1: float = 0.9, "
                     "beta2: float = 0.999, epsilon: float = 1e-08, weight_decay: float = 0.01, "
                     "gradient_scale: float = 1.0, step: int, num_threads: int = 0) -> None"),
             "Performs a step of AdamW, in place, on contiguous float32 or float64 arrays of any shape.");
#ifdef REGARD_PYTHON_MODEL
  module.def("muon_step", &muon_step_of, nb::arg("matrix"), nb::arg("gradient"), nb::arg("first_moment"),
             nb::arg("kwargs"),
             nb::sig("def muon_step(matrix: object, gradient: object, first_moment: object, *, "
                     "learning_rate: float = 0.02, momentum: float = 0.95, nesterov: bool = True, "
                     "weight_decay: float = 0.0, gradient_scale: float = 1.0, iterations: int = 5, "
                     "num_threads: int = 0) -> None"),
             "Performs a step of Muon, in place, on a matrix whose rows are outputs, as in PyTorch's nn.Linear.");
  module.def("global_norm", &global_norm_of, nb::arg("values"), nb::kw_only(), nb::arg("num_threads") = 0,
             nb::sig("def global_norm(values: object, *, num_threads: int = 0) -> float"),
             "Returns the L2 norm of a contiguous array of any shape, in double.");
  module.def("clip_factor", &clip_factor, nb::arg("norm"), nb::arg("max_norm"),
             "Returns the factor that limits a norm, min(1, max_norm / (norm + 1e-6)).");
  module.def("learning_rate_at", &learning_rate_of, nb::arg("step"), nb::kw_only(), nb::arg("steps"),
             nb::arg("learning_rate") = 1e-3, nb::arg("min_learning_rate") = 1e-4, nb::arg("warmup") = 0,
             nb::arg("schedule") = "cosine", "Returns the learning rate of AdamW at a zero-based step.");
  module.def("muon_learning_rate_at", &muon_learning_rate_of, nb::arg("step"), nb::kw_only(), nb::arg("steps"),
             nb::arg("muon_learning_rate") = 0.02, nb::arg("learning_rate") = 1e-3, nb::arg("min_learning_rate") = 1e-4,
             nb::arg("warmup") = 0, nb::arg("schedule") = "cosine",
             "Returns the learning rate of Muon at a step, proportional to that of AdamW.");
#endif
}

}  // namespace regard::python
