// SPDX-License-Identifier: Apache-2.0
//
// The multi-head block compared with plain loops in double, in every layout, and its rejections before anything is
// written.
#include "regard/multi_head.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/table.h"
#include "support/counting_memory.h"
#include "support/rejection.h"

namespace regard::multi_head_test {
namespace {

template <class T, int Rank>
Tensor<T, Rank> random_tensor(const std::array<Index, static_cast<std::size_t>(Rank)>& shape, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Tensor<T, Rank> tensor(shape);
  for (Index i = 0; i < tensor.size(); ++i) tensor.data()[i] = static_cast<T>(normal(generator));
  return tensor;
}

struct Sizes {
  Index batch, length, keys, width, key_width, heads, key_heads, depth, value_depth, output_width;
};

// One random block: inputs, parameters with biases, and the results of plain loops in double.
template <class T>
struct Block {
  explicit Block(const Sizes& sizes, bool causal)
      : s(sizes),
        input(random_tensor<T, 3>({s.batch, s.length, s.width}, 1)),
        memory(random_tensor<T, 3>({s.batch, s.keys, s.key_width}, 2)),
        w_query(random_tensor<T, 2>({s.width, s.heads * s.depth}, 3)),
        w_key(random_tensor<T, 2>({s.key_width, s.key_heads * s.depth}, 4)),
        w_value(random_tensor<T, 2>({s.key_width, s.key_heads * s.value_depth}, 5)),
        w_output(random_tensor<T, 2>({s.heads * s.value_depth, s.output_width}, 6)),
        b_query(random_tensor<T, 1>({s.heads * s.depth}, 7)),
        b_key(random_tensor<T, 1>({s.key_heads * s.depth}, 8)),
        b_value(random_tensor<T, 1>({s.key_heads * s.value_depth}, 9)),
        b_output(random_tensor<T, 1>({s.output_width}, 10)) {
    const auto project = [](const Tensor<T, 3>& x, const Tensor<T, 2>& w, const Tensor<T, 1>& b, Index heads,
                            Index depth) {
      Tensor<double, 4> result({x.shape()[0], heads, x.shape()[1], depth});
      for (Index n = 0; n < x.shape()[0]; ++n) {
        for (Index h = 0; h < heads; ++h) {
          for (Index i = 0; i < x.shape()[1]; ++i) {
            for (Index d = 0; d < depth; ++d) {
              double sum = static_cast<double>(b(h * depth + d));
              for (Index e = 0; e < x.shape()[2]; ++e) {
                sum += static_cast<double>(x(n, i, e)) * static_cast<double>(w(e, h * depth + d));
              }
              result(n, h, i, d) = sum;
            }
          }
        }
      }
      return result;
    };
    query = project(input, w_query, b_query, s.heads, s.depth);
    key = project(memory, w_key, b_key, s.key_heads, s.depth);
    value = project(memory, w_value, b_value, s.key_heads, s.value_depth);
    row_max = Tensor<double, 3>({s.batch, s.heads, s.length});
    row_sum = Tensor<double, 3>({s.batch, s.heads, s.length});
    weights = Tensor<double, 4>({s.batch, s.heads, s.length, s.keys});
    context = Tensor<double, 4>({s.batch, s.heads, s.length, s.value_depth});
    output = Tensor<double, 3>({s.batch, s.length, s.output_width});
    for (Index n = 0; n < s.batch; ++n) {
      for (Index i = 0; i < s.length; ++i) {
        for (Index o = 0; o < s.output_width; ++o) output(n, i, o) = static_cast<double>(b_output(o));
        for (Index h = 0; h < s.heads; ++h) attend(n, h, i, causal);
      }
    }
  }

