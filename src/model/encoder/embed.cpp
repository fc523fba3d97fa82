// SPDX-License-Identifier: Apache-2.0
//
// embed_tokens: processes texts in groups, one thread per group. The tokens of a group are the rows of one matrix, and
// `starts` marks where each text begins.
//
//     starts     0        9                 25   31      attention: a query attends to the keys of its own text
//     rows       [ text 0 ][     text 1     ][ 2 ]       linear layers and norms: independent rows
//
// Each row is bit-identical regardless of the other texts.
// Read next: encoder_layers.cpp.
#include "regard/model/embed.h"

#include <fmt/format.h>

#include <algorithm>

#include "encoder_layers.h"
#include "model/pooling.h"
#include "regard/layer_norm.h"
#include "regard/parallel.h"

namespace regard::inline v0 {
namespace {

// Products process 60 rows at a time. Groups of eight times as many tokens reuse each matrix often enough, and keep
// what a layer writes in nearby caches.
constexpr Index kBlockTokens = 60;
constexpr Index kGroupTokens = 8 * kBlockTokens;

// The embedded tokens of a group: norm(word + type + position).
Tensor<float, 2> embedded(const Encoder& encoder, std::span<const std::vector<Index>> texts, Index num_tokens,
                          const Runtime& runtime) {
  const Index width = encoder.config.width;
  Tensor<float, 2> word_and_type({num_tokens, width});
  Tensor<float, 2> position({num_tokens, width});
  Index row = 0;
  for (const std::vector<Index>& ids : texts) {
    for (std::size_t i = 0; i < ids.size(); ++i, ++row) {
      for (Index e = 0; e < width; ++e) {
        word_and_type(row, e) = encoder.word_table(ids[i], e) + encoder.type_table(0, e);
        position(row, e) = encoder.position_table(static_cast<Index>(i), e);
      }
    }
  }
  Tensor<float, 2> result({num_tokens, width});
  layer_norm_forward<float>(word_and_type.view(), position.view(), encoder.norm_embedding_gain,
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
  AttentionOptions options;
  options.query_starts = options.key_starts = starts;
  for (const EncoderLayer& layer : encoder.layers) {
    throw_if_stopped(runtime.stop, "embed_tokens");
    internal::run_layer(encoder, layer, states.view(), options, {}, rows, runtime);
    std::swap(states, rows.output);
  }
  const auto width = static_cast<std::size_t>(encoder.config.width);
  for (std::size_t text = 0; text < texts.size(); ++text) {
    const std::vector<float> vector =
        internal::normalized(internal::mean_of_rows(states, starts[text], starts[text + 1]));
    std::copy(vector.begin(), vector.end(), vectors.begin() + static_cast<std::ptrdiff_t>(text * width));
  }
}

// The end of each group of texts: groups are large enough to occupy every thread, and have at most kGroupTokens tokens
// unless a single text has more.
std::vector<std::size_t> group_ends(std::span<const std::vector<Index>> texts, const Runtime& runtime) {
  Index num_tokens = 0;
  for (const std::vector<Index>& ids : texts) num_tokens += static_cast<Index>(ids.size());
  const Index threads = runtime.num_threads > 0 ? runtime.num_threads : default_num_threads();
  const Index blocks = (num_tokens + threads * kBlockTokens - 1) / (threads * kBlockTokens);
  const Index max_tokens = std::clamp(blocks * kBlockTokens, kBlockTokens, kGroupTokens);
  std::vector<std::size_t> ends;
  Index tokens = 0;
  for (std::size_t text = 0; text < texts.size(); ++text) {
    const auto length = static_cast<Index>(texts[text].size());
    if (tokens > 0 && tokens + length > max_tokens) {
      ends.push_back(text);
      tokens = 0;
    }
    tokens += length;
  }
  if (!texts.empty()) ends.push_back(texts.size());
  return ends;
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
  const std::vector<std::size_t> ends = group_ends(texts, runtime);
  const auto embed = [&](std::size_t group, const Runtime& one) {
    const std::size_t first = group == 0 ? 0 : ends[group - 1];
    const std::size_t count = ends[group] - first;
    embed_group(encoder, texts.subspan(first, count), all.subspan(first * width, count * width), one);
  };
  if (ends.size() == 1) {
    embed(0, runtime);
  } else {
    parallel_for(
        static_cast<Index>(ends.size()),
        [&](Index group, const Runtime& one) { embed(static_cast<std::size_t>(group), one); }, runtime);
  }
  return vectors;
}

}  // namespace regard::inline v0
