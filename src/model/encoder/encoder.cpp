// SPDX-License-Identifier: Apache-2.0
//
// encode: runs the token ids of a text through an encoder and keeps every intermediate value.
//
//     embedded = norm(word + position + type)
//     per layer:  attention_normed = norm(input + attention(input))
//                 output = norm(attention_normed + down(gelu(up(attention_normed))))
//
// Read next: encoder_layers.cpp, encoder_views.cpp, docs/reference/model.md.
#include "regard/model/encoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "encoder_layers.h"
#include "model/trace_mask.h"
#include "regard/error.h"
#include "regard/layer_norm.h"

namespace regard::inline v0 {
namespace {

using internal::heads_of;
using internal::LayerRows;
using internal::Projection;

void check(const Encoder& encoder, std::span<const Index> ids, const EncoderOptions& options) {
  internal::check_ids("encode", encoder.config, ids);
  const auto length = static_cast<Index>(ids.size());
  for (Index key : options.hidden_keys) {
    if (key >= 0 && key < length) continue;
    throw InvalidArgument(
        fmt::format("encode: hidden key {} does not exist; the text has {} tokens, numbered from 0", key, length));
  }
  for (Index row : options.last_rows) {
    if (row >= 0 && row < length) continue;
    throw InvalidArgument(
        fmt::format("encode: row {} does not exist; the text has {} tokens, numbered from 0", row, length));
  }
}

void copy_row(const Tensor<float, 2>& from, Index row, Tensor<float, 2>& to, Index to_row) {
  const Index width = from.shape()[1];
  std::copy_n(from.data() + row * width, width, to.data() + to_row * width);
}

// finish_layer() for some rows; all others are 0.
void finish_rows(const Encoder& encoder, const EncoderLayer& layer, const Tensor<float, 2>& input,
                 const std::vector<Index>& wanted, LayerRows& rows, const Runtime& runtime) {
  const auto count = static_cast<Index>(wanted.size());
  Tensor<float, 2> some_input({count, encoder.config.width});
  LayerRows some(count, encoder.config);
  for (Index i = 0; i < count; ++i) {
    const Index row = wanted[static_cast<std::size_t>(i)];
    copy_row(input, row, some_input, i);
    copy_row(rows.context, row, some.context, i);
  }
  internal::finish_layer(encoder, layer, some_input.view(), some, runtime);
  for (const auto member :
       {&LayerRows::attention_output, &LayerRows::attention_normed, &LayerRows::feed_forward, &LayerRows::output}) {
    Tensor<float, 2>& all = rows.*member;
    std::fill_n(all.data(), all.size(), 0.0F);
    for (Index i = 0; i < count; ++i) copy_row(some.*member, i, all, wanted[static_cast<std::size_t>(i)]);
  }
}

// (1, H, L, D), strided, as (H, L, D).
Tensor<float, 3> by_head(const TensorView<const float, 4>& view) {
  Tensor<float, 3> result({view.shape[1], view.shape[2], view.shape[3]});
  for (Index h = 0; h < view.shape[1]; ++h) {
    for (Index i = 0; i < view.shape[2]; ++i) {
      for (Index d = 0; d < view.shape[3]; ++d) result(h, i, d) = view(0, h, i, d);
    }
  }
  return result;
}

void keep(LayerRows& rows, const EncoderConfig& config, LayerTrace& trace) {
  trace.query = by_head(heads_of(rows.projected, Projection::query, config));
  trace.key = by_head(heads_of(rows.projected, Projection::key, config));
  trace.value = by_head(heads_of(rows.projected, Projection::value, config));
  trace.context = by_head(heads_of(rows.context, config));
  trace.attention_output = rows.attention_output;
  trace.attention_normed = rows.attention_normed;
  trace.feed_forward = rows.feed_forward;
  trace.output = rows.output;
}

}  // namespace

ModelTrace encode(const Encoder& encoder, std::span<const Index> ids, const EncoderOptions& options,
                  const Runtime& runtime) {
  check(encoder, ids, options);
  const EncoderConfig& config = encoder.config;
  const auto length = static_cast<Index>(ids.size());

  ModelTrace trace;
  trace.ids.assign(ids.begin(), ids.end());
  trace.hidden_keys = options.hidden_keys;
  for (Tensor<float, 2>* rows : {&trace.word, &trace.position, &trace.type, &trace.embedded}) {
    *rows = Tensor<float, 2>({length, config.width});
  }
  Tensor<float, 2> word_and_type({length, config.width});
  for (Index i = 0; i < length; ++i) {
    const Index id = ids[static_cast<std::size_t>(i)];
    for (Index e = 0; e < config.width; ++e) {
      trace.word(i, e) = encoder.word_table(id, e);
      trace.position(i, e) = encoder.position_table(i, e);
      trace.type(i, e) = encoder.type_table(0, e);
      word_and_type(i, e) = trace.word(i, e) + trace.type(i, e);
    }
  }
  layer_norm_forward<float>(word_and_type.view(), trace.position.view(), encoder.norm_embedding_gain,
                            encoder.norm_embedding_bias, trace.embedded.view(), config.norm_epsilon, runtime);

  const TraceMask mask(length, options.hidden_keys, trace.causal);
  LayerRows rows(length, config);
  trace.layers.resize(encoder.layers.size());
  for (std::size_t n = 0; n < encoder.layers.size(); ++n) {
    LayerTrace& t = trace.layers[n];
    t.input = n == 0 ? trace.embedded : trace.layers[n - 1].output;
    t.row_max = Tensor<float, 2>({config.num_heads, length});
    t.row_sum = Tensor<float, 2>({config.num_heads, length});
    throw_if_stopped(runtime.stop, "encode");
    AttentionOutputs sums;
    sums.row_max = one_batch(t.row_max.view());
    sums.row_sum = one_batch(t.row_sum.view());
    if (n + 1 < encoder.layers.size() || options.last_rows.empty()) {
      internal::run_layer(encoder, encoder.layers[n], t.input.view(), mask.options(), sums, rows, runtime);
    } else {
      internal::attend(encoder, encoder.layers[n], t.input.view(), mask.options(), sums, rows, runtime);
      finish_rows(encoder, encoder.layers[n], t.input, options.last_rows, rows, runtime);
    }
    keep(rows, config, t);
  }
  return trace;
}

}  // namespace regard::inline v0
