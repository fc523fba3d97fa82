// SPDX-License-Identifier: Apache-2.0
//
// Shared by the attention operators before any work starts: the checks of every argument, and the arguments with all
// defaults filled in. From here on, a batch entry and a packed sequence are the same thing: a Sequence.
// Read next: visibility.h.
#pragma once

#include <array>
#include <cassert>
#include <optional>
#include <span>
#include <string>

#include "regard/attention.h"
#include "runtime/workspace.h"
#include "tensor/checks.h"

namespace regard::inline v0::internal {

// Rows first_query … first_query + num_queries − 1 of one batch entry attend to keys from first_key on in the same
// entry.
struct Sequence {
  Index batch;
  Index first_query;
  Index num_queries;
  Index first_key;
  Index num_keys;
  Index key_limit;  // keys from here on (relative to first_key) are invisible
  Index offset;     // p = i + offset
  Index prefix;
};

// The arguments that do not depend on the compute type: shapes, tensors, and which keys each row attends to.
struct UntypedAttention {
  ScratchVector<Sequence> sequences;
  Index batch = 0, num_heads = 0, num_kv_heads = 0, num_queries = 0, num_keys = 0, head_size = 0,
        value_head_size = 0;  // B H Hkv L S D Dv
  InputView<4> query{}, key{}, value{};
  bool causal = false;
  std::optional<Index> window_left{}, window_right{};
  InputView<2> query_segments{}, key_segments{};   // int32 or int64
  TensorView<const std::uint8_t, 4> block_mask{};  // broadcast to (B, H, …) by stride 0; nonzero: true
  std::array<Index, 2> block_size{};
  TensorView<const std::uint8_t, 4> mask{};  // (B, H, L, S), broadcast by stride 0
  InputView<4> bias{};                       // (B, H, L, S) likewise
  std::uint64_t dropout_threshold = 0;       // of 2³²: random words below it drop their weight; 0 means no dropout
  std::uint64_t dropout_seed = 0;
  std::array<Index, 3> dropout_first{};  // added to batch entry, head and row
  // Whether operands are multiplied as pairs of bf16 values (kernels::PairKernels) instead of as T: query and key; and
  // also weights and value.
  bool key_pairs = false, value_pairs = false;

  // The number of elements of T in a row of packed query or keys.
  Index head_size_words() const { return key_pairs ? (head_size + 1) / 2 : head_size; }
  Index value_words(Index numbers) const { return value_pairs ? numbers / 2 : numbers; }
};

// All arguments of a call computed in T, with every default filled in.
template <class T>
struct ResolvedAttention : UntypedAttention {
  ScratchVector<T> alibi_slopes, sinks;
  T soft_cap = 0;  // 0 means off
  T scale = 0;
  T dropout_factor = 0;  // for the weights that are kept
};

// The compute type for a given type of query.
inline ElementType compute_type(ElementType query) {
  return query == ElementType::float64 ? query : ElementType::float32;
}
// Calls use(T{}) with the compute type.
template <class Use>
void with_compute_type(ElementType query, Use use) {
  if (query == ElementType::float64) return use(double{});
  use(float{});
}

// The arguments that an operator has, for the checks and their messages.
struct AttentionCall {
  const char* name;
  InputView<4> query, key, value;
  bool has_value;
  ElementType result = compute_type(query.type);  // type of context or of the gradients
};

// Throws std::invalid_argument. Must be called inside a FloatingPointScope, because it computes the default scale.
template <class T>
ResolvedAttention<T> resolve(const AttentionCall& call, const AttentionOptions& options, const Runtime& runtime);

// The memory footprints of the inputs of an attention call.
Footprints input_footprints(const AttentionCall& call, const AttentionOptions& options);

// Throws std::invalid_argument unless both have the shape (B, H, L), and if `needed` is set, unless both are present.
// Appends their footprints to `inputs`.
void check_softmax_state(const char* operator_name, const UntypedAttention& r, bool needed, const InputView<3>& row_max,
                         const InputView<3>& row_sum, Footprints& inputs);

// The sinks converted to T. Throws std::invalid_argument unless the list is empty or has one value per head, each
// finite or −∞.
template <class T>
ScratchVector<T> checked_sinks(const char* operator_name, const InputView<1>& sinks, Index num_heads,
                               const Runtime& runtime);

// AttentionOutputs with their types checked, except that of context.
template <class T>
struct TypedOutputs {
  OutputView<4> context;
  TensorView<T, 3> row_max, row_sum, lse;
  TensorView<T, 4> weights;
  TensorView<T, 3> sink_weights;
  AttentionFingerprint* fingerprint;

  // Throws std::invalid_argument for a view whose type is not T.
  TypedOutputs(const char* name, const AttentionOutputs& o)
      : context(o.context),
        row_max(typed<T>(name, "row_max", o.row_max)),
        row_sum(typed<T>(name, "row_sum", o.row_sum)),
        lse(typed<T>(name, "lse", o.lse)),
        weights(typed<T>(name, "weights", o.weights)),
        sink_weights(typed<T>(name, "sink_weights", o.sink_weights)),
        fingerprint(o.fingerprint) {}
};

// Throws std::invalid_argument unless the context is absent or has the compute type or the type of query.
void check_context_type(const char* operator_name, const OutputView<4>& context, ElementType query);

// Throws std::invalid_argument unless context is present (or empty), every output has its expected shape, and no output
// overlaps an input or another output. context has the shape (B, H, L, Dv), and weights have num_keys columns. Returns
// the footprints of all outputs.
Footprints check_outputs(const char* operator_name, const AttentionOutputs& outputs,
                         const std::array<Index, 4>& context, Index num_keys, std::span<const Footprint> inputs);

}  // namespace regard::inline v0::internal
