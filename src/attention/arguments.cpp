// SPDX-License-Identifier: Apache-2.0
//
// The checks declared in arguments.h, in the order of the arguments: shapes, sequences, positions, dense options,
// scalars and per-head values; then memory: sizes, null pointers, overlap.
// Read next: visibility.cpp.
#include "arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "instantiate.h"
#include "kernels/table.h"
#include "tensor/element_types.h"
#include "tensor/strided_copy.h"

namespace regard::inline v0::internal {

namespace {

// Positions and offsets are bounded so that sums of a few of them cannot overflow Index.
constexpr Index kMaxPosition = Index{1} << 60;

std::string count_text(Index n, const char* what) { return std::to_string(n) + " " + what; }

// The shortest decimal representation that reads back as x, with a decimal point in every locale.
template <class T>
std::string number_text(T x) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, x).ptr;
  return {text, end};
}

// ---- shapes

template <class T>
void resolve_shapes(const AttentionCall& call, UntypedAttention& r) {
  const auto& q = call.query.shape;
  const auto& k = call.key.shape;
  const auto& v = call.value.shape;
  const auto check = [&](const char* name, const InputView<4>& view, const char* expected) {
    if (view.absent()) reject(call.name, std::string(name) + " is missing; expected " + expected);
    expect_type<T>(call.name, name, view.type);  // before other types are compared with it
    if (std::any_of(view.shape.begin(), view.shape.end(), [](Index n) { return n < 0; })) {
      reject(call.name, std::string(name) + " has shape " + shape_text(view.shape) + "; extents must not be negative");
    }
  };
  check("query", call.query, "(B, H, L, D)");
  check("key", call.key, "(B, Hkv, S, D)");
  if (call.has_value) check("value", call.value, "(B, Hkv, S, Dv)");
  if (q[3] == 0) reject(call.name, "query has head size 0 in shape " + shape_text(q) + "; expected at least 1");
  if (k[0] != q[0]) {
    reject(call.name, "key has batch " + std::to_string(k[0]) + " in shape " + shape_text(k) + "; expected " +
                          std::to_string(q[0]) + " as in query " + shape_text(q));
  }
  if (k[3] != q[3]) {
    reject(call.name, "key has head size " + std::to_string(k[3]) + " in shape " + shape_text(k) + "; expected " +
                          std::to_string(q[3]) + " as in query " + shape_text(q));
  }
  if (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0) {
    reject(call.name, "query has " + count_text(q[1], "heads") + " in shape " + shape_text(q) +
                          "; expected a multiple of the " + count_text(k[1], "heads") + " of key " + shape_text(k));
  }
  if (call.has_value) {
    if (v[0] != k[0] || v[1] != k[1] || v[2] != k[2]) {
      reject(call.name, "value has shape " + shape_text(v) + "; expected " + shape_text(std::array{k[0], k[1], k[2]}) +
                            " in its first three axes as in key " + shape_text(k));
    }
    if (v[3] == 0) reject(call.name, "value has head size 0 in shape " + shape_text(v) + "; expected at least 1");
  }
  r.batch = q[0];
  r.num_heads = q[1];
  r.num_kv_heads = k[1];
  r.num_queries = q[2];
  r.num_keys = k[2];
  r.head_size = q[3];
  r.value_head_size = call.has_value ? v[3] : 0;
  r.query = call.query;
  r.key = call.key;
  r.value = call.value;
}

// ---- sequences and positions

// A list of int32 or int64 values in memory that may be misaligned.
class Integers {
 public:
  Integers(const char* operator_name, const char* name, const InputView<1>& view) : view_(view) {
    if (!view.absent()) expect_integers(operator_name, name, view.type);
    footprint(operator_name, name, view);
  }
  std::size_t size() const { return static_cast<std::size_t>(view_.shape[0]); }
  Index operator[](std::size_t i) const { return read_index(view_.type, view_.pointer(static_cast<Index>(i))); }
  Index front() const { return (*this)[0]; }
  Index back() const { return (*this)[size() - 1]; }

 private:
  const InputView<1>& view_;
};

void check_starts(const char* operator_name, const char* name, const Integers& starts, Index total) {
  const auto fail = [&](const std::string& why) { reject(operator_name, std::string(name) + " " + why); };
  if (starts.front() != 0) fail("begins with " + std::to_string(starts.front()) + "; expected 0");
  for (std::size_t i = 1; i < starts.size(); ++i) {
    if (starts[i] < starts[i - 1]) {
      fail("falls from " + std::to_string(starts[i - 1]) + " to " + std::to_string(starts[i]) + " at entry " +
           std::to_string(i) + "; expected cumulative starts");
    }
  }
  if (starts.back() != total) {
    fail("ends with " + std::to_string(starts.back()) + "; expected the total length " + std::to_string(total));
  }
}

