// SPDX-License-Identifier: Apache-2.0
//
// encode: a text's token ids through an encoder, every number kept.
//
//     embedded = norm(word + place + type)
//     per layer:  attention_normed = norm(input + attention(input))          multi_head.h
//                 output = norm(attention_normed + down(gelu(up(attention_normed))))   linear.h
//
// Norm, gelu and the sums are plain loops, in double until a result is stored: they take a few milliseconds of a
// sentence, and exact beats fast there. Read next: encoder_views.cpp, docs/model.md.
#include "regard/encoder.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <stdexcept>

#include "encoder_mask.h"
#include "regard/linear.h"
#include "regard/multi_head.h"

namespace regard {
inline namespace v0 {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("encode: " + what); }

void check(const Encoder& encoder, std::span<const Index> ids, const EncoderOptions& options) {
  const auto length = static_cast<Index>(ids.size());
  if (length > encoder.config.max_positions) {
    refuse(fmt::format("{} tokens; this model has places for {}", length, encoder.config.max_positions));
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= encoder.config.vocabulary) {
      refuse(fmt::format("token {} has id {}; expected 0 to {}", i, ids[i], encoder.config.vocabulary - 1));
    }
  }
  for (Index key : options.hidden_keys) {
    if (key < 0 || key >= length) {
      refuse(fmt::format("hidden key {} is no token; the text has {}, counted from 0", key, length));
    }
  }
}

void poll(const Runtime& runtime) {
  if (runtime.stop.stop_requested()) throw cancelled("encode was stopped");
}

Tensor<float, 2> add(const Tensor<float, 2>& a, const Tensor<float, 2>& b) {
  Tensor<float, 2> sum(a.shape());
  for (Index i = 0; i < sum.size(); ++i) sum.data()[i] = a.data()[i] + b.data()[i];
  return sum;
}

// (x − mean) / √(variance + epsilon) · gain + bias, row by row.
Tensor<float, 2> norm(const Tensor<float, 2>& x, const TensorView<const float, 1>& gain,
                      const TensorView<const float, 1>& bias, double epsilon) {
  const auto [length, width] = x.shape();
  Tensor<float, 2> result(x.shape());
  for (Index i = 0; i < length; ++i) {
    double mean = 0;
    for (Index e = 0; e < width; ++e) mean += static_cast<double>(x(i, e));
    mean /= static_cast<double>(width);
    double variance = 0;
    for (Index e = 0; e < width; ++e) {
      const double distance = static_cast<double>(x(i, e)) - mean;
      variance += distance * distance;
    }
    variance /= static_cast<double>(width);
    const double deviation = std::sqrt(variance + epsilon);
    for (Index e = 0; e < width; ++e) {
      const double normed = (static_cast<double>(x(i, e)) - mean) / deviation;
      result(i, e) = static_cast<float>(normed * static_cast<double>(gain(e)) + static_cast<double>(bias(e)));
    }
  }
  return result;
}

// Hendrycks and Gimpel, arXiv 1606.08415, equation 1; not the approximation by tanh.
float gelu(float number) {
  const auto x = static_cast<double>(number);
  return static_cast<float>(0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)));
}

Tensor<float, 2> linear(const Tensor<float, 2>& input, const TensorView<const float, 2>& parameters,
                        const TensorView<const float, 1>& bias, const Runtime& runtime) {
  Tensor<float, 2> output({input.shape()[0], parameters.shape[1]});
  linear_forward(input.view(), parameters, bias, output.view(), runtime);
  return output;
}

Tensor<float, 2> feed_forward(const Tensor<float, 2>& input, const EncoderLayer& layer, const Runtime& runtime) {
  Tensor<float, 2> inner = linear(input, layer.w_up, layer.b_up, runtime);
  const auto [length, columns] = inner.shape();
  for (Index i = 0; i < length; ++i) {
    poll(runtime);
    for (Index f = 0; f < columns; ++f) inner(i, f) = gelu(inner(i, f));
  }
  return linear(inner, layer.w_down, layer.b_down, runtime);
}