  void attend(Index n, Index h, Index i, bool causal) {
    const Index kv = h / (s.heads / s.key_heads);
    const Index visible = causal ? std::min(s.keys, i + 1) : s.keys;
    std::vector<double> scores(static_cast<std::size_t>(visible));
    double top = -std::numeric_limits<double>::infinity();
    for (Index j = 0; j < visible; ++j) {
      double dot = 0;
      for (Index d = 0; d < s.depth; ++d) dot += query(n, h, i, d) * key(n, kv, j, d);
      scores[static_cast<std::size_t>(j)] = dot / std::sqrt(static_cast<double>(s.depth));
      top = std::max(top, scores[static_cast<std::size_t>(j)]);
    }
    double sum = 0;
    for (double score : scores) sum += std::exp(score - top);
    row_max(n, h, i) = top;
    row_sum(n, h, i) = sum;
    for (Index j = 0; j < visible; ++j) {
      weights(n, h, i, j) = std::exp(scores[static_cast<std::size_t>(j)] - top) / sum;
      for (Index c = 0; c < s.value_depth; ++c) context(n, h, i, c) += weights(n, h, i, j) * value(n, kv, j, c);
    }
    for (Index o = 0; o < s.output_width; ++o) {
      for (Index c = 0; c < s.value_depth; ++c) {
        output(n, i, o) += context(n, h, i, c) * static_cast<double>(w_output(h * s.value_depth + c, o));
      }
    }
  }

  MultiHeadParameters<T> parameters() const {
    MultiHeadParameters<T> p;
    p.num_heads = s.heads;
    p.num_kv_heads = s.key_heads;
    p.w_query = w_query.view();
    p.w_key = w_key.view();
    p.w_value = w_value.view();
    p.w_output = w_output.view();
    p.b_query = b_query.view();
    p.b_key = b_key.view();
    p.b_value = b_value.view();
    p.b_output = b_output.view();
    return p;
  }

  Sizes s;
  Tensor<T, 3> input, memory;
  Tensor<T, 2> w_query, w_key, w_value, w_output;
  Tensor<T, 1> b_query, b_key, b_value, b_output;
  Tensor<double, 4> query, key, value, context, weights;
  Tensor<double, 3> row_max, row_sum, output;
};

// Scores have the magnitude of E, and the error of a weight is that of its score.
template <class T>
double tolerance(const Sizes& s) {
  return 64 * static_cast<double>(std::numeric_limits<T>::epsilon()) * static_cast<double>(s.width + s.key_width) *
         std::sqrt(static_cast<double>(s.heads * s.value_depth));
}

template <class T, int Rank>
void expect_near(const Tensor<T, Rank>& actual, const Tensor<double, Rank>& expected, double tolerance,
                 const char* what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  for (Index i = 0; i < actual.size(); ++i) {
    const double bound = tolerance * (1 + std::abs(expected.data()[i]));
    ASSERT_NEAR(static_cast<double>(actual.data()[i]), expected.data()[i], bound) << what << " element " << i;
  }
}

const Sizes kShapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 1},        {2, 5, 7, 6, 4, 6, 2, 3, 5, 9},    {3, 4, 4, 8, 8, 2, 2, 4, 4, 8},
    {1, 65, 130, 33, 17, 4, 1, 9, 33, 31}, {2, 1, 3, 16, 16, 4, 4, 1, 2, 16},
};

