// SPDX-License-Identifier: Apache-2.0
//
// Generation: a session keeps the keys and values of each layer in a KvCache, and appends the rows of new tokens.
//
//     append(ids):  kChunk tokens at a time   embedded ─▶ layer 0 ─▶ … ─▶ layer N − 1       key, value ─▶ cache of
//     the layer
//                   of the last token only                                    └─▶ norm ─▶ logits
//
// Read next: decoder_layers.cpp, sampling.cpp.
#include "regard/model/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "decoder_layers.h"
#include "regard/error.h"
#include "regard/io/utf8.h"
#include "regard/kv_cache.h"

namespace regard::inline v0 {
namespace {

// Tokens of a prompt that are computed at once: enough to reuse each matrix, few enough to keep the rows in caches.
constexpr Index kChunk = 256;

}  // namespace

struct DecoderSession::State {
  State(const Decoder& given, Index asked)
      : decoder(given),
        capacity(asked == 0 ? given.config.max_positions : asked),
        logits({1, given.config.vocabulary}) {
    const DecoderConfig& config = decoder.config;
    if (asked < 0 || capacity > config.max_positions) {
      throw InvalidArgument(fmt::format("DecoderSession: capacity is {}; expected 0 to max_positions, which is {}",
                                        asked, config.max_positions));
    }
    for (Index layer = 0; layer < config.num_layers; ++layer) {
      caches.emplace_back(KvCacheShape{.num_sequences = 1,
                                       .num_kv_heads = config.num_kv_heads,
                                       .head_size = config.head_size,
                                       .value_head_size = config.head_size,
                                       .capacity = capacity});
    }
  }

  void append_chunk(std::span<const Index> ids, bool is_last, const Runtime& runtime) {
    const DecoderConfig& config = decoder.config;
    const auto count = static_cast<Index>(ids.size());
    const Index first = length;
    Tensor<float, 2> tokens({count, config.width}), positions({count, config.width}), states({count, config.width});
    internal::embed_ids(decoder, ids, first, tokens, positions);
    if (config.positions == PositionKind::learned) {
      internal::add_rows(tokens, positions, states);
    } else {
      states = std::move(tokens);
    }
    internal::DecoderRows rows(count, config);
    for (std::size_t n = 0; n < decoder.layers.size(); ++n) {
      throw_if_stopped(runtime.stop, "generate");
      KvCache<float>& cache = caches[n];
      const auto attend = [&](const internal::DecoderHeads& heads) {
        cache.append(heads.key, heads.value, {}, runtime.stop);
        attention_decode(heads.query, cache, {.context = heads.context}, {.causal = true}, runtime);
      };
      internal::run_decoder_layer(decoder, decoder.layers[n], states, first, attend, rows, runtime);
      std::swap(states, config.feed_forward_kind == FeedForwardKind::none ? rows.residual : rows.output);
    }
    if (is_last) {
      const TensorView<const float, 2> last(&states(count - 1, 0), {1, config.width});
      Tensor<float, 2> normed({1, config.width});
      internal::norm_rows(config, last, decoder.norm_gain, decoder.norm_bias, normed, runtime);
      linear_forward<float>(normed.view(), decoder.packed_logits, {}, logits.view(), {}, runtime);
    }
    length += count;
  }

  void truncate(Index kept) {
    for (KvCache<float>& cache : caches) cache.truncate(0, std::min(kept, cache.length(0)));
    length = kept;
  }

  Decoder decoder;
  Index capacity;
  Index length = 0;
  std::vector<KvCache<float>> caches;  // of each layer
  Tensor<float, 2> logits;             // (1, V)
};

DecoderSession::DecoderSession(const Decoder& decoder, Index capacity)
    : state_(std::make_unique<State>(decoder, capacity)) {}
DecoderSession::~DecoderSession() = default;
DecoderSession::DecoderSession(DecoderSession&&) noexcept = default;
DecoderSession& DecoderSession::operator=(DecoderSession&&) noexcept = default;

Index DecoderSession::length() const { return state_->length; }
Index DecoderSession::capacity() const { return state_->capacity; }

std::span<const float> DecoderSession::append(std::span<const Index> ids, const Runtime& runtime) {
  State& state = *state_;
  if (ids.empty()) throw InvalidArgument("DecoderSession: there are no ids; expected at least one");
  const Index before = state.length;
  const auto count = static_cast<Index>(ids.size());
  if (count > state.capacity - before) {
    throw InvalidArgument(fmt::format("DecoderSession: {} tokens after {}; expected at most {} in total, the capacity",
                                      count, before, state.capacity));
  }
  internal::check_decoder_ids("DecoderSession", state.decoder.config, before, ids);
  try {
    for (Index done = 0; done < count; done += kChunk) {
      const Index next = std::min(kChunk, count - done);
      state.append_chunk(ids.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(next)),
                         done + next == count, runtime);
    }
  } catch (...) {
    state.truncate(before);
    throw;
  }
  return {state.logits.data(), static_cast<std::size_t>(state.logits.size())};
}

void DecoderSession::truncate(Index length) {
  if (length < 0 || length > state_->length)
    throw InvalidArgument(
        fmt::format("DecoderSession: length is {}; expected 0 to {}, the number of tokens", length, state_->length));
  state_->truncate(length);
}

Generated generate(const Decoder& decoder, std::span<const Index> prompt, const GenerateOptions& options,
                   const Runtime& runtime) {
  check_sampling(options.sampling);
  if (options.max_tokens < 0)
    throw InvalidArgument(fmt::format("generate: max_tokens is {}; expected at least 0", options.max_tokens));
  if (prompt.empty()) throw InvalidArgument("generate: the prompt has no tokens; expected at least one");
  internal::check_decoder_ids("generate", decoder.config, 0, prompt);
  Generated generated;
  if (options.max_tokens == 0) return generated;
  const Index positions = decoder.config.max_positions;
  const auto given = static_cast<Index>(prompt.size());
  DecoderSession session(decoder, given + std::min(positions - given, options.max_tokens));
  std::span<const float> logits = session.append(prompt, runtime);
  for (;;) {
    if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); })) {
      throw DataError(fmt::format(
          "{}: the logits at position {} are not finite: parameters are too large or not finite",
          escape_for_terminal(decoder.checkpoint ? decoder.checkpoint->name() : "decoder"), session.length() - 1));
    }
    const Index id = sample_token(logits, options.sampling, session.length());
    generated.ids.push_back(id);
    if (options.on_token && !options.on_token(id)) {
      generated.end = GenerationEnd::caller;
      return generated;
    }
    if (static_cast<Index>(generated.ids.size()) == options.max_tokens) return generated;
    if (session.length() == positions) {
      generated.end = GenerationEnd::context;
      return generated;
    }
    logits = session.append(std::span(&id, 1), runtime);
  }
}

}  // namespace regard::inline v0
