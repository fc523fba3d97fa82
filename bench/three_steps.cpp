// SPDX-License-Identifier: Apache-2.0
//
// three_steps.h, implemented with the kernels of the active instruction set. Read next: src/kernels/table.h.
#include "three_steps.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/table.h"
#include "runtime/parallel.h"

// The loops over a row of scores are compiled for several instruction sets, and selected at run time like the kernels.
#ifdef __x86_64__
#define REGARD_BENCH_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define REGARD_BENCH_CLONES
#endif

namespace regard::bench {
namespace {

using kernels::kPanel;
using kernels::kRows;
constexpr Index kLanes = 64;  // partial maxima and sums of a row, which fill several vectors

Index num_panels(Index columns) { return (columns + kPanel - 1) / kPanel; }

const kernels::Kernels<float>& matrix_kernels() { return kernels::active().of<float>(); }

REGARD_BENCH_CLONES float largest(const float* row, Index count) {
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<float>::infinity());
  Index j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    for (Index i = 0; i < kLanes; ++i) lanes[i] = row[j + i] > lanes[i] ? row[j + i] : lanes[i];
  }
  for (; j < count; ++j) lanes[0] = std::max(lanes[0], row[j]);
  return *std::max_element(lanes, lanes + kLanes);
}

REGARD_BENCH_CLONES void shift(float* row, Index count, float factor, float max) {
  for (Index j = 0; j < count; ++j) row[j] = factor * (row[j] - max);
}

REGARD_BENCH_CLONES float sum(const float* row, Index count) {
  float lanes[kLanes] = {};
  Index j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    for (Index i = 0; i < kLanes; ++i) lanes[i] += row[j + i];
  }
  float total = 0.0f;
  for (; j < count; ++j) total += row[j];
  for (float lane : lanes) total += lane;
  return total;
}

REGARD_BENCH_CLONES void multiply_by(float* row, Index count, float factor) {
  for (Index j = 0; j < count; ++j) row[j] *= factor;
}

REGARD_BENCH_CLONES void hide(float* row, const bool* seen, Index count) {
  for (Index j = 0; j < count; ++j) row[j] = seen[j] ? row[j] : -std::numeric_limits<float>::infinity();
}

}  // namespace

ThreeSteps::ThreeSteps(const Shape& shape, const Arrays& arrays, const Runtime& runtime)
    : shape_(shape), arrays_(arrays), runtime_(runtime) {
  const auto products =
      static_cast<double>(2 * shape.heads * shape.queries * shape.depth) * static_cast<double>(shape.keys);
  const Index strips = (shape.queries + kRows - 1) / kRows;
  workers_ = internal::num_workers(runtime, shape.heads * strips, products);
  heads_are_few_ = shape.heads < workers_;
  const auto elements = [](Index n) { return static_cast<std::size_t>(n); };
  scratch_.resize(heads_are_few_ ? 1 : static_cast<std::size_t>(workers_));
  for (Scratch& s : scratch_) {
    s.keys.resize(elements(num_panels(shape.keys) * kPanel * shape.depth));
    s.values.resize(elements(num_panels(shape.depth) * kPanel * shape.keys));
    s.scores.resize(elements(shape.queries * shape.keys));
  }
  rows_.resize(static_cast<std::size_t>(workers_),
               std::vector<float>(elements((kRows + 16) * std::max(shape.depth, shape.keys))));
}

void ThreeSteps::pack(Index head, Scratch& s, Index p) const {
  const float* key = arrays_.key.view().pointer(0, head, 0, 0);
  const float* value = arrays_.value.view().pointer(0, head, 0, 0);
  const Index depth = shape_.depth, keys = shape_.keys, of_keys = num_panels(keys);
  if (p < of_keys) {
    const Index begin = p * kPanel;
    matrix_kernels().pack_keys({key + begin * depth, depth, 1}, std::min(kPanel, keys - begin), depth,
                               s.keys.data() + begin * depth);
  } else {
    const Index begin = (p - of_keys) * kPanel;
    matrix_kernels().pack_keys({value + begin, 1, depth}, std::min(kPanel, depth - begin), keys,
                               s.values.data() + begin * keys);
  }
}

