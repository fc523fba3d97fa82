// SPDX-License-Identifier: Apache-2.0
//
// The encoder on all-MiniLM-L6-v2 compared with transformers: 30 sentences, every layer and head. REGARD_TEST_MODEL
// names the folder of the model; the stage `./check model` downloads it and runs this.
//
//     all values of sentence 0; of each sentence: pooled vector, norms of all states, samples of states and weights
//
// Read next: encoder_reference.h, encoder/make_reference.py.
#include <cstdlib>
#include <fstream>
#include <map>

#include "support/arrays.h"
#include "support/data_path.h"
#include "support/encoder_reference.h"

namespace regard::model_encoder_check {
namespace {

const std::string kData = data_path("encoder");
constexpr int kNumSentences = 30;
constexpr int kNumStates = 64;
constexpr int kNumWeights = 16;

const Encoder& minilm() {
  static const Encoder encoder = [] {
    const char* folder = std::getenv("REGARD_TEST_MODEL");
    if (folder == nullptr) throw std::runtime_error("REGARD_TEST_MODEL must name the folder of all-MiniLM-L6-v2");
    return load_encoder(folder);
  }();
  return encoder;
}

const EncoderReference& reference() {
  static const EncoderReference numbers(kData + "/minilm_reference.safetensors");
  return numbers;
}

std::vector<Index> ids_of(int sentence) { return reference().indices(std::to_string(sentence) + ".ids"); }

const ModelTrace& trace_of(int sentence) {
  static std::map<int, ModelTrace> traces;
  const auto found = traces.find(sentence);
  if (found != traces.end()) return found->second;
  return traces[sentence] = encode(minilm(), ids_of(sentence));
}

TEST(ModelEncoder, ModelHashMatchesTheReference) {
  EXPECT_EQ(minilm().checkpoint->sha256(), "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db");
  int lines = 0;
  std::ifstream sentences(kData + "/sentences.txt");
  for (std::string line; std::getline(sentences, line);) ++lines;
  EXPECT_EQ(lines, kNumSentences);
}

TEST(ModelEncoder, AllValuesOfASentenceMatchTransformers) {
  const ModelTrace& trace = trace_of(0);
  std::vector<float> states;
  std::vector<float> weights;
  for (std::size_t n = 0; n <= trace.layers.size(); ++n) {
    const auto rows = elements(states_after(trace, n));
    states.insert(states.end(), rows.begin(), rows.end());
    if (n == trace.layers.size()) break;
    const Tensor<float, 3> of_layer = trace_weights(trace, static_cast<Index>(n));
    weights.insert(weights.end(), of_layer.data(), of_layer.data() + of_layer.size());
  }
  EXPECT_EQ(states.size(), 7u * 10 * 384);
  EXPECT_TRUE(near_reference(states, reference().numbers("all_states")));
  EXPECT_TRUE(near_reference(weights, reference().numbers("all_weights")));
}

TEST(ModelEncoder, PooledVectorsMatchTransformers) {
  for (int sentence = 0; sentence < kNumSentences; ++sentence) {
    const std::vector<float> expected = reference().numbers(std::to_string(sentence) + ".pooled");
    EXPECT_TRUE(near_reference(mean_pooled(trace_of(sentence)), expected)) << sentence;
    double squares = 0;
    for (float x : expected) squares += static_cast<double>(x) * static_cast<double>(x);
    std::vector<float> unit;
    for (float x : expected) unit.push_back(static_cast<float>(static_cast<double>(x) / std::sqrt(squares)));
    EXPECT_TRUE(near_reference(mean_pooled_normalized(trace_of(sentence)), unit)) << sentence;
  }
}

TEST(ModelEncoder, NormsOfAllStatesMatchTransformers) {
  for (int sentence = 0; sentence < kNumSentences; ++sentence) {
    const ModelTrace& trace = trace_of(sentence);
    std::vector<float> lengths;
    for (std::size_t n = 0; n <= trace.layers.size(); ++n) {
      const Tensor<float, 2>& states = states_after(trace, n);
      for (Index i = 0; i < states.shape()[0]; ++i) {
        double squares = 0;
        for (Index e = 0; e < states.shape()[1]; ++e) {
          squares += static_cast<double>(states(i, e)) * static_cast<double>(states(i, e));
        }
        lengths.push_back(static_cast<float>(std::sqrt(squares)));
      }
    }
    // A norm is computed from 384 states, each of which may deviate from the reference by the bound, relative to the
    // norm.
    const std::vector<float> expected = reference().numbers(std::to_string(sentence) + ".norms");
    ASSERT_EQ(lengths.size(), expected.size());
    for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] /= expected[i];
    EXPECT_TRUE(near_reference(lengths, std::vector<float>(lengths.size(), 1))) << sentence;
  }
}

TEST(ModelEncoder, SamplesOfStatesAndWeightsMatchTransformers) {
  for (int sentence = 0; sentence < kNumSentences; ++sentence) {
    const ModelTrace& trace = trace_of(sentence);
    const auto length = static_cast<Index>(trace.ids.size());
    Random random(static_cast<std::uint64_t>(sentence));
    // Rows first: the order in which make_reference.py draws.
    const auto draw = [&](int count, const auto& at, Index rows, Index columns, std::vector<float>& into) {
      for (int n = 0; n < count; ++n) {
        const Index row = random.integer(0, rows - 1);
        const Index column = random.integer(0, columns - 1);
        into.push_back(at(row, column));
      }
    };
    std::vector<float> states;
    for (std::size_t n = 0; n <= trace.layers.size(); ++n) {
      draw(kNumStates, states_after(trace, n), length, minilm().config.width, states);
    }
    std::vector<float> weights;
    for (Index layer = 0; layer < 6; ++layer) {
      const Tensor<float, 3> of_layer = trace_weights(trace, layer);
      for (Index head = 0; head < 12; ++head) {
        draw(kNumWeights, [&](Index i, Index j) { return of_layer(head, i, j); }, length, length, weights);
      }
    }
    const std::string name = std::to_string(sentence);
    EXPECT_TRUE(near_reference(states, reference().numbers(name + ".states"))) << sentence;
    EXPECT_TRUE(near_reference(weights, reference().numbers(name + ".weights"))) << sentence;
  }
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    aa += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    bb += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return ab / std::sqrt(aa * bb);
}

// The position of the word "bank" in sentences 0 to 2.
constexpr Index kBankId = 2924;
Index bank_in(int sentence) {
  const std::vector<Index> ids = ids_of(sentence);
  return std::find(ids.begin(), ids.end(), kBankId) - ids.begin();
}

// Cosine of bank in sentence 0 and in another, with position and norm, then after each layer, in thousandths.
std::vector<long> bank_cosines(int other) {
  std::vector<long> thousandths;
  for (std::size_t n = 0; n <= 6; ++n) {
    const std::vector<float> a = mean_rows(states_after(trace_of(0), n), std::array{bank_in(0)});
    const std::vector<float> b = mean_rows(states_after(trace_of(other), n), std::array{bank_in(other)});
    thousandths.push_back(std::lround(1000 * cosine(a, b)));
  }
  return thousandths;
}

TEST(ModelEncoder, RiverBankAndMoneyBankDivergeWhileTwoRiverBanksStayClose) {
  EXPECT_EQ(bank_cosines(1), (std::vector<long>{966, 883, 853, 846, 872, 892, 849}));
  EXPECT_EQ(bank_cosines(2), (std::vector<long>{988, 955, 914, 922, 941, 951, 920}));
}

TEST(ModelEncoder, BankAttendsToRiverInTwoHeadsOfLayerZero) {
  constexpr Index kRiver = 8;  // [CLS] he sat on the bank of the river [SEP]
  const Tensor<float, 3> weights = trace_weights(trace_of(0), 0);
  EXPECT_EQ(std::lround(100 * weights(4, bank_in(0), kRiver)), 71);
  EXPECT_EQ(std::lround(100 * weights(10, bank_in(0), kRiver)), 65);
}

TEST(ModelEncoder, HeadsAndBiasSumToTheAttentionOutput) {
  const ModelTrace& trace = trace_of(28);
  for (Index layer = 0; layer < 6; ++layer) {
    const Tensor<float, 2>& whole = trace.layers[static_cast<std::size_t>(layer)].attention_output;
    const EncoderLayer& parameters = minilm().layers[static_cast<std::size_t>(layer)];
    std::vector<double> sum(static_cast<std::size_t>(whole.size()));
    for (std::size_t k = 0; k < sum.size(); ++k) {
      sum[k] = static_cast<double>(parameters.b_output(static_cast<Index>(k) % whole.shape()[1]));
    }
    for (Index head = 0; head < 12; ++head) {
      const Tensor<float, 2> part = head_output(minilm(), trace, layer, head);
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += static_cast<double>(part.data()[k]);
    }
    double largest = 0;
    for (std::size_t k = 0; k < sum.size(); ++k) {
      const double difference = std::abs(sum[k] - static_cast<double>(whole.data()[k]));
      largest = std::max(largest, difference / (1 + std::abs(sum[k])));
    }
    EXPECT_LT(largest, 2e-6) << layer;
  }
}

}  // namespace
}  // namespace regard::model_encoder_check
