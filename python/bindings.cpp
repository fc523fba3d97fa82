// SPDX-License-Identifier: Apache-2.0
//
// The module regard._regard: the library under its C++ names. Importing it starts no thread, touches no floating-point
// state and loads neither NumPy nor PyTorch.
//
//     attention.cpp   attention and its inspection        linear.cpp       linear layers
//     backward.cpp    gradients of attention              layers.cpp       activations, SwiGLU, norms
//     multi_head.cpp  attention with its projections      embedding.cpp    embeddings, cross-entropy
//     cache.cpp       caches of keys and values           optimizers.cpp   AdamW, Muon, clipping, schedules
//     ranks.cpp       calls divided among ranks
//     model.cpp       models, explanations, lessons       training.cpp     training runs
//
// Read next: module.h, attention.cpp.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "module.h"
#include "regard/attention.h"
#include "regard/peaks.h"
#include "regard/plan.h"
#include "regard/runtime.h"
#include "run.h"

namespace regard::python {
namespace {

namespace nb = nanobind;

// regard.plan(f, …): the planned execution of the operators that f calls, which compute and write nothing.
nb::dict plan_of(nb::callable call, nb::args args, nb::kwargs kwargs) {
  const Plan plan = regard::plan([&](const Runtime& runtime) {
    const PlanScope scope(runtime);
    call(*args, **kwargs);
  });
  nb::list operators;
  for (const PlannedOperator& planned : plan.operators) {
    nb::dict entry;
    entry["name"] = planned.name;
    entry["strategy"] = planned.strategy;
    entry["operations"] = planned.operations;
    entry["bytes"] = planned.bytes;
    entry["num_threads"] = planned.num_threads;
    operators.append(entry);
  }
  nb::dict result;
  result["instruction_set"] = plan.instruction_set;
  result["why"] = plan.why;
  result["operators"] = operators;
  result["workspace_bytes"] = plan.workspace_bytes;
  return result;
}

nb::list instruction_sets_of() {
  nb::list sets;
  for (const InstructionSet& set : instruction_sets()) {
    nb::dict entry;
    entry["name"] = set.name;
    entry["available"] = set.available;
    entry["active"] = set.active;
    entry["fused_multiply_add"] = set.fused_multiply_add;
    sets.append(entry);
  }
  return sets;
}

// The result of a measurement in peaks.h, which Ctrl-C interrupts.
template <class Measure>
auto measured(const Measure& measure) {
  decltype(measure(std::stop_token{})) result{};
  run(kUnknownOperations, 0, [&](const Runtime& runtime) { result = measure(runtime.stop); });
  return result;
}
double fma_gflops_of(int num_threads, double seconds) {
  return measured([&](const std::stop_token& stop) { return fma_gflops(num_threads, seconds, stop); });
}
std::optional<double> bf16_dot_gflops_of(int num_threads, double seconds) {
  return measured([&](const std::stop_token& stop) { return bf16_dot_gflops(num_threads, seconds, stop); });
}
double read_gigabytes_per_second_of(std::size_t bytes_per_thread, int num_threads, double seconds) {
  return measured([&](const std::stop_token& stop) {
    return read_gigabytes_per_second(bytes_per_thread, num_threads, seconds, stop);
  });
}

}  // namespace
}  // namespace regard::python

NB_MODULE(_regard, module) {
  using namespace regard::python;
  // Objects that a daemon thread holds when the interpreter ends would be reported as leaks.
  nb::set_leak_warnings(false);
  module.doc() = "Exact attention in C++; use it as the package regard.";
  module.attr("__version__") = nb::str(regard::version().data(), regard::version().size());
  module.attr("kAttentionChunkKeys") = regard::kAttentionChunkKeys;
  bind_attention(module);
  bind_backward(module);
  bind_linear(module);
  bind_layers(module);
  bind_embedding(module);
  bind_multi_head(module);
  bind_optimizers(module);
  bind_cache(module);
  bind_ranks(module);
#ifdef REGARD_PYTHON_MODEL
  bind_model(module);
  bind_training(module);
#endif
  module.def("plan", &plan_of, nb::arg("call"), nb::arg("args"), nb::arg("kwargs"),
             nb::sig("def plan(call: collections.abc.Callable[..., object], *args: object, **kwargs: object) -> "
                     "dict[str, typing.Any]"),
             "Returns the planned execution of the operators that call(*args, **kwargs) would run, without running\n"
             "them: instruction_set, why (the reason for this choice), operators (name, strategy, operations, bytes,\n"
             "num_threads) and workspace_bytes.");
  module.def("instruction_sets", &instruction_sets_of, nb::sig("def instruction_sets() -> list[dict[str, typing.Any]]"),
             "Returns all instruction sets that the library was built for, with the best one last.");
  module.def("active_instruction_set", &regard::active_instruction_set);
  module.def("default_num_threads", &regard::default_num_threads);
  module.def("available_memory_bytes", &regard::available_memory_bytes);
  module.def("fma_gflops", &fma_gflops_of, nb::arg("num_threads"), nb::arg("seconds"),
             "Returns the GFLOP/s of float32 multiply-adds on registers, an upper bound for all operators.");
  module.def("bf16_dot_gflops", &bf16_dot_gflops_of, nb::arg("num_threads"), nb::arg("seconds"),
             "Returns the GFLOP/s of bfloat16 dot products on registers, or None unless the active instruction set\n"
             "is avx512_bf16.");
  module.def("read_gigabytes_per_second", &read_gigabytes_per_second_of, nb::arg("bytes_per_thread"),
             nb::arg("num_threads"), nb::arg("seconds"),
             "Returns the GB/s of memory reads in the best of several loops.");
}
