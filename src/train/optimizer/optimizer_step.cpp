// SPDX-License-Identifier: Apache-2.0
//
// A step of the optimizer on all parameters of a model.
//
//     1. norm of all gradients, and the factor that limits it
//     2. AdamW, one pass over the arena in blocks; in each block, the parameters that it contains
//     3. Muon, if chosen: large matrices one after the other, each on all threads, then small ones, each on one thread
//
// Read next: regard/adamw.h, optimizer_muon.cpp.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <functional>

#include "instantiate.h"
#include "optimizer_arguments.h"
#include "ranges.h"
#include "regard/train/optimizer.h"

namespace regard::inline v0 {
namespace internal {
namespace {

constexpr const char* kOptimizerStep = "optimizer_step";
constexpr Index kStepElements = Index{1} << 14;  // of a task of AdamW

bool uses_muon(const TrainingSettings& settings, const DecoderParameter& parameter) {
  return settings.optimizer == OptimizerKind::muon && parameter.shape.size() == 2 &&
         (parameter.kind == ParameterKind::projection || parameter.kind == ParameterKind::residual);
}

// The products of a matrix up to this size are too small for several threads.
bool is_small(const DecoderParameter& matrix) { return matrix.size() <= Index{1} << 18; }

// Scratch elements of Muon: for one small matrix, and for one large matrix; and the number of small matrices.
struct MuonScratch {
  Index small = 0, large = 0;
  Index num_small = 0;

