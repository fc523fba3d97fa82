// SPDX-License-Identifier: Apache-2.0
//
// See regard/train/probe.h.
#include "regard/train/probe.h"

#include <algorithm>
#include <string>

#include "instantiate.h"
#include "regard/attention.h"
#include "regard/error.h"

namespace regard::inline v0 {
namespace {

template <class T>
class HeadObserver {
 public:
  HeadObserver(const ProbeSequences& sequences, const DecoderConfig& config, TrainingSnapshot& snapshot,
               const Runtime& runtime)
      : sequences_(sequences), config_(config), snapshot_(snapshot), runtime_(runtime) {}

  void operator()(Index layer, const AttentionRecord<T>& record, TensorView<const T, 4> grad_context) {
    const auto [batch, heads, length, size] = record.query.shape;
    Tensor<T, 4> weights({batch, heads, length, length});
    attention_weights(record.query, record.key, {.row_max = record.row_max, .row_sum = record.row_sum}, weights,
                      {.causal = true}, runtime_);
    for (Index h = 0; h < heads; ++h) {
      ProbedHead& head = snapshot_.heads[static_cast<std::size_t>(layer * heads + h)];
      for (Index b = 0; b < batch; ++b) {
        const std::vector<float> triangle = lower_triangle(weights, b, h);
        add_scores(head.scores, triangle, b);
        if (b == 0) head.weights = triangle;
      }
      const double count = static_cast<double>(batch);
      for (double* score : {&head.scores.pattern, &head.scores.previous, &head.scores.sink, &head.scores.entropy})
        *score /= count;
      if (sequences_.probe.query >= 0) add_gradients(head, weights, record.value, grad_context, h);
    }
  }

 private:
  static std::vector<float> lower_triangle(const Tensor<T, 4>& weights, Index b, Index h) {
    const Index length = weights.shape()[2];
    std::vector<float> triangle;
    triangle.reserve(static_cast<std::size_t>(length * (length + 1) / 2));
    for (Index i = 0; i < length; ++i) {
      for (Index j = 0; j <= i; ++j) triangle.push_back(static_cast<float>(weights(b, h, i, j)));
    }
    return triangle;
  }
  void add_scores(HeadScores& sum, const std::vector<float>& triangle, Index b) const {
    const auto& wanted =
        sequences_.wanted.empty() ? sequences_.probe.wanted : sequences_.wanted[static_cast<std::size_t>(b)];
    const HeadScores scores = head_scores(triangle, wanted);
    sum.pattern += scores.pattern;
    sum.previous += scores.previous;
    sum.sink += scores.sink;
    sum.entropy += scores.entropy;
  }
  // dP and dS of the probe's row in the first sequence.
  void add_gradients(ProbedHead& head, const Tensor<T, 4>& weights, TensorView<const T, 4> value,
                     TensorView<const T, 4> grad_context, Index h) const {
    const Index row = sequences_.probe.query;
    const Index g = h / (config_.num_heads / config_.num_kv_heads);
    std::vector<double> grad_weights;
    double mean = 0;
    for (Index j = 0; j <= row; ++j) {
      double sum = 0;
      for (Index d = 0; d < value.shape[3]; ++d)
        sum += static_cast<double>(grad_context(0, h, row, d)) * static_cast<double>(value(0, g, j, d));
      grad_weights.push_back(sum);
      mean += static_cast<double>(weights(0, h, row, j)) * sum;
    }
    for (Index j = 0; j <= row; ++j) {
      const double grad = grad_weights[static_cast<std::size_t>(j)];
      head.grad_weights.push_back(static_cast<float>(grad));
      head.grad_scores.push_back(static_cast<float>(static_cast<double>(weights(0, h, row, j)) * (grad - mean)));
    }
  }

