// SPDX-License-Identifier: Apache-2.0
//
// A made-up record that imitates a run of the induction task, so that events, text and page can be tested without
// training:
//
//     sequence   ^ a b c … a b c …           half random tokens, repeated
//     layer 0, head 1     becomes a previous-token head at a third of the run
//     layer 1, head 0     then attends to the token after the earlier copy, and the loss falls
//     all other heads     attend to the first token or to every token, with noise that depends on the seed
//
// Read next: regard/train/record.h, record_test.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "regard/train/record.h"

namespace regard {

// Whether the labels are random, so that nothing is learned, and the other choices.
struct ImitatedRun {
  std::uint64_t seed = 0;
  Index layers = 2;
  Index heads = 2;
  Index half = 16;  // of 2 · half + 1 tokens
  Index steps = 600;
  Index max_snapshots = 60;
  bool learns = true;
  bool has_pattern = true;            // else the run is one of a text
  std::vector<std::string> tokens{};  // texts of the first tokens; the others are letters
};

// Reproducible noise in −1 … 1: a function of its arguments.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15U + 0x1234567) {}
  double next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1;
  }

 private:
  std::uint64_t state_;
};

class ImitatedTraining {
 public:
  explicit ImitatedTraining(const ImitatedRun& run) : run_(run), noise_(run.seed) {}

  TrainingRecord record() {
    TrainingRecord record{
        .command = "regard train --task induction --watch head.html",
        .name = run_.has_pattern ? "induction" : "jargon.txt",
        .is_text = !run_.has_pattern,
        .shows = run_.has_pattern ? "A head learns to look up what followed the same token before." : "",
        .pattern = run_.has_pattern ? "the token after the earlier copy" : "",
        .formed_score = 0.5,
        .settings = settings(),
        .probe = probe(),
        .curve = {},
        .snapshots = {}};
    for (Index step = 0; step < run_.steps; ++step) {
      CurvePoint point{.step = step,
                       .loss = loss(step) * (1 + 0.03 * noise_.next()),
                       .gradient_norm = 0.3 + 1.5 * slope(step) + 0.05 * noise_.next(),
                       .learning_rate = 0.01};
      if (step % 25 == 0) point.held_out_loss = 1.02 * loss(step);
      record.curve.push_back(point);
    }
    for (const Index step : snapshot_steps(run_.steps, run_.max_snapshots)) {
      TrainingSnapshot snapshot{.step = step, .loss = loss(step), .heads = {}};
      for (Index head = 0; head < run_.layers * run_.heads; ++head)
        snapshot.heads.push_back(probed_head(record.probe, head, step));
      record.snapshots.push_back(snapshot);
    }
    return record;
  }

 private:
  TrainingSettings settings() const {
    TrainingSettings settings;
    settings.model = {.vocabulary = 32, .num_layers = run_.layers, .num_heads = run_.heads, .width = 64};
    settings.model.max_positions = length();
    settings.model.norm = NormKind::rms;
    settings.model.feed_forward_kind = FeedForwardKind::none;
    settings.steps = run_.steps;
    settings.batch = 32;
    settings.learning_rate = 0.01;
    settings.min_learning_rate = 0.001;
    settings.seed = run_.seed;
    return settings;
  }

  Index length() const { return 2 * run_.half + 1; }

  TrainingProbe probe() {
    TrainingProbe probe;
    probe.tokens.push_back("^");
    for (Index i = 1; i < length(); ++i) {
      const Index letter = (i - 1) % run_.half;
      probe.tokens.push_back(
          std::string(1, static_cast<char>('a' + (letter * 7 + static_cast<Index>(run_.seed)) % 26)));
    }
    std::copy(run_.tokens.begin(), run_.tokens.end(), probe.tokens.begin());
    for (Index i = 0; i < length(); ++i) {
      const bool is_repeated = i > run_.half && i + 1 < length();
      probe.targets.push_back(is_repeated ? std::optional(probe.tokens[static_cast<std::size_t>(i + 1)])
                                          : std::nullopt);
      probe.wanted.push_back(is_repeated && run_.has_pattern ? std::vector<Index>{i - run_.half + 1}
                                                             : std::vector<Index>{});
    }
    probe.uniform = uniform_scores(probe.wanted);
    probe.query = run_.half + run_.half / 2;
    return probe;
  }

