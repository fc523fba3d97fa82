// SPDX-License-Identifier: Apache-2.0
//
// docs/reference/semantics.md section 3: a caller's mistake throws std::invalid_argument, which names the operator, the
// argument, the actual and the expected value, before any work. Each mistake is one change to a valid call; the
// complete message is compared, and nothing may have been written.
// Read next: attention_bits_test.cpp.
#include <functional>

#include "regard/attention_backward.h"
#include "regard/attention_statistics.h"
#include "regard/kv_cache.h"
#include "support/attention_checks.h"

namespace regard::attention_rejections_test {
namespace {

// A valid call with every option, to be modified by a test. B 2, H 4, Hkv 2, L 3, S 5, D 6, Dv 7.
struct Call {
  AttentionInputs<float> inputs = AttentionInputs<float>::normal(1, 2, 4, 2, 3, 5, 6, 7);
  AttentionArrays<float> arrays = AttentionArrays<float>::dense(2, 4, 3, 5, 7);
  std::vector<Index> offsets{0, 1}, lengths{5, 4}, prefix{1, 0}, starts{0, 1, 3}, key_starts{0, 2, 5};
  std::vector<float> slopes{1, 1, 1, 1}, sinks{0, 0, 0, 0};
  Array<std::int32_t, 2> rows{{2, 3}}, keys{{2, 5}};
  Array<bool, 4> blocks{{2, 4, 2, 3}}, mask{{2, 4, 3, 5}};
  Array<float, 4> bias{{2, 4, 3, 5}};
  TensorView<const float, 4> query = std::as_const(inputs.query).view();
  TensorView<const float, 4> key = std::as_const(inputs.key).view();
  TensorView<const float, 4> value = std::as_const(inputs.value).view();
  AttentionOutputs outputs = arrays.views();
  AttentionOptions options;
  Runtime runtime;

