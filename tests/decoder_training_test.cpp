// SPDX-License-Identifier: Apache-2.0
//
// DecoderTraining: twenty steps equal those of PyTorch in double; gradients equal central differences; threads,
// micro-batches and recomputation do not change bits; memory grows with the length and not with its square.
// Read next: train/make_decoder_torch.py, optimizer_test.cpp.
#include "regard/train/decoder_training.h"

#include <cstring>
#include <fstream>
#include <sstream>

#include "support/arrays.h"
#include "support/counted_news.h"
#include "support/counting_memory.h"
#include "support/data_path.h"
#include "support/rejection.h"
#include "support/same_bits.h"
#include "support/test_size.h"

namespace regard::decoder_training_test {
namespace {

constexpr Index kVocabulary = 13, kBatch = 3, kLength = 9;

const std::vector<std::pair<std::string, DecoderConfig>>& configs() {
  static const std::vector<std::pair<std::string, DecoderConfig>> list = [] {
    DecoderConfig gpt;
    gpt.vocabulary = kVocabulary;
    gpt.num_layers = 2;
    gpt.num_heads = 4;
    gpt.width = 16;
    gpt.feed_forward = 24;
    gpt.max_positions = kLength;
    DecoderConfig biases = gpt;
    biases.biases = true;
    biases.feed_forward_kind = FeedForwardKind::gelu_tanh;
    DecoderConfig llama = gpt;
    llama.num_kv_heads = 2;
    llama.norm = NormKind::rms;
    llama.positions = PositionKind::rotary;
    llama.feed_forward_kind = FeedForwardKind::swiglu;
    llama.tied = false;
    DecoderConfig llama_tied = llama;
    llama_tied.num_kv_heads = 1;
    llama_tied.tied = true;
    DecoderConfig relu = biases;
    relu.positions = PositionKind::none;
    relu.feed_forward_kind = FeedForwardKind::relu;
    relu.tied = false;
    DecoderConfig attention_only = gpt;
    attention_only.num_kv_heads = 2;
    attention_only.feed_forward_kind = FeedForwardKind::none;
    attention_only.feed_forward = 0;
    attention_only.tied = false;
    return std::vector<std::pair<std::string, DecoderConfig>>{{"gpt", gpt},     {"gpt-biases", biases},
                                                              {"llama", llama}, {"llama-tied", llama_tied},
                                                              {"relu", relu},   {"attention-only", attention_only}};
  }();
  return list;
}

// The values of make_decoder_torch.py.
template <class T>
void fill_parameters(DecoderTraining<T>& model) {
  T* next = model.parameters().data();
  Index k = 0;
  for (const DecoderParameter& parameter : model.description()) {
    const double offset = parameter.kind == ParameterKind::gain ? 1 : 0;
    for (Index n = 0; n < parameter.size(); ++n) {
      *next++ = static_cast<T>(0.2 * (static_cast<double>((n * (37 + 2 * k) + 11 * k) % 101) / 50 - 1) + offset);
    }
    ++k;
  }
}

struct Tokens {
  Tensor<Index, 2> tokens{{kBatch, kLength}}, targets{{kBatch, kLength}};
  Index num_targets = 0;

  explicit Tokens(Index step) {
    for (Index b = 0; b < kBatch; ++b) {
      for (Index j = 0; j < kLength; ++j) {
        const auto token = [&](Index at) { return (7 * b + 3 * step + at * at + 5 * at * b) % kVocabulary; };
        tokens(b, j) = token(j);
        targets(b, j) = (b + j + step) % 5 == 0 ? -1 : token(j + 1);
        num_targets += targets(b, j) >= 0;
      }
    }
  }
  TrainingBatch batch() const { return {.tokens = tokens.view(), .targets = targets.view()}; }
  // Sequences first … first + count − 1, with the mean over all of them.
  TrainingBatch part(Index first, Index count) const {
    TrainingBatch of = batch();
    of.tokens = sliced(of.tokens, 0, first, first + count);
    of.targets = sliced(of.targets, 0, first, first + count);
    of.num_targets = num_targets;
    of.first_sequence = first;
    return of;
  }
};

// AdamW with clipping by the formulas of PyTorch, in plain loops.
struct PlainAdamW {
  std::vector<double> first, second;
  Index step = 0;