  double share_of_run(Index step) const {
    return static_cast<double>(step) / static_cast<double>(std::max<Index>(1, run_.steps));
  }
  // From 0 to 1 around a share of the run.
  double rise(Index step, double at, double width) const {
    const double x = (share_of_run(step) - at) / width;
    return run_.learns ? 1 / (1 + std::exp(-x)) : 0;
  }
  double previous_token(Index step) const { return rise(step, 0.26 + 0.02 * shift(), 0.02); }
  double induction(Index step) const { return rise(step, 0.36 + 0.02 * shift(), 0.02); }
  double shift() const { return static_cast<double>(run_.seed % 5) - 2; }
  double loss(Index step) const {
    return std::log(31.0) * (1 - 0.03 * rise(step, 0.02, 0.01) - 0.955 * induction(step)) +
           (run_.learns ? 0 : 0.02 * share_of_run(step));
  }
  double slope(Index step) const {
    const double x = induction(step);
    return 4 * x * (1 - x);
  }

  ProbedHead probed_head(const TrainingProbe& probe, Index number, Index step) {
    const Index layer = number / run_.heads, head = number % run_.heads;
    const bool is_previous = layer == 0 && head == 1 % run_.heads;
    const bool is_induction = layer == 1 && head == 0 && run_.has_pattern;
    const double fall = std::log(31.0) - loss(step);
    ProbedHead probed;
    for (Index i = 0; i < length(); ++i) {
      std::vector<double> scores;
      for (Index j = 0; j <= i; ++j) {
        double score = 0.6 * noise_.next() + (j == 0 ? 2.5 * rise(step, 0.5, 0.15) : 0);
        if (is_previous && j == i - 1) score += 9 * previous_token(step);
        const std::vector<Index>& wanted = probe.wanted[static_cast<std::size_t>(i)];
        if (is_induction && std::ranges::find(wanted, j) != wanted.end()) score += 10 * induction(step);
        scores.push_back(score);
      }
      append_softmax(probed.weights, scores);
    }
    append_gradients(probed, probe, is_induction, step);
    probed.scores = head_scores(probed.weights, probe.wanted);
    probed.ablation = is_induction ? 0.9 * fall : is_previous ? 0.8 * fall * induction(step) : 0.01 * noise_.next();
    return probed;
  }

  static void append_softmax(std::vector<float>& weights, const std::vector<double>& scores) {
    double sum = 0;
    for (const double score : scores) sum += std::exp(score);
    for (const double score : scores) weights.push_back(static_cast<float>(std::exp(score) / sum));
  }

  // dP as if the wanted key's value alone reduced the loss, and dS from it.
  void append_gradients(ProbedHead& probed, const TrainingProbe& probe, bool is_induction, Index step) {
    const Index query = probe.query;
    const std::vector<Index>& wanted = probe.wanted[static_cast<std::size_t>(query)];
    const float* row = probed.weights.data() + query * (query + 1) / 2;
    double mean = 0;
    for (Index j = 0; j <= query; ++j) {
      double grad = 0.004 * noise_.next();
      if (is_induction && std::ranges::find(wanted, j) != wanted.end()) grad -= 0.05 * (0.1 + slope(step));
      probed.grad_weights.push_back(static_cast<float>(grad));
      mean += static_cast<double>(row[j]) * grad;
    }
    for (Index j = 0; j <= query; ++j) {
      const double grad = static_cast<double>(probed.grad_weights[static_cast<std::size_t>(j)]);
      probed.grad_scores.push_back(static_cast<float>(static_cast<double>(row[j]) * (grad - mean)));
    }
  }

  ImitatedRun run_;
  Noise noise_;
};

inline TrainingRecord imitated_record(const ImitatedRun& run = {}) { return ImitatedTraining(run).record(); }

}  // namespace regard