void attend(const EncoderLayer& layer, const EncoderConfig& config, const AttentionOptions<float>& options,
            LayerTrace& trace, const Runtime& runtime) {
  const auto [length, width] = trace.input.shape();
  const std::array<Index, 3> by_head{config.num_heads, length, config.head_size()};
  for (Tensor<float, 3>* tensor : {&trace.query, &trace.key, &trace.value, &trace.context}) {
    *tensor = Tensor<float, 3>(by_head);
  }
  trace.row_max = Tensor<float, 2>({config.num_heads, length});
  trace.row_sum = Tensor<float, 2>({config.num_heads, length});
  trace.attention_output = Tensor<float, 2>({length, width});

  MultiHeadParameters<float> parameters;
  parameters.num_heads = config.num_heads;
  parameters.w_query = layer.w_query;
  parameters.w_key = layer.w_key;
  parameters.w_value = layer.w_value;
  parameters.w_output = layer.w_output;
  parameters.b_query = layer.b_query;
  parameters.b_key = layer.b_key;
  parameters.b_value = layer.b_value;
  parameters.b_output = layer.b_output;
  MultiHeadOutputs<float> outputs;
  outputs.output = one_batch(trace.attention_output.view());
  outputs.query = one_batch(trace.query.view());
  outputs.key = one_batch(trace.key.view());
  outputs.value = one_batch(trace.value.view());
  outputs.context = one_batch(trace.context.view());
  outputs.row_max = one_batch(trace.row_max.view());
  outputs.row_sum = one_batch(trace.row_sum.view());
  multi_head_attention_forward<float>(one_batch(trace.input.view()), {}, parameters, outputs, options, runtime);
}

}  // namespace

EncoderTrace encode(const Encoder& encoder, std::span<const Index> ids, const EncoderOptions& options,
                    const Runtime& runtime) {
  check(encoder, ids, options);
  const EncoderConfig& config = encoder.config;
  const auto length = static_cast<Index>(ids.size());

  EncoderTrace trace;
  trace.ids.assign(ids.begin(), ids.end());
  trace.hidden_keys = options.hidden_keys;
  for (Tensor<float, 2>* rows : {&trace.word, &trace.place, &trace.type}) {
    *rows = Tensor<float, 2>({length, config.width});
  }
  for (Index i = 0; i < length; ++i) {
    const Index id = ids[static_cast<std::size_t>(i)];
    for (Index e = 0; e < config.width; ++e) {
      trace.word(i, e) = encoder.word_table(id, e);
      trace.place(i, e) = encoder.place_table(i, e);
      trace.type(i, e) = encoder.type_table(0, e);
    }
  }
  trace.embedded = norm(add(add(trace.word, trace.type), trace.place), encoder.norm_embedding_gain,
                        encoder.norm_embedding_bias, config.norm_epsilon);

  const KeyMask mask(length, options.hidden_keys);
  trace.layers.resize(encoder.layers.size());
  for (std::size_t n = 0; n < encoder.layers.size(); ++n) {
    const EncoderLayer& layer = encoder.layers[n];
    LayerTrace& t = trace.layers[n];
    t.input = n == 0 ? trace.embedded : trace.layers[n - 1].output;
    poll(runtime);
    attend(layer, config, mask.options(), t, runtime);
    t.attention_normed = norm(add(t.input, t.attention_output), layer.norm_attention_gain, layer.norm_attention_bias,
                              config.norm_epsilon);
    t.feed_forward = feed_forward(t.attention_normed, layer, runtime);
    t.output = norm(add(t.attention_normed, t.feed_forward), layer.norm_output_gain, layer.norm_output_bias,
                    config.norm_epsilon);
  }
  return trace;
}

}  // namespace v0
}  // namespace regard
