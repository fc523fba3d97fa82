// SPDX-License-Identifier: Apache-2.0
//
// The encoder compared with transformers on a small BERT with random parameters, and the views of its trace compared
// with the formulas in double.
// Read next: encoder_reference.h, encoder_load_test.cpp.
#include "regard/model/encoder.h"
#include "support/data_path.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>
#include <stop_token>

#include "support/encoder_reference.h"
#include "support/rejection.h"

namespace regard::encoder_test {
namespace {

const std::string kData = data_path("encoder");
constexpr int kNumCases = 5;

const Encoder& tiny() {
  static const Encoder encoder = load_encoder(kData + "/tiny");
  return encoder;
}

const EncoderReference& reference() {
  static const EncoderReference numbers(kData + "/tiny_reference.safetensors");
  return numbers;
}

struct Case {
  std::vector<Index> ids;
  EncoderOptions options;
};
Case case_of(int number) {
  const std::string name = std::to_string(number);
  return {reference().indices(name + ".ids"), {.hidden_keys = reference().indices(name + ".hidden_keys")}};
}
ModelTrace trace_of(int number, const Runtime& runtime = {}) {
  const Case c = case_of(number);
  return encode(tiny(), c.ids, c.options, runtime);
}

TEST(Encoder, HiddenStatesMatchTransformers) {
  for (int number = 0; number < kNumCases; ++number) {
    const ModelTrace trace = trace_of(number);
    std::vector<float> states;
    for (std::size_t n = 0; n <= trace.layers.size(); ++n) {
      const auto rows = elements(states_after(trace, n));
      states.insert(states.end(), rows.begin(), rows.end());
    }
    EXPECT_TRUE(near_reference(states, reference().numbers(std::to_string(number) + ".states"))) << number;
  }
}

TEST(Encoder, IntermediateValuesMatchTransformers) {
  int compared = 0;
  for (int number = 0; number < kNumCases; ++number) {
    const std::string name = std::to_string(number);
    if (!reference().has(name + ".weights")) continue;
    ++compared;
    const ModelTrace trace = trace_of(number);
    std::vector<float> weights;
    for (std::size_t n = 0; n < trace.layers.size(); ++n) {
      const Tensor<float, 3> layer_weights = trace_weights(trace, static_cast<Index>(n));
      weights.insert(weights.end(), elements(layer_weights).begin(), elements(layer_weights).end());

      const LayerTrace& t = trace.layers[n];
      const auto expected = [&](const char* what) {
        return reference().numbers(name + "." + std::to_string(n) + "." + what);
      };
      EXPECT_TRUE(near_reference(joined(t.query), expected("query")));
      EXPECT_TRUE(near_reference(joined(t.key), expected("key")));
      EXPECT_TRUE(near_reference(joined(t.value), expected("value")));
      EXPECT_TRUE(near_reference(elements(t.attention_output), expected("attention_output")));
      EXPECT_TRUE(near_reference(elements(t.attention_normed), expected("attention_normed")));
      EXPECT_TRUE(near_reference(elements(t.feed_forward), expected("feed_forward")));
      EXPECT_EQ(std::vector<float>(elements(t.input).begin(), elements(t.input).end()),
                std::vector<float>(elements(states_after(trace, n)).begin(), elements(states_after(trace, n)).end()));
    }
    EXPECT_TRUE(near_reference(weights, reference().numbers(name + ".weights"))) << number;
  }
  EXPECT_EQ(compared, 4);
}

TEST(Encoder, KeepsTheRowsOfTheEmbeddingTables) {
  const Case c = case_of(0);
  const ModelTrace trace = trace_of(0);
  EXPECT_EQ(trace.ids, c.ids);
  for (Index i = 0; i < 9; ++i) {
    for (Index e = 0; e < tiny().config.width; ++e) {
      EXPECT_EQ(trace.word(i, e), tiny().word_table(c.ids[static_cast<std::size_t>(i)], e));
      EXPECT_EQ(trace.position(i, e), tiny().position_table(i, e));
      EXPECT_EQ(trace.type(i, e), tiny().type_table(0, e));
    }
  }
}

TEST(Encoder, ContextIsWeightsTimesValue) {
  const ModelTrace trace = trace_of(1);
  const LayerTrace& t = trace.layers[2];
  const Tensor<float, 3> weights = trace_weights(trace, 2);
  const auto [heads, length, head_size] = t.context.shape();
  for (Index h = 0; h < heads; ++h) {
    for (Index i = 0; i < length; ++i) {
      for (Index d = 0; d < head_size; ++d) {
        double sum = 0;
        for (Index j = 0; j < length; ++j) sum += static_cast<double>(weights(h, i, j) * t.value(h, j, d));
        EXPECT_NEAR(t.context(h, i, d), sum, kReferenceBound);
      }
    }
  }
}

TEST(Encoder, HiddenKeysAreMaskedInEveryLayer) {
  const ModelTrace trace = trace_of(1);
  ASSERT_EQ(trace.hidden_keys, (std::vector<Index>{0, 5, 16}));
  for (Index layer = 0; layer < 3; ++layer) {
    const Tensor<float, 3> weights = trace_weights(trace, layer);
    const Tensor<float, 3> scores = trace_weights(trace, layer, WeightsKind::scores);
    for (Index h = 0; h < 4; ++h) {
      for (Index i = 0; i < 17; ++i) {
        double sum = 0;
        for (Index j = 0; j < 17; ++j) {
          const bool hidden = j == 0 || j == 5 || j == 16;
          EXPECT_EQ(weights(h, i, j) == 0, hidden);
          EXPECT_EQ(scores(h, i, j) == -std::numeric_limits<float>::infinity(), hidden);
          sum += static_cast<double>(weights(h, i, j));
        }
        EXPECT_NEAR(sum, 1, 1e-6);
      }
    }
  }
}

TEST(Encoder, OrderOfHiddenKeysDoesNotMatter) {
  const Case c = case_of(1);
  const ModelTrace again = encode(tiny(), c.ids, {.hidden_keys = {16, 0, 5, 0}});
  EXPECT_EQ(joined(again.layers[2].context), joined(trace_of(1).layers[2].context));
}

TEST(Encoder, LastLayerOfSomeRowsHasTheirBits) {
  const Case c = case_of(1);
  const std::vector<Index> wanted{7, 2, 7};
  const ModelTrace all = encode(tiny(), c.ids), some = encode(tiny(), c.ids, {.hidden_keys = {}, .last_rows = wanted});
  for (const auto member :
       {&LayerTrace::attention_output, &LayerTrace::attention_normed, &LayerTrace::feed_forward, &LayerTrace::output}) {
    for (std::size_t n = 0; n < 2; ++n)
      EXPECT_TRUE(std::ranges::equal(elements(some.layers[n].*member), elements(all.layers[n].*member)));
    const Tensor<float, 2>& expected = all.layers[2].*member;
    const Tensor<float, 2>& last = some.layers[2].*member;
    for (Index i = 0; i < last.shape()[0]; ++i) {
      for (Index e = 0; e < last.shape()[1]; ++e) EXPECT_EQ(last(i, e), i == 2 || i == 7 ? expected(i, e) : 0);
    }
  }
  EXPECT_EQ(joined(some.layers[2].context), joined(all.layers[2].context));
}

TEST(Encoder, FullyMaskedRowsHaveZeroContext) {
  const ModelTrace trace = encode(tiny(), std::vector<Index>{3, 4}, {.hidden_keys = {0, 1}});
  for (const LayerTrace& t : trace.layers) {
    for (float x : elements(t.context)) EXPECT_EQ(x, 0);
  }
  for (float x : elements(trace.output())) EXPECT_TRUE(std::isfinite(x));
}

// The error of a chain of n products is at most u · (n + 2) · Σ |products| (regard/linear.h): of 10 for a head, and of
// 40 for the attention output.
TEST(Encoder, HeadsAndBiasSumToTheAttentionOutput) {
  const ModelTrace trace = trace_of(0);
  for (Index layer = 0; layer < 3; ++layer) {
    const LayerTrace& t = trace.layers[static_cast<std::size_t>(layer)];
    const EncoderLayer& of = tiny().layers[static_cast<std::size_t>(layer)];
    std::vector<Tensor<float, 2>> parts;
    for (Index head = 0; head < 4; ++head) parts.push_back(head_output(tiny(), trace, layer, head));
    for (Index i = 0; i < 9; ++i) {
      for (Index e = 0; e < 40; ++e) {
        double sum = static_cast<double>(of.b_output(e));
        double magnitude = std::abs(sum);
        for (const Tensor<float, 2>& part : parts) sum += static_cast<double>(part(i, e));
        for (Index k = 0; k < 40; ++k) {
          magnitude +=
              std::abs(static_cast<double>(t.context(k / 10, i, k % 10)) * static_cast<double>(of.w_output(k, e)));
        }
        EXPECT_NEAR(sum, t.attention_output(i, e), 0x1p-24 * (12 + 42) * magnitude);
      }
    }
  }
}

TEST(Encoder, ContributionIsTheNormOfTheWeightedKeyOutput) {
  const ModelTrace trace = trace_of(1);
  const Index layer = 1;
  const LayerTrace& t = trace.layers[1];
  const Tensor<float, 3> weights = trace_weights(trace, layer);
  const Tensor<double, 2> lengths = value_norms(tiny(), trace, layer);
  ASSERT_EQ(lengths.shape(), (std::array<Index, 2>{4, 17}));
  for (Index head = 0; head < 4; ++head) {
    for (Index query : {0, 6, 16}) {
      const std::vector<double> added = contribution_norms(tiny(), trace, layer, head, query);
      ASSERT_EQ(added.size(), 17u);
      for (Index key = 0; key < 17; ++key) {
        double squares = 0;
        for (Index e = 0; e < 40; ++e) {
          double brought = 0;
          for (Index d = 0; d < 10; ++d) {
            brought += static_cast<double>(weights(head, query, key)) * static_cast<double>(t.value(head, key, d)) *
                       static_cast<double>(tiny().layers[1].w_output(head * 10 + d, e));
          }
          squares += brought * brought;
        }
        const double expected = std::sqrt(squares);
        EXPECT_NEAR(added[static_cast<std::size_t>(key)], expected, 1e-6 * (1 + expected));
        EXPECT_NEAR(static_cast<double>(weights(head, query, key)) * lengths(head, key),
                    added[static_cast<std::size_t>(key)], 1e-12);
      }
    }
  }
}

TEST(Encoder, VectorsAreMeansOfRows) {
  Tensor<float, 2> states({3, 2});
  std::iota(states.data(), states.data() + 6, 1.0f);
  EXPECT_EQ(mean_rows(states, std::array<Index, 2>{0, 2}), (std::vector<float>{3, 4}));
  EXPECT_EQ(mean_rows(states, std::array<Index, 1>{1}), (std::vector<float>{3, 4}));
  EXPECT_EQ(mean_rows(states, {}), (std::vector<float>{0, 0}));

  ModelTrace trace;
  trace.layers.resize(1);
  trace.layers[0].output = states;
  EXPECT_EQ(mean_pooled(trace), (std::vector<float>{3, 4}));
  const std::vector<float> normalized = mean_pooled_normalized(trace);
  EXPECT_FLOAT_EQ(normalized[0], 0.6f);
  EXPECT_FLOAT_EQ(normalized[1], 0.8f);
}

// Every array of the trace, as bits.
std::vector<float> all_numbers(const ModelTrace& trace) {
  std::vector<float> all;
  const auto keep = [&all](const auto& tensor) { all.insert(all.end(), tensor.data(), tensor.data() + tensor.size()); };
  keep(trace.embedded);
  for (std::size_t n = 0; n < trace.layers.size(); ++n) {
    const LayerTrace& t = trace.layers[n];
    for (const auto* tensor : {&t.query, &t.key, &t.value, &t.context}) keep(*tensor);
    for (const auto* tensor :
         {&t.row_max, &t.row_sum, &t.attention_output, &t.attention_normed, &t.feed_forward, &t.output}) {
      keep(*tensor);
    }
    keep(trace_weights(trace, static_cast<Index>(n)));
  }
  return all;
}

TEST(Encoder, ThreadsDoNotChangeBits) {
  for (int number : {1, 3}) {
    const std::vector<float> one = all_numbers(trace_of(number, {.num_threads = 1}));
    const std::vector<float> five = all_numbers(trace_of(number, {.num_threads = 5}));
    const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
    EXPECT_TRUE(std::ranges::equal(one, five, {}, bits, bits));
  }
}

TEST(Encoder, EmptyInputSucceeds) {
  const ModelTrace trace = encode(tiny(), {});
  ASSERT_EQ(trace.layers.size(), 3u);
  EXPECT_EQ(trace.output().shape(), (std::array<Index, 2>{0, 40}));
  EXPECT_EQ(trace.layers[0].query.shape(), (std::array<Index, 3>{4, 0, 10}));
  EXPECT_EQ(trace_weights(trace, 0).shape(), (std::array<Index, 3>{4, 0, 0}));
  EXPECT_EQ(mean_pooled(trace), std::vector<float>(40));
  EXPECT_EQ(mean_pooled_normalized(trace), std::vector<float>(40));
}

TEST(Encoder, RejectsInvalidIds) {
  const std::vector<Index> many(41, 7);
  EXPECT_EQ(rejection([&] { encode(tiny(), many); }), "encode: 41 tokens; this model has 40 positions");
  EXPECT_EQ(rejection([] { encode(tiny(), std::vector<Index>{1, 60}); }),
            "encode: token 1 has id 60; expected 0 to 59");
  EXPECT_EQ(rejection([] { encode(tiny(), std::vector<Index>{-1}); }), "encode: token 0 has id -1; expected 0 to 59");
  EXPECT_EQ(rejection([] { encode(tiny(), std::vector<Index>{1, 2}, {.hidden_keys = {2}}); }),
            "encode: hidden key 2 does not exist; the text has 2 tokens, numbered from 0");
  EXPECT_EQ(rejection([] { encode(tiny(), {}, {.hidden_keys = {0}}); }),
            "encode: hidden key 0 does not exist; the text has 0 tokens, numbered from 0");
  EXPECT_EQ(rejection([] { encode(tiny(), std::vector<Index>{1}, {.hidden_keys = {-1}}); }),
            "encode: hidden key -1 does not exist; the text has 1 tokens, numbered from 0");
  EXPECT_EQ(rejection([] { encode(tiny(), std::vector<Index>{1, 2}, {.hidden_keys = {}, .last_rows = {2}}); }),
            "encode: row 2 does not exist; the text has 2 tokens, numbered from 0");
}

TEST(Encoder, RejectsIndicesOutsideTheTrace) {
  const ModelTrace trace = trace_of(0);
  EXPECT_EQ(rejection([&] { trace_weights(trace, 3); }),
            "trace_weights: layer 3 does not exist; there are 3, numbered from 0");
  EXPECT_EQ(rejection([&] { head_output(tiny(), trace, 0, 4); }),
            "head_output: head 4 does not exist; there are 4, numbered from 0");
  EXPECT_EQ(rejection([&] { contribution_norms(tiny(), trace, 0, 0, 9); }),
            "contribution_norms: query 9 does not exist; there are 9, numbered from 0");
  EXPECT_EQ(rejection([&] { value_norms(tiny(), trace, -1); }),
            "value_norms: layer -1 does not exist; there are 3, numbered from 0");
  EXPECT_EQ(rejection([&] { mean_rows(trace.embedded, std::array<Index, 1>{9}); }),
            "mean_rows: row 9 does not exist; there are 9, numbered from 0");
  ModelTrace touched = trace;
  touched.hidden_keys = {9};
  EXPECT_EQ(rejection([&] { trace_weights(touched, 0); }),
            "trace_weights: hidden key 9 does not exist; there are 9, numbered from 0");
  Encoder other = tiny();
  other.config.num_heads = 8;
  EXPECT_EQ(rejection([&] { head_output(other, trace, 0, 0); }), "head_output: the trace comes from a different model");
}

TEST(Encoder, StopsOnRequest) {
  std::stop_source source;
  source.request_stop();
  EXPECT_THROW(trace_of(0, {.stop = source.get_token()}), Cancelled);
}

}  // namespace
}  // namespace regard::encoder_test
