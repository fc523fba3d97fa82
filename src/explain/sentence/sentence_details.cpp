// SPDX-License-Identifier: Apache-2.0
//
// Every intermediate value of one weight, for --full: from the embedding tables to the word's vector after the layer.
//
//     encoder   word + position + type → norm → … input ─ W_query + b → q ┐
//                                                  key ─ W_key   + b → k ┴ q·k → weight · v (W_value + b) → context
//               context · W_output(head) + other heads + b_output + input → norm → feed-forward, + itself → norm →
//               output
//     decoder   word + position → … input → norm ─ W_query … as above … → context
//               context · W_output(head) + other heads + b_output + input → residual → norm → feed-forward, + residual
//
// Vectors in the trace are copied; the sums between them are computed here, in double.
// Read next: include/regard/explain/sentence_report.h, sentence_text_full.cpp.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "regard/error.h"
#include "regard/explain/sentence_report.h"
#include "sentence_model.h"

namespace regard::inline v0 {
namespace {

using Vector = std::vector<float>;

Vector row_of(const Tensor<float, 2>& states, Index row) {
  const Index width = states.shape()[1];
  return Vector(states.data() + row * width, states.data() + (row + 1) * width);
}

NormDetails norm_details(const std::vector<double>& x, double epsilon, bool rms = false) {
  const double count = static_cast<double>(x.size());
  NormDetails work;
  if (!rms) {
    for (const double a : x) work.mean += a / count;
  }
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

// One head's elements of q, k or v: x · W + b. If `rotated`, the trace has them only after the rotation.
std::vector<ProjectedElement> projected(const Vector& x, const HeadProjection& projection,
                                        const Tensor<float, 3>& values, Index head, Index token, bool rotated) {
  constexpr std::ptrdiff_t kNamed = 3;
  const Index head_size = values.shape()[2];
  std::vector<ProjectedElement> numbers;
  for (Index d = 0; d < head_size; ++d) {
    std::vector<DotTerm> terms;
    for (std::size_t e = 0; e < x.size(); ++e) {
      const Index row = static_cast<Index>(e);
      const double a = static_cast<double>(x[e]), w = static_cast<double>(projection.weight(row, d));
      terms.push_back({row, a, w, a * w});
    }
    const std::ptrdiff_t named = std::min(kNamed, static_cast<std::ptrdiff_t>(terms.size()));
    std::partial_sort(terms.begin(), terms.begin() + named, terms.end(),
                      [](const DotTerm& a, const DotTerm& b) { return std::fabs(a.product) > std::fabs(b.product); });
    ProjectedElement number;
    for (auto term = terms.begin() + named; term != terms.end(); ++term) number.others += term->product;
    number.largest.assign(terms.begin(), terms.begin() + named);
    number.bias = projection.bias_at(d);
    if (rotated) {
      number.value = number.others + number.bias;
      for (const DotTerm& term : number.largest) number.value += term.product;
    } else {
      number.value = static_cast<double>(values(head, token, d));
    }
    numbers.push_back(std::move(number));
  }
  return numbers;
}

// Adds one head's context · its rows of W_output.
void add_share(const TensorView<const float, 2>& output, const std::vector<double>& context,
               std::vector<double>& share) {
  const Index head_size = static_cast<Index>(context.size());
  for (Index d = 0; d < head_size; ++d) {
    for (std::size_t e = 0; e < share.size(); ++e)
      share[e] += context[static_cast<std::size_t>(d)] * static_cast<double>(output(d, static_cast<Index>(e)));
  }
}

// The matrices of a feed-forward layer. Biases and the gate may be absent.
struct FeedForwardParameters {
  TensorView<const float, 2> gate, up, down;
  TensorView<const float, 1> b_gate, b_up;
};
FeedForwardParameters feed_forward_parameters(const SentenceModel& model, Index layer) {
  const auto n = static_cast<std::size_t>(layer);
  if (!model.trained) {
    const EncoderLayer& l = model.encoder.layers[n];
    return {.gate = {}, .up = l.w_up, .down = l.w_down, .b_gate = {}, .b_up = l.b_up};
  }
  const DecoderLayer& l = model.trained->decoder.layers[n];
  return {.gate = l.w_gate, .up = l.w_up, .down = l.w_down, .b_gate = l.b_gate, .b_up = l.b_up};
}

double activated(double x, std::string_view activation) {
  if (activation == "relu") return std::max(x, 0.0);
  if (activation == "gelu_tanh") {
    const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1 + std::tanh(u));
  }
  if (activation == "swiglu") return x / (1 + std::exp(-x));
  return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
}

std::vector<FeedForwardUnit> feed_forward_units(const FeedForwardParameters& layer, const Vector& x,
                                                std::string_view activation) {
  const auto product = [&x](const TensorView<const float, 2>& w, const TensorView<const float, 1>& bias, Index f) {
    double sum = bias.absent() ? 0.0 : static_cast<double>(bias(f));
    for (std::size_t e = 0; e < x.size(); ++e)
      sum += static_cast<double>(x[e]) * static_cast<double>(w(static_cast<Index>(e), f));
    return sum;
  };
  std::vector<FeedForwardUnit> units;
  for (Index f = 0; f < layer.up.shape[1]; ++f) {
    FeedForwardUnit unit{.unit = f, .before = product(layer.up, layer.b_up, f)};
    double square = 0;
    for (std::size_t e = 0; e < x.size(); ++e) {
      const Index i = static_cast<Index>(e);
      square += static_cast<double>(layer.down(f, i)) * static_cast<double>(layer.down(f, i));
    }
    if (layer.gate.absent()) {
      unit.after = activated(unit.before, activation);
    } else {
      unit.gate = product(layer.gate, layer.b_gate, f);
      unit.after = activated(unit.gate, activation) * unit.before;
    }
    unit.contribution = std::fabs(unit.after) * std::sqrt(square);
    units.push_back(unit);
  }
  std::sort(units.begin(), units.end(), [](const FeedForwardUnit& a, const FeedForwardUnit& b) {
    return a.contribution != b.contribution ? a.contribution > b.contribution : a.unit < b.unit;
  });
  return units;
}

// What differs between the families: the embedding, the norm before attention, and that after the layer.
void encoder_details(const SentenceModel& model, const ModelTrace& whole, SentenceDetails& work) {
  const double epsilon = model.encoder.config.norm_epsilon;
  work.type = row_of(whole.type, work.query);
  std::vector<double> summed = sum_of(work.word, work.position);
  for (std::size_t e = 0; e < summed.size(); ++e) summed[e] += static_cast<double>(work.type[e]);
  work.embedding_norm = norm_details(summed, epsilon);
  work.attention_norm = norm_details(sum_of(work.input, work.attention_output), epsilon);
  work.output_norm = norm_details(sum_of(work.attention_normed, work.feed_forward), epsilon);
}
void decoder_details(const SentenceModel& model, const LayerTrace& trace, SentenceDetails& work) {
  const DecoderConfig& config = model.trained->decoder.config;
  work.rms_norm = config.norm == NormKind::rms;
  work.activation = kFeedForwardNames[static_cast<std::size_t>(config.feed_forward_kind)];
  work.rotated = rotates(model);
  work.attention_input = row_of(trace.attention_input, work.query);
  work.residual = row_of(trace.residual, work.query);
  const auto as_double = [](const Vector& x) { return std::vector<double>(x.begin(), x.end()); };
  work.input_norm = norm_details(as_double(work.input), config.norm_epsilon, work.rms_norm);
  work.attention_norm = norm_details(as_double(work.residual), config.norm_epsilon, work.rms_norm);
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
  const auto [num_heads, tokens, head_size] = trace.query.shape();
  const auto row_if_any = [](const Tensor<float, 2>& states, Index token) {
    return states.size() > 0 ? row_of(states, token) : Vector();
  };
  SentenceDetails work{.query = query, .key = key};
  work.word = row_of(whole.word, query);
  work.position = row_if_any(whole.position, query);
  work.embedded = row_of(whole.embedded, query);
  work.input = row_of(trace.input, query);
  work.attention_output = row_of(trace.attention_output, query);
  work.attention_normed = row_if_any(trace.attention_normed, query);
  work.feed_forward = row_if_any(trace.feed_forward, query);
  work.output = row_of(trace.output, query);
  if (model.trained) {
    decoder_details(model, trace, work);
  } else {
    encoder_details(model, whole, work);
  }

  const Vector query_input = row_of(projected_input(trace), query), key_input = row_of(projected_input(trace), key);
  const HeadProjections projections = head_projections(model, row.layer, row.head);
  work.query_elements = projected(query_input, projections.query, trace.query, row.head, query, work.rotated);
  work.key_elements = projected(key_input, projections.key, trace.key, row.head, key, work.rotated);
  work.value_elements = projected(key_input, projections.value, trace.value, row.head, key, false);

  work.context.resize(static_cast<std::size_t>(head_size));
  for (Index k = 0; k < length; ++k) {
    const double weight = row.weights(static_cast<Index>(piece - row.queries.begin()), k);
    for (Index d = 0; d < head_size; ++d) {
      work.context[static_cast<std::size_t>(d)] += weight * static_cast<double>(trace.value(row.head, k, d));
    }
  }
  work.head_share.resize(work.input.size());
  work.other_heads.resize(work.input.size());
  add_share(projections.output, work.context, work.head_share);
  for (Index h = 0; h < num_heads; ++h) {
    if (h == row.head) continue;
    std::vector<double> context;
    for (Index d = 0; d < head_size; ++d) context.push_back(static_cast<double>(trace.context(h, query, d)));
    add_share(head_projections(model, row.layer, h).output, context, work.other_heads);
  }
  const TensorView<const float, 1> b_output = output_bias(model, row.layer);
  for (Index e = 0; e < b_output.shape[0]; ++e) work.b_output.push_back(b_output(e));
  if (!work.attention_normed.empty())
    work.units = feed_forward_units(feed_forward_parameters(model, row.layer), work.attention_normed, work.activation);
  return work;
}

}  // namespace regard::inline v0