void resolve_sequences(const AttentionCall& call, const AttentionOptions& options, UntypedAttention& r) {
  const bool packed = !options.query_starts.empty() || !options.key_starts.empty();
  if (!packed) {
    for (Index b = 0; b < r.batch; ++b) {
      r.sequences.push_back({b, 0, r.num_queries, 0, r.num_keys, r.num_keys, 0, 0});
    }
    return;
  }
  if (options.query_starts.empty() || options.key_starts.empty()) {
    reject(call.name, std::string(options.query_starts.empty() ? "query_starts" : "key_starts") +
                          " is missing; packed sequences need both query_starts and key_starts");
  }
  if (r.batch != 1) {
    reject(call.name, "query has batch " + std::to_string(r.batch) + "; packed sequences expect (1, H, total, D)");
  }
  const Integers query_starts(call.name, "query_starts", options.query_starts);
  const Integers key_starts(call.name, "key_starts", options.key_starts);
  if (query_starts.size() != key_starts.size()) {
    reject(call.name, "key_starts has " + entries_text(static_cast<Index>(key_starts.size())) + "; expected " +
                          std::to_string(query_starts.size()) + " as in query_starts");
  }
  check_starts(call.name, "query_starts", query_starts, r.num_queries);
  check_starts(call.name, "key_starts", key_starts, r.num_keys);
  for (std::size_t i = 0; i + 1 < query_starts.size(); ++i) {
    const Index keys = key_starts[i + 1] - key_starts[i];
    r.sequences.push_back({0, query_starts[i], query_starts[i + 1] - query_starts[i], key_starts[i], keys, keys, 0, 0});
  }
}

// One value per sequence, each from `low` to high(sequence).
template <class High>
void check_per_sequence(const char* operator_name, const char* name, const Integers& numbers,
                        const ScratchVector<Sequence>& sequences, Index low, High high) {
  if (numbers.size() != sequences.size()) {
    reject(operator_name, std::string(name) + " has " + entries_text(static_cast<Index>(numbers.size())) +
                              "; expected " + std::to_string(sequences.size()) +
                              ", one per batch entry or packed sequence");
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const Index top = high(sequences[i]);
    if (numbers[i] < low || numbers[i] > top) {
      reject(operator_name, std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(numbers[i]) +
                                "; expected " + std::to_string(low) + " to " + std::to_string(top));
    }
  }
}

void resolve_positions(const AttentionCall& call, const AttentionOptions& options, UntypedAttention& r) {
  if (!options.key_lengths.empty()) {
    const Integers lengths(call.name, "key_lengths", options.key_lengths);
    check_per_sequence(call.name, "key_lengths", lengths, r.sequences, 0, [](const Sequence& s) { return s.num_keys; });
    for (std::size_t i = 0; i < r.sequences.size(); ++i) r.sequences[i].key_limit = lengths[i];
  }
  if (!options.prefix.empty()) {
    const Integers prefix(call.name, "prefix", options.prefix);
    check_per_sequence(call.name, "prefix", prefix, r.sequences, 0, [](const Sequence&) { return kMaxPosition; });
    for (std::size_t i = 0; i < r.sequences.size(); ++i) r.sequences[i].prefix = prefix[i];
  }
  r.causal = options.causal;
  const auto side = [&](const char* name, const std::optional<Index>& bound) -> std::optional<Index> {
    if (bound && *bound < 0) {
      reject(call.name, std::string("window.") + name + " is " + std::to_string(*bound) +
                            "; expected 0 or more, or none for no limit");
    }
    return bound ? std::optional(std::min(*bound, kMaxPosition)) : bound;
  };
  r.window_left = side("left", options.window.left);
  r.window_right = side("right", options.window.right);

  const auto set_offsets = [&](auto offset) {
    for (std::size_t i = 0; i < r.sequences.size(); ++i) r.sequences[i].offset = offset(i);
  };
  const auto in_range = [&](const std::string& name, Index n) {
    if (n < -kMaxPosition || n > kMaxPosition) {
      reject(call.name, name + " is " + std::to_string(n) + "; expected −2^60 to 2^60");
    }
    return n;
  };
  if (const auto* alignment = std::get_if<QueryAlignment>(&options.query_offset)) {
    set_offsets([&](std::size_t i) {
      return *alignment == QueryAlignment::top_left ? 0 : r.sequences[i].key_limit - r.sequences[i].num_queries;
    });
  } else if (const auto* number = std::get_if<Index>(&options.query_offset)) {
    in_range("query_offset", *number);
    set_offsets([&](std::size_t) { return *number; });
  } else if (const auto* view = std::get_if<InputView<1>>(&options.query_offset)) {
    const Integers numbers(call.name, "query_offset", *view);
    check_per_sequence(call.name, "query_offset", numbers, r.sequences, -kMaxPosition,
                       [](const Sequence&) { return kMaxPosition; });
    set_offsets([&](std::size_t i) { return numbers[i]; });
  } else {
    const bool square = std::all_of(r.sequences.begin(), r.sequences.end(),
                                    [](const Sequence& s) { return s.num_queries == s.num_keys; });
    const char* user = options.causal                                ? "causal"
                       : options.window.left || options.window.right ? "window"
                       : !options.alibi_slopes.empty()               ? "alibi_slopes"
                       : !options.prefix.empty()                     ? "prefix"
                                                                     : nullptr;
    if (user && (!square || !options.key_lengths.empty())) {
      reject(call.name, std::string(user) + " needs an explicit query_offset when " +
                            (square ? "key_lengths are given"
                                    : "query and key lengths differ (" + std::to_string(r.num_queries) + " and " +
                                          std::to_string(r.num_keys) + ")") +
                            "; expected top_left, bottom_right or numbers");
    }
  }
}

