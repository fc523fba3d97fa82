// SPDX-License-Identifier: Apache-2.0
//
// The fields of a call that ranks compare, and the check of the whole call. Arrays are compared by a hash of their
// elements. Read next: whole_call.h.
#include "whole_call.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "regard/error.h"
#include "regard/plan.h"

namespace regard::inline v0::internal {

// FNV-1a.
template <int Rank>
std::string elements_text(const InputView<Rank>& view) {
  std::string text = "(";
  for (const Index extent : view.shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  std::uint64_t hash = 0xcbf29ce484222325;
  std::array<Index, Rank> at{};
  for (Index left = view.empty() || view.data == nullptr ? 0 : 1; left > 0;) {
    Index offset = 0;
    for (std::size_t axis = 0; axis < at.size(); ++axis) offset += at[axis] * view.strides[axis];
    const auto* element = static_cast<const std::byte*>(view.data) + offset * type_bytes(view.type);
    for (Index i = 0; i < type_bytes(view.type); ++i)
      hash = (hash ^ std::to_integer<std::uint64_t>(element[i])) * 0x100000001b3;
    left = 0;
    for (std::size_t axis = at.size(); axis-- > 0;) {
      if (++at[axis] < view.shape[axis]) {
        left = 1;
        break;
      }
      at[axis] = 0;
    }
  }
  char digits[20];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return text + ") with hash " + digits;
}

template std::string elements_text(const InputView<1>&);
template std::string elements_text(const InputView<2>&);
template std::string elements_text(const InputView<4>&);

namespace {

std::string number_text(double number) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", number);
  return text;
}

// Type and shape, without the axis whose extent may differ.
template <class View>
std::string shape_text(const View& view, std::size_t axis_that_differs) {
  if (view.absent()) return "missing";
  std::string text = std::string(type_name(view.type)) + " (";
  for (std::size_t axis = 0; axis < view.shape.size(); ++axis)
    text += (axis > 0 ? ", " : "") + (axis == axis_that_differs ? "…" : std::to_string(view.shape[axis]));
  return text + ")";
}

std::string optional_text(const std::optional<Index>& number) { return number ? std::to_string(*number) : "not set"; }
std::string optional_text(const std::optional<double>& number) { return number ? number_text(*number) : "not set"; }

std::string offset_text(const QueryOffset& offset) {
  if (const auto* number = std::get_if<Index>(&offset)) return std::to_string(*number);
  if (const auto* array = std::get_if<InputView<1>>(&offset)) return elements_text(*array);
  if (const auto* alignment = std::get_if<QueryAlignment>(&offset))
    return *alignment == QueryAlignment::top_left ? "top_left" : "bottom_right";
  return "not set";
}

void add_options(Agreement& agreement, const AttentionOptions& o) {
  agreement.add("causal", o.causal ? "true" : "false");
  agreement.add("query_offset", offset_text(o.query_offset));
  agreement.add("window.left", optional_text(o.window.left));
  agreement.add("window.right", optional_text(o.window.right));
  agreement.add("key_lengths", elements_text(o.key_lengths));
  agreement.add("query_starts", elements_text(o.query_starts));
  agreement.add("key_starts", elements_text(o.key_starts));
  agreement.add("query_segments", elements_text(o.query_segments));
  agreement.add("key_segments", elements_text(o.key_segments));
  agreement.add("prefix", elements_text(o.prefix));
  agreement.add("block_mask", elements_text(o.block_mask));
  agreement.add("block_size", std::to_string(o.block_size[0]) + " × " + std::to_string(o.block_size[1]));
  agreement.add("mask", shape_text(o.mask, 2));
  agreement.add("bias", shape_text(o.bias, 2));
  agreement.add("alibi_slopes", elements_text(o.alibi_slopes));
  agreement.add("sinks", elements_text(o.sinks));
  agreement.add("soft_cap", optional_text(o.soft_cap));
  agreement.add("scale", optional_text(o.scale));
  agreement.add("dropout", number_text(o.dropout));
  agreement.add("dropout_seed", std::to_string(o.dropout_seed));
  for (const Index first : o.dropout_first) agreement.add("dropout_first", first);
  agreement.add("weights_in_float32", o.weights_in_float32 ? (*o.weights_in_float32 ? "true" : "false") : "not set");
}

// All instruction sets with fused multiply-add give the same bits, except for one with bfloat16.
std::string arithmetic(ElementType type) {
  const std::string name = active_instruction_set();
  if (type == ElementType::bfloat16 && name == "avx512_bf16") return name;
  for (const InstructionSet& set : instruction_sets()) {
    if (set.active) return set.fused_multiply_add ? "one with fused multiply-add" : name;
  }
  return name;
}

// Whether a mask has one row that is shared by all rows, as far as this rank knows: 1 if so, 0 if not, 2 if both are
// possible.
Index shared_rows(const InputView<4>& view, Index rows) {
  if (view.absent()) return 0;
  return rows == 1 ? 2 : view.shape[2] == 1 ? 1 : 0;
}

std::vector<Index> starts_of(const std::vector<Index>& counts) {
  std::vector<Index> starts{0};
  for (const Index count : counts) starts.push_back(starts.back() + std::max<Index>(0, count));
  return starts;
}

constexpr std::uintptr_t kUnusedAddress = 4096;

// A placeholder with another extent along one axis, which is never read.
InputView<4> made_up(const InputView<4>& like, std::size_t axis, Index extent) {
  alignas(64) static const std::byte memory[64]{};
  if (like.absent()) return like;
  InputView<4> view(memory, like.type, like.shape, {});
  view.shape[axis] = extent;
  return view;
}

}  // namespace

void add_output(Agreement& agreement, const char* name, const OutputView<4>& view, std::size_t axis_that_differs) {
  agreement.add(name, shape_text(view, axis_that_differs));
}
void add_output(Agreement& agreement, const char* name, const OutputView<3>& view, std::size_t axis_that_differs) {
  agreement.add(name, shape_text(view, axis_that_differs));
}

std::string without_function(const std::string& text, const std::string& function) {
  return text.starts_with(function + ": ") ? text.substr(function.size() + 2) : text;
}

void add_decode_fields(Agreement& agreement, const InputView<4>& query, const AttentionOutputs& outputs,
                       const AttentionOptions& options) {
  agreement.add("query", shape_text(query, 4) + " " + elements_text(query));
  agreement.add("the instruction set", arithmetic(query.type));
  add_options(agreement, options);
  agreement.add("mask", elements_text(options.mask));
  agreement.add("bias", elements_text(options.bias));
  add_output(agreement, "context", outputs.context, 4);
  add_output(agreement, "row_max", outputs.row_max, 3);
  add_output(agreement, "row_sum", outputs.row_sum, 3);
  add_output(agreement, "lse", outputs.lse, 3);
  add_output(agreement, "sink_weights", outputs.sink_weights, 3);
}

void check_decode(const InputView<4>& query, const KvCacheShape& shape, ElementType stored,
                  const std::vector<Index>& lengths, Index longest, const AttentionOutputs& outputs,
                  const AttentionOptions& options) {
  const auto reject = [](const char* text) { throw InvalidArgument(std::string("attention_forward: ") + text); };
  if (!options.key_lengths.absent()) reject("key_lengths is given; expected the lengths of the cache");
  if (!options.query_starts.absent()) reject("query_starts is given; expected the sequences of the cache");
  if (options.dropout != 0) reject("dropout is above 0; expected none in decoding");
  if (!outputs.weights.absent()) reject("weights are requested; expected none in decoding");
  // Stored elements of other types are read as the compute type.
  const ElementType type = stored == ElementType::int8 ? ElementType::float32 : stored;
  const InputView<4> like_key(nullptr, type, {shape.num_sequences, shape.num_kv_heads, longest, shape.head_size}, {});
  InputView<4> like_value = like_key;
  like_value.shape[3] = shape.value_head_size;
  AttentionOptions whole = options;
  whole.key_lengths = InputView<1>(lengths);
  if (std::holds_alternative<std::monostate>(whole.query_offset)) whole.query_offset = QueryAlignment::bottom_right;
  plan([&](const Runtime& runtime) {
    attention_forward(query, made_up(like_key, 2, longest), made_up(like_value, 2, longest), outputs, whole, runtime);
  });
}

Agreement agreement_on(const RankArguments& arguments) {
  Agreement agreement(arguments.function);
  agreement.add("query", shape_text(arguments.query, 2));
  agreement.add("key", shape_text(arguments.key, 2));
  agreement.add("value", shape_text(arguments.value, 2));
  return agreement;
}

WholeCall agree_on_call(const RankArguments& arguments, Agreement& agreement, const Check& check, Ranks& ranks,
                        const std::stop_token& stop) {
  const auto& [function, query, key, value, options] = arguments;
  agreement.add("the instruction set", arithmetic(query.type));
  add_options(agreement, options);
  const std::size_t rows = agreement.number(query.shape[2]), keys = agreement.number(key.shape[2]);
  const std::size_t mask_rows = agreement.number(shared_rows(options.mask, query.shape[2]));
  const std::size_t bias_rows = agreement.number(shared_rows(options.bias, query.shape[2]));
  if (!value.absent() && value.shape[2] != key.shape[2])
    agreement.reject("value has " + std::to_string(value.shape[2]) + " keys; expected the number of keys in key, " +
                     std::to_string(key.shape[2]));
  agreement.exchange(ranks, stop);

  WholeCall call;
  call.problem.row_starts = starts_of(agreement.numbers(rows));
  call.problem.key_starts = starts_of(agreement.numbers(keys));
  const auto rank = static_cast<std::size_t>(ranks.rank());
  call.rows = {call.problem.row_starts[rank], call.problem.row_starts[rank + 1]};
  call.keys = {call.problem.key_starts[rank], call.problem.key_starts[rank + 1]};
  call.extents = {query.shape[0], query.shape[1], key.shape[1], call.problem.row_starts.back(),
                  call.problem.key_starts.back()};
  const auto by_row = [&](const InputView<4>& view, std::size_t place) {
    const std::vector<Index> shared = agreement.numbers(place);
    return !view.absent() && std::find(shared.begin(), shared.end(), 1) == shared.end();
  };
  call.mask_by_row = by_row(options.mask, mask_rows);
  call.bias_by_row = by_row(options.bias, bias_rows);

  Agreement found(function);
  try {
    const InputView<4> all_keys = made_up(key, 2, call.extents.num_keys);
    const InputView<4> all_values = made_up(value.absent() ? key : value, 2, call.extents.num_keys);
    AttentionOptions whole = options;
    if (call.mask_by_row) whole.mask = made_up(options.mask, 2, call.extents.num_rows);
    if (call.bias_by_row) whole.bias = made_up(options.bias, 2, call.extents.num_rows);
    plan([&](const Runtime& runtime) {
      const InputView<4> all_rows = made_up(query, 2, call.extents.num_rows);
      // Planning writes nothing, so this address is that of no array.
      const OutputView<4> context(
          reinterpret_cast<void*>(kUnusedAddress), query.type,
          {query.shape[0], query.shape[1], call.extents.num_rows, all_values.shape[3]},
          dense_strides(std::array{query.shape[0], query.shape[1], call.extents.num_rows, all_values.shape[3]}));
      attention_forward(all_rows, all_keys, all_values, {.context = context}, whole, runtime);
    });
    for (const IndexRange& part : strips(options, call.rows)) {
      // With several parts, the outputs do not fit a part; the first check has already found errors in the options.
      if (part != call.rows) break;
      const LocalOptions local =
          local_options(options, call.extents, call.rows, {0, call.extents.num_heads}, call.rows.first, 0);
      plan([&](const Runtime& runtime) { check(query, all_keys, all_values, local.options, runtime); });
    }
  } catch (const InvalidArgument& error) {
    // The whole call is checked by a different function.
    found.reject(without_function(without_function(error.what(), function), "attention_forward"));
  }
  found.exchange(ranks, stop);

  DistributedProblem& problem = call.problem;
  problem.batch = std::max<Index>(1, query.shape[0]);
  problem.num_heads = query.shape[1];
  problem.num_kv_heads = key.shape[1];
  problem.head_size = std::max<Index>(1, query.shape[3]);
  problem.value_head_size = std::max<Index>(1, value.shape[3]);
  problem.element_bytes = type_bytes(query.type);
  problem.visibility = visibility_of(options, call.extents);
  return call;
}

}  // namespace regard::inline v0::internal