  void update(DecoderTraining<double>& model) {
    const auto parameters = model.parameters(), gradients = model.gradients();
    first.resize(parameters.size());
    second.resize(parameters.size());
    double square = 0;
    for (double g : gradients) square += g * g;
    const double clip = std::min(1.0, 1.0 / (std::sqrt(square) + 1e-6));
    ++step;
    const double first_correction = 1 - std::pow(0.9, static_cast<double>(step));
    const double second_correction = 1 - std::pow(0.99, static_cast<double>(step));
    std::size_t n = 0;
    for (const DecoderParameter& parameter : model.description()) {
      for (Index i = 0; i < parameter.size(); ++i, ++n) {
        const double g = gradients[n] * clip;
        if (parameter.shape.size() == 2) parameters[n] *= 1 - 1e-2 * 0.1;
        first[n] = 0.9 * first[n] + 0.1 * g;
        second[n] = 0.99 * second[n] + 0.01 * g * g;
        parameters[n] -= 1e-2 * (first[n] / first_correction) / (std::sqrt(second[n] / second_correction) + 1e-8);
      }
    }
  }
};

TEST(DecoderTraining, TwentyStepsEqualThoseOfPyTorch) {
  std::ifstream file(data_path("train/decoder_torch.txt"));
  ASSERT_TRUE(file);
  std::size_t cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    ASSERT_LT(cases, configs().size());
    ASSERT_EQ(name, configs()[cases].first);
    DecoderTraining<double> model(configs()[cases].second, {.max_sequences = kBatch});
    fill_parameters(model);
    PlainAdamW optimizer;
    Index step = 0;
    for (double expected; words >> expected; ++step) {
      EXPECT_NEAR(model.forward_backward(Tokens(step).batch()), expected, 1e-9) << name << ", step " << step;
      optimizer.update(model);
    }
    EXPECT_EQ(step, 20) << name;
  }
  EXPECT_EQ(cases, configs().size());
}

TEST(DecoderTraining, GradientsEqualCentralDifferences) {
  const Tokens tokens(3);
  for (const auto& [name, config] : configs()) {
    for (const double dropout : {0.0, 0.3}) {
      DecoderTraining<double> model(config, {.max_sequences = kBatch});
      fill_parameters(model);
      TrainingBatch batch = tokens.batch();
      batch.dropout = dropout;
      batch.dropout_seed = 11;
      model.forward_backward(batch);
      const std::vector<double> gradients(model.gradients().begin(), model.gradients().end());
      double largest = 0;
      for (double g : gradients) largest = std::max(largest, std::abs(g));
      Random random(5);
      for (int sample = 0; sample < test_size(200, 50); ++sample) {
        const std::size_t n = random.bits() % gradients.size();
        double& parameter = model.parameters()[n];
        const double value = parameter;
        const auto loss_at = [&](double at) {
          parameter = at;
          return model.evaluate(batch);
        };
        constexpr double kStep = 1e-5;
        const double difference = (loss_at(value + kStep) - loss_at(value - kStep)) / (2 * kStep);
        parameter = value;
        EXPECT_NEAR(gradients[n], difference, 1e-5 * std::max(std::abs(difference), 1e-3 * largest))
            << name << ", parameter " << n << ", dropout " << dropout;
      }
    }
  }
}

template <class T>
std::vector<T> gradients_of(const DecoderConfig& config, const DecoderTrainingOptions& options, const Tokens& tokens,
                            std::vector<Index> parts, int threads, double* loss = nullptr, double dropout = 0) {
  DecoderTraining<T> model(config, options);
  fill_parameters(model);
  Runtime runtime;
  runtime.num_threads = threads;
  // A first step on other tokens leaves gradients that a call without accumulation must overwrite.
  model.forward_backward(Tokens(1).part(0, 1), false, {}, runtime);
  double sum = 0;
  Index first = 0;
  for (const Index count : parts) {
    TrainingBatch part = tokens.part(first, count);
    part.dropout = dropout;
    part.dropout_seed = 5;
    sum += model.forward_backward(part, first > 0, {}, runtime);
    first += count;
  }
  if (loss != nullptr) *loss = sum;
  return {model.gradients().begin(), model.gradients().end()};
}

template <class T>
bool equal_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
void expect_same_bits_however_computed(const DecoderConfig& config, const std::string& name, bool bf16) {
  const Tokens tokens(3);
  std::size_t number = 0;
  for (const double dropout : {0.0, 0.3}) {
    const DecoderTrainingOptions options{.max_sequences = kBatch, .bf16_products = bf16};
    const std::vector<T> expected = gradients_of<T>(config, options, tokens, {kBatch}, 1, nullptr, dropout);
    for (const int threads : {1, 2, 4}) {
      for (const auto& parts : std::vector<std::vector<Index>>{{3}, {2, 1}, {1, 2}, {1, 1, 1}}) {
        for (const bool recompute : {false, true}) {
          if (!runs_case(number++, 5)) continue;
          DecoderTrainingOptions other = options;
          other.recompute = recompute;
          EXPECT_TRUE(equal_bits(gradients_of<T>(config, other, tokens, parts, threads, nullptr, dropout), expected))
              << name << ": " << threads << " threads, " << parts.size() << " calls, recompute " << recompute;
        }
      }
    }
  }
}

TEST(DecoderTraining, ThreadsMicroBatchesAndRecomputationDoNotChangeBits) {
  for (const auto& [name, config] : configs()) {
    expect_same_bits_however_computed<float>(config, name, false);
    expect_same_bits_however_computed<double>(config, name, false);
    expect_same_bits_however_computed<float>(config, name, true);
  }
}

TEST(DecoderTraining, EvaluationEqualsTheForwardPassOfTraining) {
  for (const auto& [name, config] : configs()) {
    DecoderTraining<float> model(config, {.max_sequences = kBatch});
    fill_parameters(model);
    const Tokens tokens(2);
    const double loss = model.forward_backward(tokens.batch());
    Tensor<float, 2> row_loss({kBatch, kLength});
    Index correct = -1;
    EXPECT_EQ(model.evaluate(tokens.batch(), {}, row_loss.view(), &correct), loss) << name;
    double sum = 0;
    Index right = 0;
    const auto logits = model.logits();
    for (Index row = 0; row < kBatch * kLength; ++row) {
      const Index target = tokens.targets(row / kLength, row % kLength);
      const float of_row = row_loss(row / kLength, row % kLength);
      if (target < 0) {
        EXPECT_EQ(of_row, 0);
        continue;
      }
      sum += static_cast<double>(of_row);
      Index best = 0;
      for (Index v = 1; v < kVocabulary; ++v) best = logits(row, v) > logits(row, best) ? v : best;
      right += best == target;
    }
    EXPECT_NEAR(sum / static_cast<double>(tokens.num_targets), loss, 1e-6) << name;
    EXPECT_EQ(correct, right) << name;
  }
}

// The weights that a record gives, by plain loops.
double weight_of(const AttentionRecord<double>& of, Index b, Index h, Index i, Index j) {
  const Index g = h / (of.query.shape[1] / of.key.shape[1]);
  double score = 0;
  for (Index d = 0; d < of.query.shape[3]; ++d) score += of.query(b, h, i, d) * of.key(b, g, j, d);
  return std::exp(score / std::sqrt(static_cast<double>(of.query.shape[3])) - of.row_max(b, h, i)) /
         of.row_sum(b, h, i);
}

TEST(DecoderTraining, RecordsHoldTheAttentionOfEachLayer) {
  for (const auto& [name, config] : configs()) {
    DecoderTraining<double> model(config, {.max_sequences = kBatch});
    fill_parameters(model);
    model.evaluate(Tokens(2).batch());
    for (Index layer = 0; layer < config.num_layers; ++layer) {
      const AttentionRecord<double> record = model.attention(layer);
      for (Index h = 0; h < config.num_heads; ++h) {
        for (Index i = 0; i < kLength; ++i) {
          double sum = 0, context = 0;
          for (Index j = 0; j <= i; ++j) {
            const double weight = weight_of(record, 1, h, i, j);
            sum += weight;
            context += weight * record.value(1, h / (config.num_heads / record.value.shape[1]), j, 2);
          }
          EXPECT_NEAR(sum, 1, 1e-12) << name;
          EXPECT_NEAR(record.context(1, h, i, 2), context, 1e-12) << name;
        }
      }
    }
  }
}

TEST(DecoderTraining, ObserversSeeTheGradientOfTheContext) {
  // Moving the values of a head by a step along the gradient that the observer sees changes the loss as predicted: the
  // gradient of the value projection follows from it.
  const auto& config = configs()[0].second;
  DecoderTraining<double> model(config, {.max_sequences = kBatch});
  fill_parameters(model);
  const Tokens tokens(2);
  std::vector<Index> layers;
  double value_sum = 0;  // Σ over rows of ∂loss / ∂value[0] of head 0 in layer 0, times the normed input, cell (0, 0)
  model.forward_backward(tokens.batch(), false,
                         [&](Index layer, const AttentionRecord<double>& record, TensorView<const double, 4> grad) {
                           layers.push_back(layer);
                           if (layer != 0) return;
                           for (Index b = 0; b < kBatch; ++b) {
                             for (Index i = 0; i < kLength; ++i)
                               value_sum += grad(b, 0, i, 0) * record.context(b, 0, i, 0);
                           }
                         });
  EXPECT_EQ(layers, (std::vector<Index>{1, 0}));
  // Scaling row 0 of the value projection of layer 0 by 1 + s scales component 0 of the contexts of head 0.
  Index offset = 0;
  for (const DecoderParameter& parameter : model.description()) {
    if (parameter.name == "model.layers.0.self_attn.v_proj.weight") break;
    offset += parameter.size();
  }
  const auto row = model.parameters().subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(config.width));
  const std::vector<double> values(row.begin(), row.end());
  const auto loss_at = [&](double s) {
    for (std::size_t e = 0; e < values.size(); ++e) row[e] = values[e] * (1 + s);
    return model.evaluate(tokens.batch());
  };
  EXPECT_NEAR((loss_at(1e-4) - loss_at(-1e-4)) / 2e-4, value_sum, 1e-8);
}