// ---- dense options

void resolve_segments(const AttentionCall& call, const AttentionOptions& options, UntypedAttention& r) {
  r.query_segments = options.query_segments;
  r.key_segments = options.key_segments;
  if (options.query_segments.absent() && options.key_segments.absent()) return;
  if (options.query_segments.absent() || options.key_segments.absent()) {
    reject(call.name, std::string(options.query_segments.absent() ? "query_segments" : "key_segments") +
                          " is missing; segments need both query_segments and key_segments");
  }
  expect_integers(call.name, "query_segments", options.query_segments.type);
  expect_integers(call.name, "key_segments", options.key_segments.type);
  expect_shape(call.name, "query_segments", options.query_segments, {r.batch, r.num_queries});
  expect_shape(call.name, "key_segments", options.key_segments, {r.batch, r.num_keys});
}

// The view with stride 0 along every axis of extent 1; every other axis must have the full extent.
InputView<4> broadcast_to(const char* operator_name, const char* name, InputView<4> view,
                          const std::array<Index, 4>& full) {
  if (view.absent()) return view;
  const std::array<Index, 4> given = view.shape;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (view.shape[axis] == full[axis]) continue;
    if (view.shape[axis] != 1) {
      reject(operator_name, std::string(name) + " has shape " + shape_text(given) +
                                "; expected a shape that broadcasts to " + shape_text(full));
    }
    view.shape[axis] = full[axis];
    view.strides[axis] = 0;
  }
  return view;
}

TensorView<const std::uint8_t, 4> bytes_of_mask(const char* operator_name, const char* name, const InputView<4>& view) {
  if (!view.absent())
    expect_type(operator_name, name, view.type, {ElementType::boolean, ElementType::uint8}, "bool or uint8");
  return {static_cast<const std::uint8_t*>(view.data), view.shape, view.strides};
}

void resolve_dense(const AttentionCall& call, const AttentionOptions& options, UntypedAttention& r) {
  resolve_segments(call, options, r);
  r.block_size = options.block_size;
  const bool has_block_size = options.block_size != std::array<Index, 2>{};
  if (options.block_mask.absent() && has_block_size) {
    reject(call.name, "block_size is given without block_mask; expected both");
  }
  if (!options.block_mask.absent()) {
    const auto [bq, bk] = options.block_size;
    if (bq < 1 || bk < 1) {
      reject(call.name, "block_size is " + shape_text(options.block_size) + "; expected two positive numbers");
    }
    const auto blocks = [](Index n, Index size) { return n / size + (n % size != 0); };
    r.block_mask =
        bytes_of_mask(call.name, "block_mask",
                      broadcast_to(call.name, "block_mask", options.block_mask,
                                   {r.batch, r.num_heads, blocks(r.num_queries, bq), blocks(r.num_keys, bk)}));
    if (r.block_mask.shape[2] != options.block_mask.shape[2] || r.block_mask.shape[3] != options.block_mask.shape[3]) {
      reject(call.name, "block_mask has shape " + shape_text(options.block_mask.shape) + "; expected " +
                            shape_text(std::array{r.block_mask.shape[2], r.block_mask.shape[3]}) +
                            " blocks in its last two axes");
    }
  }
  const std::array<Index, 4> full{r.batch, r.num_heads, r.num_queries, r.num_keys};
  r.mask = bytes_of_mask(call.name, "mask", broadcast_to(call.name, "mask", options.mask, full));
  const ElementType type = options.bias.type;
  if (!options.bias.absent() && type != ElementType::float32 && type != call.query.type) {
    reject(call.name, "bias has type " + element_type_text(type) + "; expected " +
                          own_or_query(ElementType::float32, call.query.type));
  }
  r.bias = broadcast_to(call.name, "bias", options.bias, full);
}

