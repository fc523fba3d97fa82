// SPDX-License-Identifier: Apache-2.0
//
// Finds the first value of a step that is not finite, in the order in which values are computed:
//
//     parameters ─▶ activations of each sequence, from the embedding to the output ─▶ loss
//                ─▶ gradients, from the output back to the embedding
//
// Read next: decoder_training.cpp.
#include "divergence.h"
#include "instantiate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace regard::inline v0::internal {
namespace {

template <class T>
const T* first_not_finite(std::span<const T> values) {
  const auto at = std::find_if(values.begin(), values.end(), [](T x) { return !std::isfinite(x); });
  return at == values.end() ? nullptr : &*at;
}

std::string value_text(double x) { return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf"; }

// "step 212: layer 1, attention: token 5 of sequence 3 is nan"
[[noreturn]] void diverged(Index step, Index layer, const std::string& operation, const std::string& what) {
  const std::string place = layer < 0 ? operation : fmt::format("layer {}, {}", layer, operation);
  throw TrainingDiverged(
      fmt::format("step {}: {}: {}; a smaller learning rate or a longer warm-up may help", step, place, what), step,
      layer, operation);
}

// "self_attn.q_proj.weight" of "model.layers.3.self_attn.q_proj.weight".
std::string name_in_layer(const DecoderParameter& parameter) {
  const std::string prefix = parameter.layer < 0 ? "" : fmt::format("model.layers.{}.", parameter.layer);
  return parameter.name.substr(prefix.size());
}

}  // namespace

template <class T>
void check_parameters(const DecoderTraining<T>& model, Index step) {
  std::span<const T> rest = model.parameters();
  for (const DecoderParameter& parameter : model.description()) {
    const auto size = static_cast<std::size_t>(parameter.size());
    if (const T* const found = first_not_finite(rest.first(size))) {
      diverged(step, parameter.layer, name_in_layer(parameter),
               fmt::format("element {} of the parameter is {}", found - rest.data(),
                           value_text(static_cast<double>(*found))));
    }
    rest = rest.subspan(size);
  }
}

template <class T>
void throw_diverged(const DecoderTraining<T>& model, const TrainingSettings& settings, const TrainingBatch& batch,
                    Index step, const Runtime& runtime) {
  check_parameters(model, step);
  DecoderTraining<T> again(settings.model, {.max_sequences = 1,
                                            .max_length = settings.length,
                                            .bf16_products = settings.precision == TrainingPrecision::bf16_products});
  std::copy(model.parameters().begin(), model.parameters().end(), again.parameters().begin());
  for (Index b = 0; b < batch.tokens.shape[0]; ++b) {
    TrainingBatch one = batch;
    one.tokens = sliced(batch.tokens, 0, b, b + 1);
    one.targets = sliced(batch.targets, 0, b, b + 1);
    one.first_sequence = batch.first_sequence + b;
    const double loss = again.evaluate(one, {}, {}, nullptr, runtime);
    again.visit_activations([&](Index layer, std::string_view operation, const TensorView<const T, 2>& rows) {
      for (Index j = 0; j < rows.shape[0]; ++j) {
        const std::span<const T> row(rows.pointer(j, 0), static_cast<std::size_t>(rows.shape[1]));
        if (const T* const found = first_not_finite(row)) {
          diverged(step, layer, std::string(operation),
                   fmt::format("a value of token {} of sequence {} is {}", j, one.first_sequence,
                               value_text(static_cast<double>(*found))));
        }
      }
    });
    if (!std::isfinite(loss)) {
      diverged(step, -1, "loss", fmt::format("the loss of sequence {} is {}", one.first_sequence, value_text(loss)));
    }
  }
  diverged(step, -1, "loss", "the sum over all sequences is not finite");
}

template <class T>
void throw_diverged_gradient(DecoderTraining<T>& model, Index step) {
  // Gradients are computed from the last parameter to the first; tied tables are the exception.
  const auto description = model.description();
  std::span<const T> rest = model.gradients();
  for (std::size_t i = description.size(); i-- > 0;) {
    const DecoderParameter& parameter = description[i];
    const auto size = static_cast<std::size_t>(parameter.size());
    const std::span<const T> gradient = rest.last(size);
    rest = rest.first(rest.size() - size);
    if (const T* const found = first_not_finite(gradient)) {
      diverged(step, parameter.layer, "gradient of " + name_in_layer(parameter),
               fmt::format("element {} is {}", found - gradient.data(), value_text(static_cast<double>(*found))));
    }
  }
  diverged(step, -1, "gradient", "the norm of all gradients is not finite");
}

REGARD_INSTANTIATE_COMPUTE(check_parameters);
REGARD_INSTANTIATE_COMPUTE(throw_diverged);
REGARD_INSTANTIATE_COMPUTE(throw_diverged_gradient);

}  // namespace regard::inline v0::internal