TEST(DecoderTraining, AblationRemovesOneHead) {
  for (const auto& [name, config] : configs()) {
    DecoderTraining<double> model(config, {.max_sequences = kBatch});
    fill_parameters(model);
    const Tokens tokens(2);
    const double ablated = model.evaluate(tokens.batch(), {.layer = 1, .head = 2});
    const double whole = model.evaluate(tokens.batch());
    EXPECT_NE(ablated, whole) << name;
    // The same as zeros in the columns of the output projection that read the head.
    Index offset = 0;
    for (const DecoderParameter& parameter : model.description()) {
      if (parameter.name == "model.layers.1.self_attn.o_proj.weight") break;
      offset += parameter.size();
    }
    for (Index out = 0; out < config.width; ++out) {
      for (Index d = 0; d < 4; ++d) model.parameters()[static_cast<std::size_t>(offset + out * 16 + 2 * 4 + d)] = 0;
    }
    EXPECT_NEAR(model.evaluate(tokens.batch()), ablated, 1e-12) << name;
  }
}

TEST(DecoderTraining, ScratchComesFromTheWorkspaceAndIsReturned) {
  DecoderTraining<float> model(configs()[0].second, {.max_sequences = kBatch});
  fill_parameters(model);
  CountingMemory memory;
  Runtime runtime;
  runtime.workspace = &memory;
  model.forward_backward(Tokens(0).batch(), false, {}, runtime);
  EXPECT_EQ(memory.in_use, 0U);
  const std::size_t largest = memory.largest;
  model.forward_backward(Tokens(1).batch(), false, {}, runtime);
  EXPECT_EQ(memory.largest, largest);
}