template <class T>
class MultiHead : public testing::Test {
 protected:
  void TearDown() override { kernels::set_active(nullptr); }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(MultiHead, Types);

TYPED_TEST(MultiHead, MatchesPlainLoopsWhateverOutputsAreRequested) {
  using T = TypeParam;
  for (const Sizes& s : kShapes) {
    for (bool causal : {false, true}) {
      const Block<T> block(s, causal);
      AttentionOptions options;
      options.causal = causal;
      options.query_offset = QueryAlignment::top_left;
      for (int isa = 0; isa < kernels::num_available(); ++isa) {
        kernels::set_active(&kernels::available(isa));
        Tensor<T, 3> alone({s.batch, s.length, s.output_width});
        MultiHeadOutputs<T> outputs;
        outputs.output = alone.view();
        multi_head_attention_forward<T>(block.input.view(), block.memory.view(), block.parameters(), outputs, options);
        expect_near<T, 3>(alone, block.output, tolerance<T>(s), "output");

        Tensor<T, 3> output({s.batch, s.length, s.output_width});
        Tensor<T, 4> query({s.batch, s.heads, s.length, s.depth}), key({s.batch, s.key_heads, s.keys, s.depth}),
            value({s.batch, s.key_heads, s.keys, s.value_depth}), context({s.batch, s.heads, s.length, s.value_depth}),
            weights({s.batch, s.heads, s.length, s.keys});
        Tensor<T, 3> row_max({s.batch, s.heads, s.length}), row_sum({s.batch, s.heads, s.length});
        outputs = {output.view(),  query.view(),   key.view(),     value.view(),
                   context.view(), row_max.view(), row_sum.view(), weights.view()};
        multi_head_attention_forward<T>(block.input.view(), block.memory.view(), block.parameters(), outputs, options);
        expect_near<T, 4>(query, block.query, tolerance<T>(s), "query");
        expect_near<T, 4>(key, block.key, tolerance<T>(s), "key");
        expect_near<T, 4>(value, block.value, tolerance<T>(s), "value");
        expect_near<T, 4>(context, block.context, tolerance<T>(s), "context");
        expect_near<T, 4>(weights, block.weights, tolerance<T>(s), "weights");
        expect_near<T, 3>(row_max, block.row_max, tolerance<T>(s), "row_max");
        expect_near<T, 3>(row_sum, block.row_sum, tolerance<T>(s), "row_sum");
        for (Index i = 0; i < output.size(); ++i) ASSERT_EQ(output.data()[i], alone.data()[i]) << i;
      }
    }
  }
}

// The same values in layouts that a matrix of rows can or cannot describe: all give the same bits.
TYPED_TEST(MultiHead, LayoutsDoNotChangeBits) {
  using T = TypeParam;
  const Sizes s{2, 5, 7, 6, 4, 6, 2, 3, 5, 9};
  const Block<T> block(s, false);
  Tensor<T, 3> plain({s.batch, s.length, s.output_width});
  MultiHeadOutputs<T> outputs;
  outputs.output = plain.view();
  multi_head_attention_forward<T>(block.input.view(), block.memory.view(), block.parameters(), outputs);

  // (B, L, E) stored as (L, E, B); W stored as its transpose; every output reversed or in another order of axes.
  std::vector<T> input(static_cast<std::size_t>(block.input.size()));
  const TensorView<T, 3> input_view(input.data(), {s.batch, s.length, s.width}, {1, s.width * s.batch, s.batch});
  for (Index b = 0; b < s.batch; ++b) {
    for (Index i = 0; i < s.length; ++i) {
      for (Index e = 0; e < s.width; ++e) input_view(b, i, e) = block.input(b, i, e);
    }
  }
  const Index columns = s.heads * s.depth;
  std::vector<T> w_query(static_cast<std::size_t>(block.w_query.size()));
  const TensorView<T, 2> w_view(w_query.data(), {s.width, columns}, {1, s.width});
  for (Index e = 0; e < s.width; ++e) {
    for (Index c = 0; c < columns; ++c) w_view(e, c) = block.w_query(e, c);
  }
  MultiHeadParameters<T> parameters = block.parameters();
  parameters.w_query = w_view;

  std::vector<T> output(static_cast<std::size_t>(plain.size()));
  outputs.output = {output.data() + output.size() - 1,
                    {s.batch, s.length, s.output_width},
                    {-s.length * s.output_width, -s.output_width, -1}};
  Tensor<T, 4> query({s.length, s.depth, s.batch, s.heads}), context({s.heads, s.batch, s.length, s.value_depth});
  outputs.query = {query.data(),
                   {s.batch, s.heads, s.length, s.depth},
                   {s.heads, 1, s.depth * s.batch * s.heads, s.batch * s.heads}};
  outputs.context = {context.data(),
                     {s.batch, s.heads, s.length, s.value_depth},
                     {s.length * s.value_depth, s.batch * s.length * s.value_depth, s.value_depth, 1}};
  multi_head_attention_forward<T>(input_view, block.memory.view(), parameters, outputs);
  for (Index b = 0; b < s.batch; ++b) {
    for (Index i = 0; i < s.length; ++i) {
      for (Index o = 0; o < s.output_width; ++o) ASSERT_EQ(outputs.output(b, i, o), plain(b, i, o));
      for (Index h = 0; h < s.heads; ++h) {
        for (Index d = 0; d < s.depth; ++d) {
          ASSERT_NEAR(static_cast<double>(outputs.query(b, h, i, d)), block.query(b, h, i, d), tolerance<T>(s));
        }
        for (Index c = 0; c < s.value_depth; ++c) {
          ASSERT_NEAR(static_cast<double>(outputs.context(b, h, i, c)), block.context(b, h, i, c), tolerance<T>(s));
        }
      }
    }
  }

  // A joined context requested by the caller is used without a copy.
  std::vector<T> joined(static_cast<std::size_t>(s.batch * s.length * s.heads * s.value_depth));
  const Index row = s.heads * s.value_depth;
  outputs.context.data = joined.data();
  outputs.context.strides = {s.length * row, s.value_depth, row, 1};
  Tensor<T, 3> again({s.batch, s.length, s.output_width});
  outputs.output = again.view();
  multi_head_attention_forward<T>(input_view, block.memory.view(), parameters, outputs);
  for (Index i = 0; i < again.size(); ++i) ASSERT_EQ(again.data()[i], plain.data()[i]);

  // Without an output projection the joined context is the output.
  MultiHeadOutputs<T> joined_only;
  Tensor<T, 3> direct({s.batch, s.length, row});
  Tensor<T, 4> copied({s.batch, s.heads, s.length, s.value_depth});
  joined_only.output = direct.view();
  joined_only.context = copied.view();
  parameters.w_output = {};
  parameters.b_output = {};
  multi_head_attention_forward<T>(input_view, block.memory.view(), parameters, joined_only);
  for (Index i = 0; i < direct.size(); ++i) ASSERT_EQ(direct.data()[i], joined[static_cast<std::size_t>(i)]);
  for (Index b = 0; b < s.batch; ++b) {
    for (Index h = 0; h < s.heads; ++h) {
      for (Index i = 0; i < s.length; ++i) {
        for (Index c = 0; c < s.value_depth; ++c) {
          ASSERT_EQ(copied(b, h, i, c), direct(b, i, h * s.value_depth + c));
        }
      }
    }
  }
}

TYPED_TEST(MultiHead, AbsentMemoryIsSelfAttention) {
  using T = TypeParam;
  const Sizes s{3, 4, 4, 8, 8, 2, 2, 4, 4, 8};
  const Block<T> block(s, true);
  MultiHeadParameters<T> parameters = block.parameters();
  parameters.num_kv_heads = 0;
  AttentionOptions options;
  options.causal = true;
  Tensor<T, 3> implied({3, 4, 8}), named({3, 4, 8});
  MultiHeadOutputs<T> outputs;
  outputs.output = implied.view();
  multi_head_attention_forward<T>(block.input.view(), {}, parameters, outputs, options);
  outputs.output = named.view();
  multi_head_attention_forward<T>(block.input.view(), block.input.view(), parameters, outputs, options);
  for (Index i = 0; i < named.size(); ++i) ASSERT_EQ(implied.data()[i], named.data()[i]);
  EXPECT_NE(named(0, 0, 0), T(0));
}

TEST(MultiHeadWorkspace, HoldsUnrequestedOutputsAndIsReturned) {
  const Sizes s{2, 5, 7, 6, 4, 6, 2, 3, 5, 9};
  const Block<float> block(s, false);
  CountingMemory meter;
  Runtime runtime;
  runtime.workspace = &meter;
  Tensor<float, 3> output({s.batch, s.length, s.output_width});
  MultiHeadOutputs<float> outputs;
  outputs.output = output.view();
  multi_head_attention_forward<float>(block.input.view(), block.memory.view(), block.parameters(), outputs, {},
                                      runtime);
  const auto bytes =
      static_cast<std::size_t>(block.query.size() + block.key.size() + block.value.size() + block.context.size()) *
      sizeof(float);
  EXPECT_GE(meter.largest, bytes);
  EXPECT_EQ(meter.in_use, 0u);
  for (std::size_t limit : {std::size_t{0}, bytes, meter.largest - 1}) {
    meter.reject_above = limit;
    EXPECT_THROW(multi_head_attention_forward<float>(block.input.view(), block.memory.view(), block.parameters(),
                                                     outputs, {}, runtime),
                 std::bad_alloc);
    EXPECT_EQ(meter.in_use, 0u);
  }
}

TEST(MultiHeadStop, CancelsTheCall) {
  const Block<float> block({1, 4, 4, 8, 8, 2, 2, 4, 4, 8}, false);
  std::stop_source source;
  source.request_stop();
  Runtime runtime;
  runtime.stop = source.get_token();
  Tensor<float, 3> output({1, 4, 8});
  MultiHeadOutputs<float> outputs;
  outputs.output = output.view();
  EXPECT_THROW(multi_head_attention_forward<float>(block.input.view(), {}, block.parameters(), outputs, {}, runtime),
               Cancelled);
}

TEST(MultiHeadEmpty, ExtentsOfZeroSucceed) {
  // No batch entries; no queries.
  for (const Sizes& s : {Sizes{0, 3, 4, 5, 5, 2, 1, 3, 3, 4}, Sizes{2, 0, 4, 5, 5, 2, 1, 3, 3, 4}}) {
    const Block<float> block(s, false);
    Tensor<float, 3> output({s.batch, s.length, s.output_width});
    MultiHeadOutputs<float> outputs;
    outputs.output = output.view();
    EXPECT_NO_THROW(
        multi_head_attention_forward<float>(block.input.view(), block.memory.view(), block.parameters(), outputs));
  }
  // No keys: the context is +0, so the output is its bias.
  const Sizes no_keys{2, 3, 0, 5, 5, 2, 1, 3, 3, 4};
  const Block<float> block(no_keys, false);
  Tensor<float, 3> output({2, 3, 4});
  MultiHeadOutputs<float> outputs;
  outputs.output = output.view();
  multi_head_attention_forward<float>(block.input.view(), block.memory.view(), block.parameters(), outputs);
  for (Index i = 0; i < output.size(); ++i) EXPECT_EQ(output.data()[i], block.b_output(i % 4));

  // No heads: likewise.
  MultiHeadParameters<float> none;
  none.num_heads = 0;
  none.w_query = none.w_key = none.w_value = {nullptr, {5, 0}};
  none.w_output = {nullptr, {0, 4}};
  none.b_output = block.b_output.view();
  Tensor<float, 3> without({2, 3, 4});
  outputs.output = without.view();
  multi_head_attention_forward<float>(block.input.view(), {}, none, outputs);
  for (Index i = 0; i < without.size(); ++i) EXPECT_EQ(without.data()[i], block.b_output(i % 4));
}

// Each mistake: its message, and outputs that are unchanged.
TEST(MultiHeadErrors, AreReportedBeforeAnythingIsWritten) {
  const Sizes s{2, 5, 7, 6, 4, 6, 2, 3, 5, 9};
  const Block<float> block(s, false);
  Tensor<float, 3> output({s.batch, s.length, s.output_width});
  Tensor<float, 4> query({s.batch, s.heads, s.length, s.depth});
  const auto expect_rejected = [&](const std::string& text, auto change) {
    MultiHeadParameters<float> parameters = block.parameters();
    AttentionOptions options;
    TensorView<const float, 3> input = block.input.view(), memory = block.memory.view();
    MultiHeadOutputs<float> outputs;
    outputs.output = output.view();
    outputs.query = query.view();
    change(input, memory, parameters, outputs, options);
    EXPECT_EQ(rejection([&] { multi_head_attention_forward<float>(input, memory, parameters, outputs, options); }),
              "multi_head_attention_forward: " + text);
    for (Index i = 0; i < query.size(); ++i) ASSERT_EQ(query.data()[i], 0.0f) << text;
    for (Index i = 0; i < output.size(); ++i) ASSERT_EQ(output.data()[i], 0.0f) << text;
  };
  expect_rejected("memory has batch 1 in shape (1, 7, 4); expected 2 as in input (2, 5, 6)",
                  [](auto&, auto& memory, auto&, auto&, auto&) { memory.shape[0] = 1; });
  expect_rejected("input has shape (2, -5, 6); extents must not be negative",
                  [](auto& input, auto&, auto&, auto&, auto&) { input.shape[1] = -5; });
  expect_rejected("w_query has shape (6, 18); expected its columns to be a positive multiple of the 4 heads",
                  [](auto&, auto&, auto& parameters, auto&, auto&) { parameters.num_heads = 4; });
  expect_rejected("num_heads is -6 and num_kv_heads is 2; expected 0 or more",
                  [](auto&, auto&, auto& parameters, auto&, auto&) { parameters.num_heads = -6; });
  expect_rejected("w_query has shape (5, 18); expected (6, 18)",
                  [](auto&, auto&, auto& parameters, auto&, auto&) { parameters.w_query.shape[0] = 5; });
  expect_rejected("w_key has shape (4, 5); expected (4, 6)",
                  [](auto&, auto&, auto& parameters, auto&, auto&) { parameters.w_key.shape[1] = 5; });
  expect_rejected("w_value has shape (3, 10); expected (4, 10)",
                  [](auto&, auto&, auto& parameters, auto&, auto&) { parameters.w_value.shape[0] = 3; });
  expect_rejected("w_value has shape (4, 9); expected its columns to be a positive multiple of the 2 heads",
                  [](auto&, auto&, auto& parameters, auto&, auto&) { parameters.w_value.shape[1] = 9; });
  expect_rejected("w_output has shape (29, 9); expected (30, 9)",
                  [](auto&, auto&, auto& parameters, auto&, auto&) { parameters.w_output.shape[0] = 29; });
  expect_rejected("b_output is given without w_output; expected both or neither",
                  [](auto&, auto&, auto& parameters, auto&, auto&) { parameters.w_output = {}; });
  expect_rejected("b_query has shape (17); expected (18)",
                  [](auto&, auto&, auto& parameters, auto&, auto&) { parameters.b_query.shape[0] = 17; });
  expect_rejected("b_output has shape (8); expected (9)",
                  [](auto&, auto&, auto& parameters, auto&, auto&) { parameters.b_output.shape[0] = 8; });
  expect_rejected("output has shape (0, 0, 0); expected (2, 5, 9)",
                  [](auto&, auto&, auto&, auto& outputs, auto&) { outputs.output = {}; });
  expect_rejected("query has shape (2, 5, 6, 3); expected (2, 6, 5, 3)", [](auto&, auto&, auto&, auto& outputs, auto&) {
    std::swap(outputs.query.shape[1], outputs.query.shape[2]);
  });
  expect_rejected("w_key is null; expected memory for shape (4, 6)",
                  [](auto&, auto&, auto& parameters, auto&, auto&) { parameters.w_key.data = nullptr; });
  expect_rejected("query overlaps w_output; expected separate memory",
                  [&](auto&, auto&, auto& parameters, auto&, auto&) { parameters.w_output.data = query.data(); });
  // Mistakes that only attention itself would detect, after the projections.
  expect_rejected(
      "causal needs an explicit query_offset when query and key lengths differ (5 and 7); "
      "expected top_left, bottom_right or numbers",
      [](auto&, auto&, auto&, auto&, auto& options) { options.causal = true; });
  const Index lengths[] = {7, 8};
  expect_rejected("key_lengths[1] is 8; expected 0 to 7",
                  [&](auto&, auto&, auto&, auto&, auto& options) { options.key_lengths = lengths; });
}

}  // namespace
}  // namespace regard::multi_head_test