  Call() {
    rows.fill([] { return 0; });
    keys.fill([] { return 0; });
    blocks.fill([] { return true; });
    mask.fill([] { return true; });
    bias.fill([] { return 0; });
    options = {.causal = true,
               .query_offset = std::span<const Index>(offsets),
               .window = {4, 4},
               .key_lengths = lengths,
               .query_segments = std::as_const(rows).view(),
               .key_segments = std::as_const(keys).view(),
               .prefix = prefix,
               .block_mask = std::as_const(blocks).view(),
               .block_size = {2, 2},
               .mask = std::as_const(mask).view(),
               .bias = std::as_const(bias).view(),
               .alibi_slopes = slopes,
               .sinks = sinks,
               .soft_cap = 10.0,
               .scale = 0.5};
  }
  // Packed: batch 1, two sequences.
  void pack() {
    for (auto* view : {&query, &key, &value}) view->shape[0] = 1;
    arrays = AttentionArrays<float>::dense(1, 4, 3, 5, 7);
    outputs = arrays.views();
    options = {.query_starts = starts, .key_starts = key_starts};
  }
  std::string run() {
    return rejection([&] { attention_forward(query, key, value, outputs, options, runtime); });
  }
};

// The message without the operator's name, after spoil has modified a valid call.
std::string message_of(const std::function<void(Call&)>& spoil) {
  Call call;
  spoil(call);
  const std::string message = call.run();
  EXPECT_TRUE(call.arrays.context.surroundings_untouched() && call.arrays.lse->surroundings_untouched());
  const std::string name = "attention_forward: ";
  EXPECT_EQ(message.substr(0, name.size()), name);
  return message.substr(std::min(name.size(), message.size()));
}

constexpr Index kMany = Index{1} << 40;

TEST(Rejections, UnmodifiedCallIsValid) {
  Call call;
  EXPECT_EQ(call.run(), "accepted");
  Call packed;
  packed.pack();
  EXPECT_EQ(packed.run(), "accepted");
}

TEST(Rejections, ShapesOfQueryKeyAndValue) {
  EXPECT_EQ(message_of([](Call& c) { c.query.shape = {2, -4, 3, 6}; }),
            "query has shape (2, -4, 3, 6); extents must not be negative");
  EXPECT_EQ(message_of([](Call& c) { c.key.shape[2] = -1; }),
            "key has shape (2, 2, -1, 6); extents must not be negative");
  EXPECT_EQ(message_of([](Call& c) { c.value.shape[3] = -7; }),
            "value has shape (2, 2, 5, -7); extents must not be negative");
  EXPECT_EQ(message_of([](Call& c) { c.key.shape[0] = 1; }),
            "key has batch 1 in shape (1, 2, 5, 6); expected 2 as in query (2, 4, 3, 6)");
  EXPECT_EQ(message_of([](Call& c) { c.key.shape[3] = 5; }),
            "key has head size 5 in shape (2, 2, 5, 5); expected 6 as in query (2, 4, 3, 6)");
  EXPECT_EQ(message_of([](Call& c) { c.key.shape[1] = 3; }),
            "query has 4 heads in shape (2, 4, 3, 6); expected a multiple of the 3 heads of key (2, 3, 5, 6)");
  EXPECT_EQ(message_of([](Call& c) { c.key.shape[1] = 0; }),
            "query has 4 heads in shape (2, 4, 3, 6); expected a multiple of the 0 heads of key (2, 0, 5, 6)");
  for (const std::size_t axis : {0u, 1u, 2u}) {
    EXPECT_NE(message_of([&](Call& c) {
                c.value.shape[axis] = 1;
              }).find("; expected (2, 2, 5) in its first three axes as in key (2, 2, 5, 6)"),
              std::string::npos);
  }
  EXPECT_EQ(message_of([](Call& c) { c.query.shape[3] = c.key.shape[3] = 0; }),
            "query has head size 0 in shape (2, 4, 3, 0); expected at least 1");
  EXPECT_EQ(message_of([](Call& c) { c.value.shape[3] = 0; }),
            "value has head size 0 in shape (2, 2, 5, 0); expected at least 1");
  EXPECT_EQ(message_of([](Call& c) { c.query = {}; }), "query is missing; expected (B, H, L, D)");
  EXPECT_EQ(message_of([](Call& c) { c.key = {}; }), "key is missing; expected (B, Hkv, S, D)");
  EXPECT_EQ(message_of([](Call& c) { c.value = {}; }), "value is missing; expected (B, Hkv, S, Dv)");
}

TEST(Rejections, NullAndOverflow) {
  EXPECT_EQ(message_of([](Call& c) { c.query.data = nullptr; }),
            "query is null; expected memory for shape (2, 4, 3, 6)");
  EXPECT_EQ(message_of([](Call& c) { c.key.data = nullptr; }), "key is null; expected memory for shape (2, 2, 5, 6)");
  EXPECT_EQ(message_of([](Call& c) { c.value.data = nullptr; }),
            "value is null; expected memory for shape (2, 2, 5, 7)");
  EXPECT_EQ(message_of([](Call& c) { c.outputs.context.data = nullptr; }),
            "context is null; expected memory for shape (2, 4, 3, 7)");
  EXPECT_EQ(message_of([](Call& c) { c.options.mask.data = nullptr; }),
            "mask is null; expected memory for shape (2, 4, 3, 5)");
  // 2^40 · 2^40 queries and columns do not fit, whatever the strides; nor does a stride that exceeds the address space.
  EXPECT_NE(message_of([](Call& c) {
              c.options = {};
              c.query.shape = {2, 4, kMany, kMany};
              c.key.shape[3] = kMany;
            }).find("; expected a size that fits in 63 bits"),
            std::string::npos);
  EXPECT_EQ(message_of([](Call& c) {
              c.query.strides[0] = std::numeric_limits<Index>::max();
            }).find("query has shape (2, 4, 3, 6) and strides (9223372036854775807, "),
            0u);
  EXPECT_EQ(message_of([](Call& c) {
              c.query.strides[0] = std::numeric_limits<Index>::min();
            }).find("query has shape (2, 4, 3, 6) and strides (-9223372036854775808, "),
            0u);
}

TEST(Rejections, Outputs) {
  EXPECT_EQ(message_of([](Call& c) { c.outputs.context = {}; }), "context is missing; expected (2, 4, 3, 7)");
  EXPECT_EQ(message_of([](Call& c) { c.outputs.context.shape[3] = 6; }),
            "context has shape (2, 4, 3, 6); expected (2, 4, 3, 7)");
  EXPECT_EQ(message_of([](Call& c) { c.outputs.weights.shape[3] = 3; }),
            "weights has shape (2, 4, 3, 3); expected (2, 4, 3, 5)");
  EXPECT_EQ(message_of([](Call& c) { c.outputs.row_max.shape[2] = 2; }),
            "row_max has shape (2, 4, 2); expected (2, 4, 3)");
  EXPECT_EQ(message_of([](Call& c) { c.outputs.row_sum.shape[1] = 2; }),
            "row_sum has shape (2, 2, 3); expected (2, 4, 3)");
  EXPECT_EQ(message_of([](Call& c) { c.outputs.lse.shape[0] = 1; }), "lse has shape (1, 4, 3); expected (2, 4, 3)");
  EXPECT_EQ(message_of([](Call& c) { c.outputs.sink_weights.shape[0] = 1; }),
            "sink_weights has shape (1, 4, 3); expected (2, 4, 3)");
}

TEST(Rejections, ValuesPerBatchEntry) {
  EXPECT_EQ(message_of([](Call& c) { c.lengths[1] = 6, c.options.key_lengths = c.lengths; }),
            "key_lengths[1] is 6; expected 0 to 5");
  EXPECT_EQ(message_of([](Call& c) { c.lengths[0] = -1, c.options.key_lengths = c.lengths; }),
            "key_lengths[0] is -1; expected 0 to 5");
  EXPECT_EQ(message_of([](Call& c) { c.lengths.pop_back(), c.options.key_lengths = c.lengths; }),
            "key_lengths has 1 entry; expected 2, one per batch entry or packed sequence");
  EXPECT_EQ(message_of([](Call& c) {
              c.prefix[0] = -1, c.options.prefix = c.prefix;
            }).find("prefix[0] is -1; expected 0 to "),
            0u);
  EXPECT_EQ(message_of([](Call& c) { c.prefix.push_back(1), c.options.prefix = c.prefix; }),
            "prefix has 3 entries; expected 2, one per batch entry or packed sequence");
  EXPECT_EQ(message_of([](Call& c) {
              c.offsets.pop_back();
              c.options.query_offset = std::span<const Index>(c.offsets);
            }),
            "query_offset has 1 entry; expected 2, one per batch entry or packed sequence");
  EXPECT_EQ(message_of([](Call& c) {
              c.options.query_offset = std::numeric_limits<Index>::min();
            }).find("query_offset is -9223372036854775808; expected "),
            0u);
  EXPECT_EQ(message_of([](Call& c) { c.options.window.left = -1; }),
            "window.left is -1; expected 0 or more, or none for no limit");
  EXPECT_EQ(message_of([](Call& c) { c.options.window.right = -3; }),
            "window.right is -3; expected 0 or more, or none for no limit");
}

TEST(Rejections, PackedSequences) {
  const auto packed = [](const std::function<void(Call&)>& spoil) {
    return message_of([&](Call& c) {
      c.pack();
      spoil(c);
    });
  };
  EXPECT_EQ(packed([](Call& c) { c.options.key_starts = {}; }),
            "key_starts is missing; packed sequences need both query_starts and key_starts");
  EXPECT_EQ(packed([](Call& c) { c.options.query_starts = {}; }),
            "query_starts is missing; packed sequences need both query_starts and key_starts");
  EXPECT_EQ(packed([](Call& c) { c.starts[0] = 1; }), "query_starts begins with 1; expected 0");
  EXPECT_EQ(packed([](Call& c) { c.starts[2] = 2; }), "query_starts ends with 2; expected the total length 3");
  EXPECT_EQ(packed([](Call& c) { c.key_starts[1] = 6; }),
            "key_starts falls from 6 to 5 at entry 2; expected cumulative starts");
  EXPECT_EQ(packed([](Call& c) { c.options.key_starts.shape[0] = 2; }),
            "key_starts has 2 entries; expected 3 as in query_starts");
  EXPECT_EQ(message_of([](Call& c) { c.options = {.query_starts = c.starts, .key_starts = c.key_starts}; }),
            "query has batch 2; packed sequences expect (1, H, total, D)");
  EXPECT_EQ(packed([](Call& c) {
              c.lengths = {3, 1};
              c.options.key_lengths = c.lengths;
            }),
            "key_lengths[0] is 3; expected 0 to 2");
}

TEST(Rejections, DenseOptions) {
  EXPECT_EQ(message_of([](Call& c) { c.options.key_segments = {}; }),
            "key_segments is missing; segments need both query_segments and key_segments");
  EXPECT_EQ(message_of([](Call& c) { c.options.query_segments = {}; }),
            "query_segments is missing; segments need both query_segments and key_segments");
  EXPECT_EQ(message_of([](Call& c) { c.options.query_segments.shape = {2, 5}; }),
            "query_segments has shape (2, 5); expected (2, 3)");
  EXPECT_EQ(message_of([](Call& c) { c.options.key_segments.shape = {1, 5}; }),
            "key_segments has shape (1, 5); expected (2, 5)");
  EXPECT_EQ(message_of([](Call& c) { c.options.mask.shape = {2, 4, 3, 4}; }),
            "mask has shape (2, 4, 3, 4); expected a shape that broadcasts to (2, 4, 3, 5)");
  EXPECT_EQ(message_of([](Call& c) { c.options.mask.shape = {2, 2, 3, 5}; }),
            "mask has shape (2, 2, 3, 5); expected a shape that broadcasts to (2, 4, 3, 5)");
  EXPECT_EQ(message_of([](Call& c) { c.options.bias = TensorView<const float, 4>(c.bias.view().data, {3, 1, 1, 1}); }),
            "bias has shape (3, 1, 1, 1); expected a shape that broadcasts to (2, 4, 3, 5)");
  EXPECT_EQ(message_of([](Call& c) { c.options.mask.shape = {2, 4, 3, 0}; }),
            "mask has shape (2, 4, 3, 0); expected a shape that broadcasts to (2, 4, 3, 5)");
  EXPECT_EQ(message_of([](Call& c) { c.options.block_size = {0, 2}; }),
            "block_size is (0, 2); expected two positive numbers");
  EXPECT_EQ(message_of([](Call& c) { c.options.block_size = {2, -1}; }),
            "block_size is (2, -1); expected two positive numbers");
  EXPECT_EQ(message_of([](Call& c) { c.options.block_mask = {}; }),
            "block_size is given without block_mask; expected both");
  EXPECT_EQ(message_of([](Call& c) { c.options.block_mask.shape = {2, 4, 2, 1}; }),
            "block_mask has shape (2, 4, 2, 1); expected (2, 3) blocks in its last two axes");
  EXPECT_EQ(message_of([](Call& c) { c.options.block_size = {1, 2}; }),
            "block_mask has shape (2, 4, 2, 3); expected a shape that broadcasts to (2, 4, 3, 3)");
}

TEST(Rejections, ValuesPerHeadAndPerCall) {
  EXPECT_EQ(message_of([](Call& c) { c.options.alibi_slopes.shape[0] = 3; }),
            "alibi_slopes has 3 entries; expected 4, one per query head");
  EXPECT_EQ(message_of([](Call& c) { c.options.sinks.shape[0] = 1; }),
            "sinks has 1 entry; expected 4, one per query head");
  EXPECT_EQ(message_of([](Call& c) { c.slopes[2] = HUGE_VALF; }), "alibi_slopes[2] is inf; expected a finite number");
  EXPECT_EQ(message_of([](Call& c) { c.slopes[1] = NAN; }), "alibi_slopes[1] is nan; expected a finite number");
  EXPECT_EQ(message_of([](Call& c) { c.sinks[3] = NAN; }),
            "sinks[3] is nan; expected a finite number, or −inf for no sink");
  EXPECT_EQ(message_of([](Call& c) { c.options.scale = -HUGE_VAL; }), "scale is -inf; expected a finite number");
  EXPECT_EQ(message_of([](Call& c) { c.options.scale = 1e39; }), "scale is 1e+39; expected a finite number");
  EXPECT_EQ(message_of([](Call& c) { c.options.soft_cap = -0.5; }), "soft_cap is -0.5; expected a positive number");
  EXPECT_EQ(message_of([](Call& c) { c.options.soft_cap = 0.0; }), "soft_cap is 0; expected a positive number");
  EXPECT_EQ(message_of([](Call& c) { c.options.soft_cap = 1e-60; }), "soft_cap is 1e-60; expected a positive number");
}

TEST(Rejections, NegativeThreads) {
  Call call;
  call.runtime.num_threads = -1;
  EXPECT_NE(call.run().find("num_threads"), std::string::npos);
}

TEST(Rejections, EveryOperatorNamesItself) {
  Call call;
  const std::array<Index, 4> wrong{2, 4, 3, 9};
  EXPECT_EQ(rejection([&] { attention_weights(call.query, call.key, {}, {call.bias.view().data, wrong}); }),
            "attention_weights: output has shape (2, 4, 3, 9); expected (2, 4, 3, 5)");
  EXPECT_EQ(rejection([&] {
              attention_weights(call.query, call.key, {.rows = std::array{RowRange{2, 4}}}, call.bias.view());
            }),
            "attention_weights: rows[0] is 2 to 4; expected a half-open range within 0 to 3");
  EXPECT_EQ(rejection([&] {
              attention_weights(call.query, call.key, {.rows = std::array{RowRange{2, 1}}}, call.bias.view());
            }),
            "attention_weights: rows[0] is 2 to 1; expected a half-open range within 0 to 3");
  EXPECT_EQ(rejection([&] { attention_weights(call.query, call.key, {}, call.bias.view()); }),
            "attention_weights: row_max is missing; expected (2, 4, 3) as written by attention_forward");
  call.key.shape[3] = 5;
  EXPECT_EQ(rejection([&] {
              attention_with_weights<float>(call.query, call.key, call.value);
            }).find("attention_with_weights: key has head size 5"),
            0u);
  EXPECT_EQ(rejection([&] {
              attention_partials(call.query, call.key, call.value, {});
            }).find("attention_partials: key has head size 5"),
            0u);
}

// Every operator that takes an InputView, with valid arguments for the test to replace. T is float or double.
template <class T>
class TypedArguments {
 public:
  using Arguments = std::vector<std::pair<const char*, InputView<4>*>>;
  struct Operator {
    const char* name;
    Arguments arguments;
    std::function<void()> call;
  };

