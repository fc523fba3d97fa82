// SPDX-License-Identifier: Apache-2.0
//
// Outputs of attention_forward, compared with reference.h within the bounds of docs/reference/semantics.md section 4:
// NaN exactly where the reference has NaN, infinities equal, fully masked rows +0.
// Read next: attention_random_test.cpp, attention_formula_test.cpp.
#pragma once

#include <optional>

#include "attention_arrays.h"
#include "instruction_sets.h"
#include "rejection.h"
#include "same_bits.h"

namespace regard {

// True if got is NaN like expected, the same infinity, or within bound of it.
template <class T>
bool agrees(T got, reference::Wide<T> expected, reference::Wide<T> bound) {
  using W = reference::Wide<T>;
  if (expected != expected) return got != got;
  if (std::isinf(expected)) return static_cast<W>(got) == expected;
  return std::abs(static_cast<W>(got) - expected) <= bound;
}

// Reports the first few differences of each output; returns whether there were none.
template <class T>
bool matches_reference(const AttentionArrays<T>& got, const reference::Attention<T>& expected) {
  using W = reference::Wide<T>;
  int faults = 0;
  const auto fault = [&](const char* output, Index r, Index at, T x, W y, W bound) {
    if (++faults > 6) return;
    ADD_FAILURE() << output << ", b " << r / expected.L / expected.H << " h " << r / expected.L % expected.H << " i "
                  << r % expected.L << ", element " << at << ": " << +x << ", expected " << y << ", error "
                  << static_cast<W>(x) - y << ", allowed " << bound;
  };
  const auto check_rows = [&](const char* name, const std::optional<Array<T, 3>>& output, const std::vector<W>& y,
                              auto bound) {
    if (!output) return;
    const std::vector<T> x = output->values();
    for (std::size_t r = 0; r < x.size(); ++r) {
      const W limit = bound(static_cast<Index>(r));
      if (!agrees<T>(x[r], y[r], limit)) fault(name, static_cast<Index>(r), 0, x[r], y[r], limit);
    }
  };
  check_rows("row_max", got.row_max, expected.row_max, [&](Index r) { return expected.score_bound(r); });
  check_rows("lse", got.lse, expected.lse, [&](Index r) { return expected.lse_bound(r); });
  check_rows("row_sum", got.row_sum, expected.row_sum,
             [&](Index r) { return expected.relative_bound(r) * expected.row_sum[static_cast<std::size_t>(r)]; });
  check_rows("sink_weights", got.sink_weights, expected.sink_weight,
             [&](Index r) { return expected.weight_bound(r, expected.sink_weight[static_cast<std::size_t>(r)]); });

  const std::vector<T> context = got.context.values();
  for (std::size_t at = 0; at < context.size(); ++at) {
    const Index r = static_cast<Index>(at) / expected.Dv;
    const Index c = static_cast<Index>(at) % expected.Dv;
    const W bound = expected.context_bound(r, c);
    const bool empty = expected.empty[static_cast<std::size_t>(r)] != 0;
    if (!agrees<T>(context[at], expected.context[at], bound) ||
        (empty && (context[at] != 0 || std::signbit(context[at])))) {
      fault("context", r, c, context[at], expected.context[at], bound);
    }
  }
  if (got.weights) {
    const std::vector<T> weights = got.weights->values();
    for (std::size_t at = 0; at < weights.size(); ++at) {
      const Index r = static_cast<Index>(at) / expected.S;
      const W bound = expected.weights[at] == 0 && expected.scores[at] == -std::numeric_limits<W>::infinity()
                          ? 0
                          : expected.weight_bound(r, expected.weights[at]);
      if (!agrees<T>(weights[at], expected.weights[at], bound)) {
        fault("weights", r, static_cast<Index>(at) % expected.S, weights[at], expected.weights[at], bound);
      }
    }
  }
  return faults == 0;
}

extern template bool matches_reference(const AttentionArrays<float>&, const reference::Attention<float>&);
extern template bool matches_reference(const AttentionArrays<double>&, const reference::Attention<double>&);

// Runs one call with all outputs on every instruction set, compares each with the reference, and returns the last one.
template <class T>
AttentionArrays<T> checked_attention(const AttentionInputs<T>& inputs, const AttentionOptions& options = {}) {
  const auto expected = reference::attention<T>(inputs.query.view(), inputs.key.view(), inputs.value.view(), options);
  AttentionArrays<T> outputs;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    outputs = run_attention(inputs, options);
    matches_reference(outputs, expected);
  });
  return outputs;
}

}  // namespace regard
