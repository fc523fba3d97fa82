// SPDX-License-Identifier: Apache-2.0
//
// embed_tokens: texts in groups; the tokens of a group are the rows of one matrix, and starts say whose they are.
//
//     starts     0        9                 25   31      attention: a query sees the keys of its own text
//     rows       [ text 0 ][     text 1     ][ 2 ]       linear layers and norms: rows are rows
//
// No row depends on another text's, in any bit. Read next: encoder_layers.cpp.
#include "regard/embed.h"

#include <fmt/format.h>

#include "encoder_layers.h"
#include "pooling.h"
#include "regard/layer_norm.h"

namespace regard {
inline namespace v0 {
namespace {

// Enough rows for every thread, and few enough for what a layer writes to stay near the processor.
constexpr Index kGroupTokens = 2048;

// The embedded tokens of a group: norm(word + type + place).
Tensor<float, 2> embedded(const Encoder& encoder, std::span<const std::vector<Index>> texts, Index num_tokens,
                          const Runtime& runtime) {
  const Index width = encoder.config.width;
  Tensor<float, 2> word_and_type({num_tokens, width});
  Tensor<float, 2> place({num_tokens, width});
  Index row = 0;
  for (const std::vector<Index>& ids : texts) {
    for (std::size_t i = 0; i < ids.size(); ++i, ++row) {
      for (Index e = 0; e < width; ++e) {
        word_and_type(row, e) = encoder.word_table(ids[i], e) + encoder.type_table(0, e);
        place(row, e) = encoder.place_table(static_cast<Index>(i), e);
      }
    }
  }
  Tensor<float, 2> result({num_tokens, width});
  layer_norm_forward<float>(word_and_type.view(), place.view(), encoder.norm_embedding_gain,
                            encoder.norm_embedding_bias, result.view(), encoder.config.norm_epsilon, runtime);
  return result;
}

void embed_group(const Encoder& encoder, std::span<const std::vector<Index>> texts, std::span<float> vectors,
                 const Runtime& runtime) {
  std::vector<Index> starts{0};
  for (const std::vector<Index>& ids : texts) starts.push_back(starts.back() + static_cast<Index>(ids.size()));
  const Index num_tokens = starts.back();
  Tensor<float, 2> states = embedded(encoder, texts, num_tokens, runtime);
  internal::LayerRows rows(num_tokens, encoder.config);
  AttentionOptions<float> options;
  options.query_starts = options.key_starts = starts;
  for (const EncoderLayer& layer : encoder.layers) {
    internal::poll("embed_tokens", runtime);
    internal::run_layer(encoder, layer, states.view(), options, {}, rows, runtime);
    std::swap(states, rows.output);
  }
  const auto width = static_cast<std::size_t>(encoder.config.width);
  for (std::size_t text = 0; text < texts.size(); ++text) {
    const std::vector<float> vector =
        internal::normalised(internal::mean_of_rows(states, starts[text], starts[text + 1]));
    std::copy(vector.begin(), vector.end(), vectors.begin() + static_cast<std::ptrdiff_t>(text * width));
  }
}

}  // namespace

Tensor<float, 2> embed_tokens(const Encoder& encoder, std::span<const std::vector<Index>> texts,
                              const Runtime& runtime) {
  for (std::size_t text = 0; text < texts.size(); ++text) {
    internal::check_ids(fmt::format("embed_tokens: text {}", text), encoder.config, texts[text]);
  }
  const auto width = static_cast<std::size_t>(encoder.config.width);
  Tensor<float, 2> vectors({static_cast<Index>(texts.size()), encoder.config.width});
  const std::span<float> all(vectors.data(), texts.size() * width);
  for (std::size_t first = 0; first < texts.size();) {
    std::size_t end = first;
    for (Index tokens = 0; end < texts.size(); ++end) {
      tokens += static_cast<Index>(texts[end].size());
      if (end > first && tokens > kGroupTokens) break;
    }
    embed_group(encoder, texts.subspan(first, end - first), all.subspan(first * width, (end - first) * width), runtime);
    first = end;
  }
  return vectors;
}

}  // namespace v0
}  // namespace regard