  std::vector<Operator> operators() {
    const Arguments qk{{"query", &query_}, {"key", &key_}}, qkv{{"query", &query_}, {"key", &key_}, {"value", &value_}};
    Arguments backward = qkv;
    backward.emplace_back("context", &saved_.context);
    backward.emplace_back("grad_context", &saved_.grad_context);
    const AttentionOutputs outputs{.context = output_.view()};
    return {{"attention_forward", qkv, [=, this] { attention_forward(query_, key_, value_, outputs); }},
            {"attention_with_weights",
             {{"key", &key_}, {"value", &value_}},
             [this] { attention_with_weights<T>(std::as_const(numbers_).view(), key_, value_); }},
            {"attention_with_statistics", qkv,
             [=, this] { attention_with_statistics(query_, key_, value_, outputs, {.entropy = rows_.view()}); }},
            {"attention_partials", qkv,
             [this] {
               attention_partials(query_, key_, value_,
                                  {.accumulator = {output_.view().data, {1, 1, 1, kRows, kDepth}},
                                   .row_max = {rows_.view().data, {1, 1, 1, kRows}},
                                   .row_sum = {sums_.view().data, {1, 1, 1, kRows}}});
             }},
            {"attention_weights", qk,
             [this] { attention_weights(query_, key_, {.kind = WeightsKind::scores}, weights_.view()); }},
            {"attention_columns", qk,
             [this] {
               attention_columns(query_, key_, {.row_max = saved_.row_max, .row_sum = saved_.row_sum},
                                 {.key_mass = rows_.view()});
             }},
            {"attention_backward", backward,
             [this] {
               attention_backward(query_, key_, value_, saved_, AttentionGradients{.grad_query = output_.view()});
             }},
            {"attention_decode", {{"query", &query_}}, [=, this] { attention_decode(query_, cache_, outputs); }}};
  }
  // True if no output has been written.
  bool untouched() const {
    return std::ranges::all_of(output_.values(), [](T x) { return x == 0; }) &&
           std::ranges::all_of(rows_.values(), [](T x) { return x == 0; }) &&
           std::ranges::all_of(weights_.values(), [](T x) { return x == 0; });
  }
  void clear_outputs() {
    for (auto* output : {&output_, &weights_}) output->fill([] { return 0; });
    rows_.fill([] { return 0; });
  }
  TypedArguments() {
    numbers_.fill([] { return 1; });
    maxima_.fill([] { return 8; });
    clear_outputs();
    query_ = key_ = value_ = saved_.context = saved_.grad_context = std::as_const(numbers_).view();
    saved_.fingerprint = kUncheckedFingerprint;
    saved_.row_max = saved_.row_sum = std::as_const(maxima_).view();
  }