// ---- scalars and per-head values

// Converted to T. Throws std::invalid_argument unless the list is empty or has one value per query head.
template <class T>
ScratchVector<T> numbers_per_head(const char* operator_name, const char* name, const InputView<1>& view,
                                  Index num_heads, const Runtime& runtime) {
  ScratchVector<T> numbers(workspace_of(runtime));
  if (view.empty()) return numbers;
  number_footprint<T>(operator_name, name, view);
  if (view.shape[0] != num_heads) {
    reject(operator_name, std::string(name) + " has " + entries_text(view.shape[0]) + "; expected " +
                              std::to_string(num_heads) + ", one per query head");
  }
  numbers.resize(static_cast<std::size_t>(num_heads));
  read_numbers(view.type, num_heads, view.data, view.strides[0], numbers.data());
  return numbers;
}

template <class T>
void resolve_numbers(const AttentionCall& call, const AttentionOptions& options, const Runtime& runtime,
                     ResolvedAttention<T>& r) {
  r.alibi_slopes = numbers_per_head<T>(call.name, "alibi_slopes", options.alibi_slopes, r.num_heads, runtime);
  const ScratchVector<T>& slopes = r.alibi_slopes;
  for (std::size_t h = 0; h < slopes.size(); ++h) {
    if (!std::isfinite(slopes[h])) {
      reject(call.name,
             "alibi_slopes[" + std::to_string(h) + "] is " + number_text(slopes[h]) + "; expected a finite number");
    }
  }
  r.sinks = checked_sinks<T>(call.name, options.sinks, r.num_heads, runtime);
  // A value that is finite in double but not in the compute type would become the infinity that is rejected here.
  const auto narrow = [&](const char* name, double x) {
    const T y = static_cast<T>(x);
    if (!std::isfinite(x) || !std::isfinite(y)) {
      reject(call.name, std::string(name) + " is " + number_text(x) + "; expected a finite number");
    }
    return y;
  };
  r.soft_cap = 0;
  if (options.soft_cap) {
    r.soft_cap = narrow("soft_cap", *options.soft_cap);
    if (!(r.soft_cap > 0)) {
      reject(call.name, "soft_cap is " + number_text(*options.soft_cap) + "; expected a positive number");
    }
  }
  r.scale =
      options.scale ? narrow("scale", *options.scale) : static_cast<T>(1 / std::sqrt(static_cast<double>(r.head_size)));
  const double rate = options.dropout;
  if (!(rate >= 0 && rate <= 1)) {
    reject(call.name, "dropout is " + number_text(rate) + "; expected 0 to 1");
  }
  r.dropout_threshold = static_cast<std::uint64_t>(std::nearbyint(rate * 0x1p32));
  r.dropout_factor = rate < 1 ? static_cast<T>(1 / (1 - rate)) : 0;
  r.dropout_seed = options.dropout_seed;
  const std::array<Index, 3> extents{r.batch, r.num_heads, r.num_queries};
  for (std::size_t axis = 0; axis < 3 && r.dropout_threshold > 0; ++axis) {
    constexpr Index kWords = Index{1} << 32;  // range of the generator's counter
    const Index first = options.dropout_first[axis];
    if (first >= 0 && first <= kWords - extents[axis]) continue;
    reject(call.name, "dropout_first[" + std::to_string(axis) + "] is " + std::to_string(first) + "; expected 0 to " +
                          std::to_string(kWords - extents[axis]));
  }
  r.dropout_first = options.dropout_first;
  const auto is_bf16 = [](const InputView<4>& view) { return view.type == ElementType::bfloat16; };
  r.key_pairs = kernels::active().bf16_dot && is_bf16(r.query) && is_bf16(r.key);
  const bool rounds_weights = !options.weights_in_float32.value_or(call.result == ElementType::float32);
  r.value_pairs = r.key_pairs && call.has_value && is_bf16(r.value) && rounds_weights;
}

}  // namespace

