// SPDX-License-Identifier: Apache-2.0
//
// Every intermediate value of one weight, for --full: from the embedding tables to the word's vector after the layer.
//
//     word + position + type → norm → … input ─ W_query + b → q ┐
//                                      key ─ W_key   + b → k ┴ q·k → weight · v (W_value + b) → context
//     context · W_output(head) + other heads + b_output + input → norm → feed-forward, + itself → norm → output
//
// Vectors in the encoder's trace are copied; the sums between them are computed here, in double.
// Read next: include/regard/explain/sentence_report.h, sentence_text_full.cpp.
#include <algorithm>
#include <cmath>

#include "regard/error.h"
#include "regard/explain/sentence_report.h"

namespace regard::inline v0 {
namespace {

using Vector = std::vector<float>;

Vector row_of(const Tensor<float, 2>& states, Index row) {
  const Index width = states.shape()[1];
  return Vector(states.data() + row * width, states.data() + (row + 1) * width);
}

NormDetails norm_details(const std::vector<double>& x, double epsilon) {
  const double count = static_cast<double>(x.size());
  NormDetails work;
  for (const double a : x) work.mean += a / count;
  double variance = 0;
  for (const double a : x) variance += (a - work.mean) * (a - work.mean) / count;
  work.deviation = std::sqrt(variance + epsilon);
  return work;
}

std::vector<double> sum_of(const Vector& a, const Vector& b) {
  std::vector<double> sum;
  for (std::size_t e = 0; e < a.size(); ++e) sum.push_back(static_cast<double>(a[e]) + static_cast<double>(b[e]));
  return sum;
}

// One head's elements of q, k or v: x · W[:, columns of the head] + b.
std::vector<ProjectedElement> projected(const Vector& x, const TensorView<const float, 2>& parameters,
                                        const TensorView<const float, 1>& bias, const Tensor<float, 3>& values,
                                        Index head, Index token) {
  constexpr std::ptrdiff_t kNamed = 3;
  const Index head_size = values.shape()[2];
  std::vector<ProjectedElement> numbers;
  for (Index d = 0; d < head_size; ++d) {
    const Index column = head * head_size + d;
    std::vector<DotTerm> terms;
    for (std::size_t e = 0; e < x.size(); ++e) {
      const Index row = static_cast<Index>(e);
      const double a = static_cast<double>(x[e]), w = static_cast<double>(parameters(row, column));
      terms.push_back({row, a, w, a * w});
    }
    const std::ptrdiff_t named = std::min(kNamed, static_cast<std::ptrdiff_t>(terms.size()));
    std::partial_sort(terms.begin(), terms.begin() + named, terms.end(),
                      [](const DotTerm& a, const DotTerm& b) { return std::fabs(a.product) > std::fabs(b.product); });
    ProjectedElement number;
    for (auto term = terms.begin() + named; term != terms.end(); ++term) number.others += term->product;
    number.largest.assign(terms.begin(), terms.begin() + named);
    number.bias = static_cast<double>(bias(column));
    number.value = static_cast<double>(values(head, token, d));
    numbers.push_back(std::move(number));
  }
  return numbers;
}

// Adds one head's context · its rows of W_output.
void add_share(const TensorView<const float, 2>& w_output, Index head, const std::vector<double>& context,
               std::vector<double>& share) {
  const Index head_size = static_cast<Index>(context.size());
  for (Index d = 0; d < head_size; ++d) {
    for (std::size_t e = 0; e < share.size(); ++e) {
      share[e] += context[static_cast<std::size_t>(d)] *
                  static_cast<double>(w_output(head * head_size + d, static_cast<Index>(e)));
    }
  }
}

std::vector<FeedForwardUnit> feed_forward_units(const EncoderLayer& layer, const Vector& x) {
  std::vector<FeedForwardUnit> units;
  for (Index f = 0; f < layer.b_up.shape[0]; ++f) {
    FeedForwardUnit unit{.unit = f, .before = static_cast<double>(layer.b_up(f))};
    double square = 0;
    for (std::size_t e = 0; e < x.size(); ++e) {
      const Index i = static_cast<Index>(e);
      unit.before += static_cast<double>(x[e]) * static_cast<double>(layer.w_up(i, f));
      square += static_cast<double>(layer.w_down(f, i)) * static_cast<double>(layer.w_down(f, i));
    }
    unit.after = 0.5 * unit.before * (1 + std::erf(unit.before / std::sqrt(2.0)));
    unit.contribution = std::fabs(unit.after) * std::sqrt(square);
    units.push_back(unit);
  }
  std::sort(units.begin(), units.end(), [](const FeedForwardUnit& a, const FeedForwardUnit& b) {
    return a.contribution != b.contribution ? a.contribution > b.contribution : a.unit < b.unit;
  });
  return units;
}

}  // namespace

SentenceDetails sentence_details(const SentenceModel& model, const Sentence& sentence, const SentenceRow& row,
                                 Index query, Index key) {
  const auto piece = std::find(row.queries.begin(), row.queries.end(), query);
  const Index length = row.weights.shape()[1];
  if (piece == row.queries.end() || key < 0 || key >= length) {
    throw InvalidArgument("sentence_details: expected a piece of the query word and a key");
  }
  const ModelTrace& whole = sentence.trace;
  const LayerTrace& trace = whole.layers[static_cast<std::size_t>(row.layer)];
  const EncoderLayer& layer = model.encoder.layers[static_cast<std::size_t>(row.layer)];
  const double epsilon = model.encoder.config.norm_epsilon;
  const auto [num_heads, tokens, head_size] = trace.query.shape();
  SentenceDetails work{.query = query, .key = key};

  work.word = row_of(whole.word, query);
  work.position = row_of(whole.position, query);
  work.type = row_of(whole.type, query);
  work.embedded = row_of(whole.embedded, query);
  std::vector<double> summed = sum_of(work.word, work.position);
  for (std::size_t e = 0; e < summed.size(); ++e) summed[e] += static_cast<double>(work.type[e]);
  work.embedding_norm = norm_details(summed, epsilon);

  work.input = row_of(trace.input, query);
  const Vector key_input = row_of(trace.input, key);
  work.query_elements = projected(work.input, layer.w_query, layer.b_query, trace.query, row.head, query);
  work.key_elements = projected(key_input, layer.w_key, layer.b_key, trace.key, row.head, key);
  work.value_elements = projected(key_input, layer.w_value, layer.b_value, trace.value, row.head, key);

  work.context.resize(static_cast<std::size_t>(head_size));
  for (Index k = 0; k < length; ++k) {
    const double weight = row.weights(static_cast<Index>(piece - row.queries.begin()), k);
    for (Index d = 0; d < head_size; ++d) {
      work.context[static_cast<std::size_t>(d)] += weight * static_cast<double>(trace.value(row.head, k, d));
    }
  }
  work.head_share.resize(work.input.size());
  work.other_heads.resize(work.input.size());
  add_share(layer.w_output, row.head, work.context, work.head_share);
  for (Index h = 0; h < num_heads; ++h) {
    if (h == row.head) continue;
    std::vector<double> context;
    for (Index d = 0; d < head_size; ++d) context.push_back(static_cast<double>(trace.context(h, query, d)));
    add_share(layer.w_output, h, context, work.other_heads);
  }
  for (std::size_t e = 0; e < work.input.size(); ++e) work.b_output.push_back(layer.b_output(static_cast<Index>(e)));

  work.attention_output = row_of(trace.attention_output, query);
  work.attention_normed = row_of(trace.attention_normed, query);
  work.attention_norm = norm_details(sum_of(work.input, work.attention_output), epsilon);
  work.feed_forward = row_of(trace.feed_forward, query);
  work.output = row_of(trace.output, query);
  work.output_norm = norm_details(sum_of(work.attention_normed, work.feed_forward), epsilon);
  work.units = feed_forward_units(layer, work.attention_normed);
  return work;
}

}  // namespace regard::inline v0