 private:
  static constexpr Index kRows = 4, kDepth = 8;
  Array<T, 4> numbers_{{1, 1, kRows, kDepth}}, output_{{1, 1, kRows, kDepth}}, weights_{{1, 1, kRows, kRows}};
  Array<T, 3> maxima_{{1, 1, kRows}}, rows_{{1, 1, kRows}}, sums_{{1, 1, kRows}};
  InputView<4> query_, key_, value_;
  AttentionForwardState saved_;
  KvCache<T> cache_{{.head_size = kDepth, .value_head_size = kDepth, .capacity = 64}};
};

template <class T>
void expect_wrong_types_are_rejected(std::initializer_list<std::pair<int, const char*>> wrong, const char* expected) {
  TypedArguments<T> arguments;
  for (const auto& [name, inputs, call] : arguments.operators()) {
    for (const auto& [argument, view] : inputs) {
      const InputView<4> good = *view;
      for (const auto& [number, type] : wrong) {
        // An address that must not be read.
        *view = {reinterpret_cast<const void*>(64), static_cast<ElementType>(number), good.shape, good.strides};
        // The type of query determines the compute type: with another valid type, the other arguments become invalid.
        const bool decides = std::string(argument) == "query" && std::string(name) != "attention_decode";
        if (decides && (number < 3 || number == 6 || number == 7) && number > 0) {
          const std::string is = std::string("key has type ") + (std::is_same_v<T, double> ? "float64" : "float32");
          EXPECT_EQ(rejection(call), std::string(name) + ": " + is + "; expected " +
                                         (std::is_same_v<T, double> ? "float32, bfloat16 or float16" : "float64"));
          continue;
        }
        EXPECT_EQ(rejection(call), std::string(name) + ": " + argument + " has type " + type + "; expected " +
                                       (decides ? "float32, bfloat16 or float16" : expected));
      }
      *view = good;
    }
    EXPECT_TRUE(arguments.untouched()) << name;
    EXPECT_EQ(rejection(call), "accepted") << name;
    arguments.clear_outputs();
  }
}

TEST(Rejections, ElementTypesNotSupportedByAnOperator) {
  expect_wrong_types_are_rejected<float>({{2, "float64"}, {4, "int32"}, {8, "int8"}, {17, "17"}, {-1, "-1"}},
                                         "float32, bfloat16 or float16");
  expect_wrong_types_are_rejected<double>({{1, "float32"}, {6, "bfloat16"}, {7, "float16"}, {0, "0"}, {17, "17"}},
                                          "float64");
}

TEST(Rejections, ElementTypesNotSupportedByAnInt8Cache) {
  KvCache<std::int8_t> cache({.head_size = 8, .value_head_size = 8, .capacity = 64});
  std::vector<float> numbers(32, 1);
  const InputView<3> good(numbers.data(), {1, 4, 8});
  const auto wrong = [&](int type) {
    return InputView<3>(reinterpret_cast<const void*>(64), static_cast<ElementType>(type), good.shape, good.strides);
  };
  const auto four_axes = [](const InputView<3>& v) {
    return InputView<4>(v.data, v.type, {1, 1, 4, 8}, {0, v.strides[0], v.strides[1], v.strides[2]});
  };
  for (const auto& [number, type] : {std::pair{2, "float64"}, {17, "17"}}) {
    const std::string rest = std::string(" has type ") + type + "; expected float32, bfloat16 or float16";
    EXPECT_EQ(rejection([&] { cache.append(0, wrong(number), good); }), "KvCache::append: key" + rest);
    EXPECT_EQ(rejection([&] { cache.append(0, good, wrong(number)); }), "KvCache::append: value" + rest);
    EXPECT_EQ(rejection([&] { cache.append(four_axes(wrong(number)), four_axes(good)); }),
              "KvCache::append: key" + rest);
    EXPECT_EQ(rejection([&] { cache.append(four_axes(good), four_axes(wrong(number))); }),
              "KvCache::append: value" + rest);
  }
  EXPECT_EQ(cache.length(0), 0);
}

TEST(Rejections, WeightsBeyondAvailableMemoryAreRejectedWithTheirSize) {
  // A million heads that all read the same elements: 4 · 2^20 · 2^20 · 2^20 bytes of weights.
  std::vector<float> memory(16, 1);
  const Index million = Index{1} << 20;
  const TensorView<const float, 4> all(memory.data(), {1, million, million, 4}, {0, 0, 0, 1});
  const std::string message = rejection([&] { attention_with_weights<float>(all, all, all); });
  EXPECT_EQ(message.find("attention_with_weights: weights of shape (1, 1048576, 1048576, 1048576) need "
                         "4611686018427387904 bytes; "),
            0u)
      << message;
  EXPECT_NE(message.find(" are available; expected fewer rows"), std::string::npos) << message;
  const TensorView<const float, 4> more(memory.data(), {16, million, million, 4}, {0, 0, 0, 1});
  EXPECT_NE(rejection([&] { attention_with_weights<float>(more, more, more); }).find(" need more than 2^63 bytes; "),
            std::string::npos);
}

}  // namespace
}  // namespace regard::attention_rejections_test
