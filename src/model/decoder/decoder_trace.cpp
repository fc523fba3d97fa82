// SPDX-License-Identifier: Apache-2.0
//
// decode_trace: runs the token ids of a text through a decoder and keeps every intermediate value.
//
//     embedded = word + position
//     per layer:  residual = input + attention(norm(input))
//                 output = residual + feed_forward(norm(residual))
//     logits = norm(output of the last layer) · w_logits
//
// Read next: decoder_layers.cpp, src/model/trace.cpp.
#include <fmt/format.h>

#include "decoder_layers.h"
#include "model/trace_mask.h"
#include "model/trace_views.h"
#include "regard/attention.h"
#include "regard/error.h"

namespace regard::inline v0 {
namespace {

using internal::DecoderHeads;
using internal::DecoderRows;

void check_decode(const Decoder& decoder, std::span<const Index> ids, const DecodeOptions& options) {
  internal::check_decoder_ids("decode_trace", decoder.config, 0, ids);
  const auto length = static_cast<Index>(ids.size());
  for (Index key : options.hidden_keys) {
    if (key >= 0 && key < length) continue;
    throw InvalidArgument(fmt::format(
        "decode_trace: hidden key {} does not exist; the text has {} tokens, numbered from 0", key, length));
  }
}

// (1, Hkv, L, D), strided, as (H, L, D): each key/value head is repeated for the query heads that share it.
Tensor<float, 3> for_query_heads(const TensorView<const float, 4>& view, Index num_heads) {
  const auto [batch, kv_heads, length, head_size] = view.shape;
  Tensor<float, 3> result({num_heads, length, head_size});
  for (Index h = 0; h < num_heads; ++h) {
    for (Index i = 0; i < length; ++i) {
      for (Index d = 0; d < head_size; ++d) result(h, i, d) = view(0, h / (num_heads / kv_heads), i, d);
    }
  }
  return result;
}

void keep_layer(DecoderRows& rows, const DecoderConfig& config, LayerTrace& trace) {
  const DecoderHeads heads = internal::heads_of(rows, config);
  trace.query = for_query_heads(heads.query, config.num_heads);
  trace.key = for_query_heads(heads.key, config.num_heads);
  trace.value = for_query_heads(heads.value, config.num_heads);
  trace.context = for_query_heads(heads.context, config.num_heads);
  trace.attention_input = rows.normed;
  trace.attention_output = rows.attention_output;
  trace.residual = rows.residual;
  trace.attention_normed = rows.normed_residual;
  trace.feed_forward = rows.feed_forward;
  trace.output = config.feed_forward_kind == FeedForwardKind::none ? rows.residual : rows.output;
}

const LayerTrace& decoder_layer_of(const char* operation, const Decoder& decoder, const ModelTrace& trace,
                                   Index layer) {
  const DecoderConfig& config = decoder.config;
  return internal::checked_layer(operation, {config.num_layers, config.num_heads, config.head_size}, trace, layer);
}

}  // namespace

DecoderTrace decode_trace(const Decoder& decoder, std::span<const Index> ids, const DecodeOptions& options,
                          const Runtime& runtime) {
  check_decode(decoder, ids, options);
  const DecoderConfig& config = decoder.config;
  const auto length = static_cast<Index>(ids.size());

  DecoderTrace trace;
  trace.ids.assign(ids.begin(), ids.end());
  trace.hidden_keys = options.hidden_keys;
  trace.causal = true;
  trace.word = Tensor<float, 2>({length, config.width});
  if (config.positions == PositionKind::learned) trace.position = Tensor<float, 2>({length, config.width});
  internal::embed_ids(decoder, ids, 0, trace.word, trace.position);
  trace.embedded = trace.word;
  if (config.positions == PositionKind::learned) internal::add_rows(trace.word, trace.position, trace.embedded);

  const TraceMask mask(length, options.hidden_keys, true);
  DecoderRows rows(length, config);
  trace.layers.resize(decoder.layers.size());
  for (std::size_t n = 0; n < decoder.layers.size(); ++n) {
    throw_if_stopped(runtime.stop, "decode_trace");
    LayerTrace& t = trace.layers[n];
    t.input = n == 0 ? trace.embedded : trace.layers[n - 1].output;
    t.row_max = Tensor<float, 2>({config.num_heads, length});
    t.row_sum = Tensor<float, 2>({config.num_heads, length});
    const auto attend = [&](const DecoderHeads& heads) {
      const AttentionOutputs outputs{
          .context = heads.context, .row_max = one_batch(t.row_max.view()), .row_sum = one_batch(t.row_sum.view())};
      attention_forward(heads.query, heads.key, heads.value, outputs, mask.options(), runtime);
    };
    internal::run_decoder_layer(decoder, decoder.layers[n], t.input, 0, attend, rows, runtime);
    keep_layer(rows, config, t);
  }
  if (!options.logits) return trace;
  trace.normed = Tensor<float, 2>({length, config.width});
  internal::norm_rows(config, trace.output().view(), decoder.norm_gain, decoder.norm_bias, trace.normed, runtime);
  trace.logits = Tensor<float, 2>({length, config.vocabulary});
  linear_forward<float>(trace.normed.view(), decoder.packed_logits, {}, trace.logits.view(), {}, runtime);
  return trace;
}

Tensor<float, 2> head_output(const Decoder& decoder, const ModelTrace& trace, Index layer, Index head,
                             const Runtime& runtime) {
  const LayerTrace& t = decoder_layer_of("head_output", decoder, trace, layer);
  internal::check_index("head_output", "head", head, decoder.config.num_heads);
  return internal::through_output(decoder.layers[static_cast<std::size_t>(layer)].w_output, head, t.context, runtime);
}

Tensor<double, 2> value_norms(const Decoder& decoder, const ModelTrace& trace, Index layer, const Runtime& runtime) {
  const LayerTrace& t = decoder_layer_of("value_norms", decoder, trace, layer);
  return internal::value_norms_of(decoder.layers[static_cast<std::size_t>(layer)].w_output, t, runtime);
}

}  // namespace regard::inline v0
