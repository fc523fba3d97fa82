// SPDX-License-Identifier: Apache-2.0
//
// One head's row for one word: dots, scores and weights in double from the trace's query and key; each key's
// contribution from its value and the head's rows of W_output.
//
//     for each piece of the word: for each token: dot = Σ q·k → score = dot / √D → weight = e^(score − max) / Σ
//
// Read next: include/regard/explain/sentence_row.h, head_ranking.cpp.
#include "regard/explain/sentence_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "regard/error.h"
#include "sentence_model.h"

namespace regard::inline v0 {
namespace {

void check(const char* what, Index index, Index count) {
  if (index >= 0 && index < count) return;
  throw InvalidArgument(fmt::format("{} {} does not exist; there are {}, numbered from 0", what, index, count));
}

double norm_of(std::span<const double> numbers) {
  double sum = 0;
  for (const double x : numbers) sum += x * x;
  return std::sqrt(sum);
}

// The head's vector (D) · its rows of W_output (D, E): (E).
std::vector<double> through_output(const TensorView<const float, 2>& output, std::span<const double> numbers) {
  const auto [head_size, width] = output.shape;
  std::vector<double> result(static_cast<std::size_t>(width));
  for (Index d = 0; d < head_size; ++d) {
    for (Index e = 0; e < width; ++e) {
      result[static_cast<std::size_t>(e)] += numbers[static_cast<std::size_t>(d)] * static_cast<double>(output(d, e));
    }
  }
  return result;
}

// ‖mean of some rows of states‖₂.
double mean_norm(const Tensor<float, 2>& states, const std::vector<Index>& rows) {
  const std::vector<float> mean = mean_rows(states, rows);
  return norm_of(std::vector<double>(mean.begin(), mean.end()));
}

// Softmax; the weights of a row without visible keys are 0.
void softmax_row(const Tensor<double, 2>& scores, Index row, Tensor<double, 2>& weights) {
  const Index length = scores.shape()[1];
  double most = -std::numeric_limits<double>::infinity();
  for (Index k = 0; k < length; ++k) most = std::max(most, scores(row, k));
  if (std::isinf(most)) return;
  double sum = 0;
  for (Index k = 0; k < length; ++k) sum += std::exp(scores(row, k) - most);
  for (Index k = 0; k < length; ++k) weights(row, k) = std::exp(scores(row, k) - most) / sum;
}

Index piece_index(const SentenceRow& row, Index query) {
  const auto found = std::find(row.queries.begin(), row.queries.end(), query);
  if (found == row.queries.end()) {
    throw InvalidArgument(fmt::format("token {} is not a piece of the query word", query));
  }
  return static_cast<Index>(found - row.queries.begin());
}

}  // namespace

SentenceRow sentence_row(const SentenceModel& model, const Sentence& sentence, Index layer, Index head, Index word) {
  check("layer", layer, static_cast<Index>(sentence.trace.layers.size()));
  check("head", head, model.extents().num_heads);
  check("word", word, static_cast<Index>(sentence.words.size()));
  const LayerTrace& trace = sentence.trace.layers[static_cast<std::size_t>(layer)];
  const auto [num_heads, length, head_size] = trace.query.shape();
  SentenceRow row{.layer = layer, .head = head, .word = word};
  row.queries = sentence.words[static_cast<std::size_t>(word)].tokens;
  const Index pieces = static_cast<Index>(row.queries.size());
  row.dots = Tensor<double, 2>({pieces, length});
  row.scores = Tensor<double, 2>({pieces, length});
  row.weights = Tensor<double, 2>({pieces, length});
  std::vector<bool> hidden(static_cast<std::size_t>(length));
  for (const Index token : sentence.trace.hidden_keys) hidden[static_cast<std::size_t>(token)] = true;
  for (Index q = 0; q < pieces; ++q) {
    const Index query = row.queries[static_cast<std::size_t>(q)];
    for (Index k = 0; k < length; ++k) {
      double dot = 0;
      for (Index d = 0; d < head_size; ++d) {
        dot += static_cast<double>(trace.query(head, query, d)) * static_cast<double>(trace.key(head, k, d));
      }
      row.dots(q, k) = dot;
      const bool visible = !hidden[static_cast<std::size_t>(k)] && is_visible(sentence.trace.causal, query, k);
      row.scores(q, k) =
          visible ? dot / std::sqrt(static_cast<double>(head_size)) : -std::numeric_limits<double>::infinity();
    }
    softmax_row(row.scores, q, row.weights);
  }

  const TensorView<const float, 2> output = head_projections(model, layer, head).output;
  row.context.resize(static_cast<std::size_t>(head_size));
  for (std::size_t w = 0; w < sentence.words.size(); ++w) {
    RowKey key{.word = static_cast<Index>(w), .special = sentence.words[w].special};
    key.later = !is_visible(sentence.trace.causal, row.queries.back(), sentence.words[w].tokens.front());
    std::vector<double> brings(static_cast<std::size_t>(head_size));
    for (const Index token : sentence.words[w].tokens) {
      double weight = 0;
      for (Index q = 0; q < pieces; ++q) weight += row.weights(q, token) / static_cast<double>(pieces);
      key.weight += weight;
      key.hidden = key.hidden || hidden[static_cast<std::size_t>(token)];
      for (Index d = 0; d < head_size; ++d) {
        brings[static_cast<std::size_t>(d)] += weight * static_cast<double>(trace.value(head, token, d));
      }
    }
    for (std::size_t d = 0; d < brings.size(); ++d) row.context[d] += brings[d];
    key.contribution = norm_of(through_output(output, brings));
    row.keys.push_back(key);
  }
  row.head_contribution = norm_of(through_output(output, row.context));
  row.heads_contribution = mean_norm(trace.attention_output, row.queries);
  row.input_norm = mean_norm(trace.input, row.queries);
  return row;
}

ExpandedDot expand_dot(const Sentence& sentence, const SentenceRow& row, Index query, Index key) {
  const LayerTrace& trace = sentence.trace.layers[static_cast<std::size_t>(row.layer)];
  const auto [num_heads, length, head_size] = trace.query.shape();
  check("token", key, length);
  ExpandedDot expanded{.query = query, .key = key, .dot = row.dots(piece_index(row, query), key), .terms = {}};
  for (Index d = 0; d < head_size; ++d) {
    const double q = static_cast<double>(trace.query(row.head, query, d));
    const double k = static_cast<double>(trace.key(row.head, key, d));
    expanded.terms.push_back({d, q, k, q * k});
  }
  std::sort(expanded.terms.begin(), expanded.terms.end(), [](const DotTerm& a, const DotTerm& b) {
    const double x = std::fabs(a.product), y = std::fabs(b.product);
    return x != y ? x > y : a.dimension < b.dimension;
  });
  return expanded;
}

SoftmaxTerm softmax_term(const SentenceRow& row, Index query, Index key) {
  const Index piece = piece_index(row, query);
  const Index length = row.scores.shape()[1];
  check("token", key, length);
  double most = -std::numeric_limits<double>::infinity();
  for (Index k = 0; k < length; ++k) most = std::max(most, row.scores(piece, k));
  constexpr double kLeastReadable = -3, kMaxReadable = 9;  // e^−3 is .05, e^9 is 8103
  SoftmaxTerm term{.score = row.scores(piece, key), .weight = row.weights(piece, key)};
  if (std::isinf(most)) return term;
  term.shift = most >= kLeastReadable && most <= kMaxReadable ? 0.0 : most;
  term.exponential = std::exp(term.score - term.shift);
  for (Index k = 0; k < length; ++k) term.sum += std::exp(row.scores(piece, k) - term.shift);
  return term;
}

}  // namespace regard::inline v0