template <class T>
ResolvedAttention<T> resolve(const AttentionCall& call, const AttentionOptions& options, const Runtime& runtime) {
  ResolvedAttention<T> r{{.sequences = ScratchVector<Sequence>(workspace_of(runtime))},
                         ScratchVector<T>(workspace_of(runtime)),
                         ScratchVector<T>(workspace_of(runtime))};
  resolve_shapes<T>(call, r);
  resolve_sequences(call, options, r);
  resolve_positions(call, options, r);
  resolve_dense(call, options, r);
  resolve_numbers(call, options, runtime, r);
  return r;
}

// ---- memory

Footprints input_footprints(const AttentionCall& call, const AttentionOptions& options) {
  Footprints inputs;
  const auto add = [&](const char* name, const auto& view) {
    if (!view.absent()) inputs.push_back(footprint(call.name, name, view));
  };
  inputs.push_back(footprint(call.name, "query", call.query));
  inputs.push_back(footprint(call.name, "key", call.key));
  if (call.has_value) inputs.push_back(footprint(call.name, "value", call.value));
  add("query_segments", options.query_segments);
  add("key_segments", options.key_segments);
  add("block_mask", options.block_mask);
  add("mask", options.mask);
  add("bias", options.bias);
  add("key_lengths", options.key_lengths);
  add("query_starts", options.query_starts);
  add("key_starts", options.key_starts);
  add("prefix", options.prefix);
  add("alibi_slopes", options.alibi_slopes);
  add("sinks", options.sinks);
  if (const auto* offsets = std::get_if<InputView<1>>(&options.query_offset)) add("query_offset", *offsets);
  return inputs;
}

void check_softmax_state(const char* operator_name, const UntypedAttention& r, bool needed, const InputView<3>& row_max,
                         const InputView<3>& row_sum, Footprints& inputs) {
  const std::array<Index, 3> shape{r.batch, r.num_heads, r.num_queries};
  for (const auto& [name, view] : {std::pair{"row_max", &row_max}, {"row_sum", &row_sum}}) {
    if (view->absent() && needed) {
      reject(operator_name,
             std::string(name) + " is missing; expected " + shape_text(shape) + " as written by attention_forward");
    }
    expect_shape(operator_name, name, *view, shape);
    inputs.push_back(footprint(operator_name, name, *view));
  }
}

template <class T>
ScratchVector<T> checked_sinks(const char* operator_name, const InputView<1>& view, Index num_heads,
                               const Runtime& runtime) {
  ScratchVector<T> sinks = numbers_per_head<T>(operator_name, "sinks", view, num_heads, runtime);
  for (std::size_t h = 0; h < sinks.size(); ++h) {
    if (!(sinks[h] <= std::numeric_limits<T>::max())) {
      reject(operator_name, "sinks[" + std::to_string(h) + "] is " + number_text(sinks[h]) +
                                "; expected a finite number, or −inf for no sink");
    }
  }
  return sinks;
}

void check_context_type(const char* operator_name, const OutputView<4>& context, ElementType query) {
  const ElementType computed = compute_type(query);
  if (context.absent() || context.type == computed || context.type == query) return;
  reject(operator_name,
         "context has type " + element_type_text(context.type) + "; expected " + own_or_query(computed, query));
}

Footprints check_outputs(const char* operator_name, const AttentionOutputs& outputs,
                         const std::array<Index, 4>& context, Index num_keys, std::span<const Footprint> inputs) {
  const std::array<Index, 3> rows{context[0], context[1], context[2]};
  const auto& given = outputs.context;
  const bool absent = given.absent();
  if (absent && rows[0] * rows[1] * rows[2] != 0) {
    reject(operator_name, "context is missing; expected " + shape_text(context));
  }
  Footprints written;
  const auto check = [&](const char* name, const auto& view, const auto& shape) {
    expect_shape(operator_name, name, view, shape);
    if (!view.absent()) written.push_back(footprint(operator_name, name, view));
  };
  if (!absent) {
    if (given.shape != context) {
      reject(operator_name, "context has shape " + shape_text(given.shape) + "; expected " + shape_text(context));
    }
    written.push_back(footprint(operator_name, "context", given));
  }
  check("row_max", outputs.row_max, rows);
  check("row_sum", outputs.row_sum, rows);
  check("lse", outputs.lse, rows);
  check("weights", outputs.weights, std::array{rows[0], rows[1], rows[2], num_keys});
  check("sink_weights", outputs.sink_weights, rows);
  check_overlap(operator_name, inputs, written);
  return written;
}

REGARD_INSTANTIATE_COMPUTE(resolve);
REGARD_INSTANTIATE_COMPUTE(checked_sinks);

}  // namespace regard::inline v0::internal