  MuonScratch(const TrainingSettings& settings, std::span<const DecoderParameter> description) {
    for (const DecoderParameter& parameter : description) {
      if (!uses_muon(settings, parameter)) continue;
      const Index size = muon_scratch_size(parameter.shape[0], parameter.shape[1]);
      Index& largest = is_small(parameter) ? small : large;
      largest = std::max(largest, size);
      num_small += is_small(parameter);
    }
  }
  Index elements(Index num_threads) const { return std::max(large, std::min(num_threads, num_small) * small); }
};

Index num_elements(std::span<const DecoderParameter> description) {
  Index n = 0;
  for (const DecoderParameter& parameter : description) n += parameter.size();
  return n;
}

// The arrays of a step, all in the order of the description.
template <class T>
struct Arrays {
  std::span<T> parameters;
  std::span<const T> gradients;
  std::span<T> first_moment, second_moment;
};

template <class T>
void adamw_all(const TrainingSettings& settings, std::span<const DecoderParameter> description, const Arrays<T>& arrays,
               const AdamwOptions& options, const Runtime& runtime) {
  AdamwOptions no_decay = options;
  no_decay.weight_decay = 0;
  for_each_range(
      static_cast<Index>(arrays.parameters.size()), kStepElements,
      [&](Index begin, Index end, const Runtime& one) {
        Index offset = 0;
        for (const DecoderParameter& parameter : description) {
          if (offset >= end) break;
          const Index first = std::max(begin, offset);
          offset += parameter.size();
          const Index count = std::min(end, offset) - first;
          if (count <= 0 || uses_muon(settings, parameter)) continue;
          const auto part = [&](auto array) {
            return array.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
          };
          adamw_step<T>(part(arrays.parameters), part(arrays.gradients), part(arrays.first_moment),
                        part(arrays.second_moment), parameter.shape.size() >= 2 ? options : no_decay, one);
        }
      },
      runtime);
}

template <class T>
void muon_all(const TrainingSettings& settings, std::span<const DecoderParameter> description, const Arrays<T>& arrays,
              const MuonOptions& options, std::span<T> scratch, const Runtime& runtime) {
  const auto update = [&](const DecoderParameter& parameter, Index offset, std::span<T> memory,
                          const Runtime& threads) {
    const std::array<Index, 2> shape{parameter.shape[0], parameter.shape[1]};
    muon_step<T>({arrays.parameters.data() + offset, shape}, {arrays.gradients.data() + offset, shape},
                 {arrays.first_moment.data() + offset, shape}, options, memory, threads);
  };
  Index offset = 0;
  for (const DecoderParameter& parameter : description) {
    if (uses_muon(settings, parameter) && !is_small(parameter)) update(parameter, offset, scratch, runtime);
    offset += parameter.size();
  }
  const MuonScratch sizes(settings, description);
  if (sizes.num_small == 0) return;
  // Each task owns a part of the scratch memory and takes the next matrix until none remain.
  const auto size = static_cast<std::size_t>(sizes.small);
  const Index tasks = std::min(sizes.num_small, static_cast<Index>(scratch.size() / std::max<std::size_t>(1, size)));
  std::atomic<Index> next{0};
  const auto work = [&](Index task, const Runtime& one) {
    const std::span<T> memory = scratch.subspan(static_cast<std::size_t>(task) * size, size);
    Index wanted = next++, number = 0, first = 0;
    for (const DecoderParameter& parameter : description) {
      if (uses_muon(settings, parameter) && is_small(parameter) && number++ == wanted) {
        update(parameter, first, memory, one);
        wanted = next++;
      }
      first += parameter.size();
    }
  };
  parallel_for(tasks, std::cref(work), runtime);
}

void check_settings(const TrainingSettings& settings) {
  expect_decay(kOptimizerStep, "beta1", settings.beta1);
  expect_decay(kOptimizerStep, "beta2", settings.beta2);
  expect_positive(kOptimizerStep, "epsilon", settings.epsilon);
  expect_not_negative(kOptimizerStep, "weight_decay", settings.weight_decay);
  expect_not_negative(kOptimizerStep, "clip", settings.clip);
}

}  // namespace
}  // namespace internal

Index optimizer_scratch_size(const TrainingSettings& settings, std::span<const DecoderParameter> description,
                             int num_threads) {
  internal::expect_at_least("optimizer_scratch_size", "num_threads", num_threads, 0);
  return internal::MuonScratch(settings, description).elements(num_threads == 0 ? default_num_threads() : num_threads);
}

template <class T>
OptimizerStep optimizer_step(const TrainingSettings& settings, std::span<const DecoderParameter> description,
                             std::span<T> parameters, std::type_identity_t<std::span<const T>> gradients,
                             std::type_identity_t<std::span<T>> first_moment,
                             std::type_identity_t<std::span<T>> second_moment, Index step,
                             std::type_identity_t<std::span<T>> scratch, const Runtime& runtime) {
  using namespace internal;
  const Index n = num_elements(description);
  expect_elements(kOptimizerStep, "parameters", parameters.size(), n, "the description");
  expect_elements(kOptimizerStep, "gradients", gradients.size(), n, "the description");
  expect_elements(kOptimizerStep, "first_moment", first_moment.size(), n, "the description");
  expect_elements(kOptimizerStep, "second_moment", second_moment.size(), n, "the description");
  expect_at_least(kOptimizerStep, "the size of scratch", static_cast<Index>(scratch.size()),
                  MuonScratch(settings, description).elements(1));
  expect_separate(kOptimizerStep, {{"parameters", std::as_bytes(parameters)},
                                   {"gradients", std::as_bytes(gradients)},
                                   {"first_moment", std::as_bytes(first_moment)},
                                   {"second_moment", std::as_bytes(second_moment)},
                                   {"scratch", std::as_bytes(scratch)}});
  check_settings(settings);
  const bool has_muon = settings.optimizer == OptimizerKind::muon;
  OptimizerStep result{.learning_rate = learning_rate_at(settings, step)};
  const double muon_learning_rate = has_muon ? muon_learning_rate_at(settings, step) : 0;

  result.gradient_norm = global_norm<T>(gradients, runtime);
  if (!std::isfinite(result.gradient_norm)) return result;
  const double gradient_scale = clip_factor(result.gradient_norm, settings.clip);
  const Arrays<T> arrays{parameters, gradients, first_moment, second_moment};
  adamw_all<T>(settings, description, arrays,
               {.learning_rate = result.learning_rate,
                .beta1 = settings.beta1,
                .beta2 = settings.beta2,
                .epsilon = settings.epsilon,
                .weight_decay = settings.weight_decay,
                .gradient_scale = gradient_scale,
                .step = step + 1},
               runtime);
  if (has_muon) {
    muon_all<T>(
        settings, description, arrays,
        {.learning_rate = muon_learning_rate, .weight_decay = settings.weight_decay, .gradient_scale = gradient_scale},
        scratch, runtime);
  }
  return result;
}

REGARD_INSTANTIATE_COMPUTE(optimizer_step);

}  // namespace regard::inline v0