  const ProbeSequences& sequences_;
  const DecoderConfig& config_;
  TrainingSnapshot& snapshot_;
  const Runtime& runtime_;
};

}  // namespace

ProbeSequences task_probe(const TrainingTask& task, std::uint64_t seed, Index num_sequences) {
  if (num_sequences < 1)
    throw InvalidArgument("task_probe: num_sequences is " + std::to_string(num_sequences) + "; expected at least 1");
  ProbeSequences sequences;
  TrainingProbe& probe = sequences.probe;
  probe.num_sequences = num_sequences;
  const auto text_of = [&](Index token) { return task.vocabulary[static_cast<std::size_t>(token)]; };
  HeadScores& uniform = probe.uniform;
  for (Index b = 0; b < num_sequences; ++b) {
    TaskExample example = task.example(seed, TaskSplit::held_out, b);
    const auto length = static_cast<Index>(example.tokens.size());
    if (b == 0) {
      sequences.tokens = Tensor<Index, 2>({num_sequences, length});
      sequences.targets = Tensor<Index, 2>({num_sequences, length});
      for (Index i = 0; i < length; ++i) {
        const auto at = static_cast<std::size_t>(i);
        probe.tokens.push_back(text_of(example.tokens[at]));
        const Index target = example.targets[at];
        probe.targets.push_back(target < 0 ? std::nullopt : std::optional(text_of(target)));
        if (!example.wanted[at].empty()) probe.query = i;
      }
      probe.wanted = example.wanted;
    }
    std::copy(example.tokens.begin(), example.tokens.end(), &sequences.tokens(b, 0));
    std::copy(example.targets.begin(), example.targets.end(), &sequences.targets(b, 0));
    const HeadScores of = uniform_scores(example.wanted);
    uniform.pattern += of.pattern / static_cast<double>(num_sequences);
    uniform.previous += of.previous / static_cast<double>(num_sequences);
    uniform.sink += of.sink / static_cast<double>(num_sequences);
    sequences.wanted.push_back(std::move(example.wanted));
  }
  uniform.entropy = 1;
  return sequences;
}

ProbeSequences text_probe(const TextData& text, std::uint64_t seed, Index length) {
  ProbeSequences sequences;
  std::vector<Index> tokens(static_cast<std::size_t>(text.length())), targets(tokens.size());
  text.example(seed, TaskSplit::held_out, 0, tokens, targets);
  length = std::min(length, text.length());
  sequences.tokens = Tensor<Index, 2>({1, length});
  sequences.targets = Tensor<Index, 2>({1, length});
  for (Index i = 0; i < length; ++i) {
    const auto at = static_cast<std::size_t>(i);
    sequences.tokens(0, i) = tokens[at];
    sequences.targets(0, i) = targets[at];
    sequences.probe.tokens.push_back(text.vocabulary().decode({&tokens[at], 1}));
    sequences.probe.targets.push_back(text.vocabulary().decode({&targets[at], 1}));
  }
  sequences.probe.wanted.resize(static_cast<std::size_t>(length));
  sequences.probe.uniform = uniform_scores(sequences.probe.wanted);
  sequences.probe.query = length - 1;
  return sequences;
}

template <class T>
TrainingSnapshot observe_heads(DecoderTraining<T>& model, const ProbeSequences& sequences, Index step,
                               const Runtime& runtime) {
  const DecoderConfig& config = model.config();
  TrainingSnapshot snapshot;
  snapshot.step = step;
  snapshot.heads.resize(static_cast<std::size_t>(config.num_layers * config.num_heads));
  const TrainingBatch batch{.tokens = sequences.tokens.view(), .targets = sequences.targets.view()};
  snapshot.loss = model.forward_backward(batch, false, HeadObserver<T>(sequences, config, snapshot, runtime), runtime);
  for (Index layer = 0; layer < config.num_layers; ++layer) {
    for (Index head = 0; head < config.num_heads; ++head) {
      snapshot.heads[static_cast<std::size_t>(layer * config.num_heads + head)].ablation =
          model.evaluate(batch, {.layer = layer, .head = head}, {}, nullptr, runtime) - snapshot.loss;
    }
  }
  return snapshot;
}

REGARD_INSTANTIATE_COMPUTE(observe_heads);

}  // namespace regard::inline v0