TEST(DecoderTraining, AStepTakesNothingFromOperatorNew) {
  DecoderConfig large;
  large.vocabulary = kVocabulary;
  large.num_layers = 2;
  large.num_heads = 4;
  large.width = 128;
  large.max_positions = 48;
  large.biases = true;
  DecoderConfig llama = large;
  llama.norm = NormKind::rms;
  llama.positions = PositionKind::rotary;
  llama.feed_forward_kind = FeedForwardKind::swiglu;
  llama.biases = false;
  Tensor<Index, 2> tokens({4, 48});
  for (Index i = 0; i < tokens.size(); ++i) tokens.data()[i] = i * i % kVocabulary;
  TrainingBatch batch{.tokens = tokens.view(), .targets = tokens.view(), .dropout = 0.1};
  Runtime runtime;
  runtime.num_threads = 2;
  for (const DecoderConfig& config : {large, llama}) {
    for (const bool bf16 : {false, true}) {
      DecoderTraining<float> model(config, {.max_sequences = 4, .bf16_products = bf16});
      fill_parameters(model);
      model.forward_backward(batch, false, {}, runtime);
      const std::size_t before = num_news;
      model.forward_backward(batch, true, {}, runtime);
      EXPECT_EQ(num_news, before) << bf16;
    }
  }
}