void ThreeSteps::multiply_keys(Index head, Scratch& s, std::vector<float>& rows, Index strip) const {
  const Index depth = shape_.depth, keys = shape_.keys, begin = strip * kRows;
  const Index count = std::min(kRows, shape_.queries - begin);
  matrix_kernels().pack_query({arrays_.query.view().pointer(0, head, begin, 0), depth, 1}, count, depth, rows.data());
  for (Index j = 0; j < keys; j += kPanel) {
    matrix_kernels().linear_tile(count, std::min(kPanel, keys - j), depth, rows.data(), s.keys.data() + j * depth,
                                 nullptr, kernels::Activation::none, s.scores.data() + begin * keys + j, keys, nullptr);
  }
}

void ThreeSteps::apply_softmax(Scratch& s, Index strip) const {
  const Index keys = shape_.keys;
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape_.depth));
  for (Index i = strip * kRows; i < std::min(shape_.queries, (strip + 1) * kRows); ++i) {
    float* row = s.scores.data() + i * keys;
    const Index position = i + keys - shape_.queries;
    const Index end = shape_.causal ? position + 1 : keys;
    const Index begin = shape_.window < 0 ? 0 : std::max<Index>(0, position - shape_.window);
    std::fill(row, row + begin, 0.0f);
    std::fill(row + end, row + keys, 0.0f);
    const Index count = end - begin;
    row += begin;
    if (shape_.mask) hide(row, arrays_.mask().pointer(0, 0, i, begin), count);
    shift(row, count, scale, largest(row, count));
    matrix_kernels().exp(row, row, count);
    multiply_by(row, count, 1.0f / sum(row, count));
  }
}

void ThreeSteps::multiply_values(Index head, Scratch& s, std::vector<float>& rows, Index strip,
                                 Tensor<float, 4>& context) const {
  const Index depth = shape_.depth, keys = shape_.keys, begin = strip * kRows;
  const Index count = std::min(kRows, shape_.queries - begin);
  matrix_kernels().pack_query({s.scores.data() + begin * keys, keys, 1}, count, keys, rows.data());
  for (Index c = 0; c < depth; c += kPanel) {
    matrix_kernels().linear_tile(count, std::min(kPanel, depth - c), keys, rows.data(), s.values.data() + c * keys,
                                 nullptr, kernels::Activation::none, context.view().pointer(0, head, begin, c), depth,
                                 nullptr);
  }
}

void ThreeSteps::run(Tensor<float, 4>& context) {
  const Index panels = num_panels(shape_.keys) + num_panels(shape_.depth);
  const Index strips = (shape_.queries + kRows - 1) / kRows;
  const auto rows_of = [&](int worker) -> std::vector<float>& { return rows_[static_cast<std::size_t>(worker)]; };
  if (!heads_are_few_) {
    internal::for_each_item(runtime_, workers_, shape_.heads, [&](Index head, int worker) {
      Scratch& s = scratch_[static_cast<std::size_t>(worker)];
      for (Index p = 0; p < panels; ++p) pack(head, s, p);
      for (Index i = 0; i < strips; ++i) multiply_keys(head, s, rows_of(worker), i);
      for (Index i = 0; i < strips; ++i) apply_softmax(s, i);
      for (Index i = 0; i < strips; ++i) multiply_values(head, s, rows_of(worker), i, context);
    });
    return;
  }
  Scratch& s = scratch_[0];
  const auto step = [&](Index count, const auto& body) { internal::for_each_item(runtime_, workers_, count, body); };
  for (Index head = 0; head < shape_.heads; ++head) {
    step(panels, [&](Index p, int) { pack(head, s, p); });
    step(strips, [&](Index i, int worker) { multiply_keys(head, s, rows_of(worker), i); });
    step(strips, [&](Index i, int) { apply_softmax(s, i); });
    step(strips, [&](Index i, int worker) { multiply_values(head, s, rows_of(worker), i, context); });
  }
}

}  // namespace regard::bench