TEST(DecoderTraining, MemoryGrowsWithTheLengthAndNotWithItsSquare) {
  DecoderConfig config;
  config.vocabulary = 256;
  config.num_layers = 4;
  config.num_heads = 4;
  config.width = 128;
  config.max_positions = 4096;
  const DecoderTraining<float> model(config, {});
  EXPECT_LT(model.num_bytes(), std::size_t{300'000'000});
  const DecoderTraining<float> half(config, {.max_length = 2048});
  EXPECT_LT(model.num_bytes(), 2 * half.num_bytes());
  const DecoderTraining<float> recomputed(config, {.recompute = true});
  EXPECT_LT(recomputed.num_bytes(), model.num_bytes() / 2);
}

TEST(DecoderTraining, RejectionsNameTheArgument) {
  const auto& config = configs()[0].second;
  const auto created = [&](const DecoderTrainingOptions& options) {
    return rejection([&] { DecoderTraining<double>(config, options); });
  };
  EXPECT_EQ(created({.max_sequences = 0}), "decoder: max_sequences is 0; expected 1 to 16777216");
  EXPECT_EQ(created({.max_length = 10}), "decoder: max_length is 10; expected 1 to max_positions, 9");
  EXPECT_EQ(created({.bf16_products = true}), "decoder: bf16_products is true; expected false for double");
  DecoderTraining<double> model(config, {.max_sequences = 2});
  Tokens tokens(0);
  const auto run = [&](const TrainingBatch& batch) { return rejection([&] { model.forward_backward(batch); }); };
  EXPECT_EQ(run(tokens.batch()), "decoder: tokens has shape (3, 9); expected at most (2, 9) and at least (1, 1)");
  TrainingBatch batch = tokens.part(0, 2);
  batch.targets = sliced(batch.targets, 1, 0, 4);
  EXPECT_EQ(run(batch), "decoder: targets has shape (2, 4); expected that of tokens, (2, 9)");
  batch = tokens.part(0, 2);
  batch.dropout = 1;
  EXPECT_EQ(run(batch), "decoder: dropout is 1.000000; expected at least 0 and below 1");
  tokens.tokens(1, 3) = 13;
  EXPECT_EQ(run(tokens.part(0, 2)), "decoder: tokens[1, 3] is 13; expected 0 to 12");
  tokens.tokens(1, 3) = 0;
  tokens.targets(0, 2) = -2;
  EXPECT_EQ(run(tokens.part(0, 2)), "decoder: targets[0, 2] is -2; expected -1 to 12");
  EXPECT_EQ(rejection([&] { model.evaluate(Tokens(0).part(0, 2), {.layer = 1, .head = 4}); }),
            "decoder: ablated is layer 1, head 4; expected a layer below 2 and a head from 0 to 3");
  EXPECT_EQ(rejection([&] { model.attention(2); }), "decoder: attention of layer 2; expected 0 to 1");
}

}  // namespace
}  // namespace regard::decoder_training_test
