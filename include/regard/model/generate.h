// SPDX-License-Identifier: Apache-2.0
/// @file
/// Generates text with a decoder, token by token, with key/value caches.
///
/// @verbatim
///     prompt ── DecoderSession::append() ──▶ logits of the last token ── sample_token() ──▶ the next token
///                       ▲                                                                        │
///                       └───────────────────── one token at a time ──────────────────────────────┘
/// @endverbatim
///
/// The token at a position depends only on the tokens before it, the options and the seed. It depends neither on the
/// number of threads nor on the number of those tokens that belong to the prompt.
///
/// Read next: decoder_inference.h, regard/kv_cache.h, src/model/decoder/generate.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "regard/model/decoder_inference.h"

namespace regard::inline v0 {

/// The state of a decoder partway through a text: the keys and values of the tokens processed so far.
///
/// @par Example
/// @code{.cpp}
/// DecoderSession session(decoder);
/// std::span<const float> logits = session.append(prompt);       // (V), of the last token
/// logits = session.append(std::array{next});
/// @endcode
class REGARD_EXPORT DecoderSession {
 public:
  /// Creates an empty session.
  ///
  /// @param decoder   The model. The session keeps a copy, which shares the parameters.
  /// @param capacity  Maximum number of tokens, for which memory is allocated; 0 means max_positions.
  /// @throws InvalidArgument  if the capacity is negative or above max_positions.
  /// @throws std::bad_alloc   if memory cannot be allocated.
  explicit DecoderSession(const Decoder& decoder, Index capacity = 0);
  ~DecoderSession();
  DecoderSession(DecoderSession&&) noexcept;             ///< Moves; the moved-from object can only be destroyed.
  DecoderSession& operator=(DecoderSession&&) noexcept;  ///< Moves; the moved-from object can only be destroyed.

  /// Returns the number of tokens in the session.
  Index length() const;
  /// Returns the maximum number of tokens.
  Index capacity() const;

  /// Appends tokens and computes the logits at the last position.
  ///
  /// If the call throws, the session is unchanged.
  ///
  /// @param ids      Token ids, at least one.
  /// @param runtime  Threads, scratch memory and cancellation.
  /// @return The logits, (V), valid until the next call.
  /// @throws InvalidArgument  before any work is done, if ids is empty, if length() would exceed capacity(), or if an
  ///                          id is outside the vocabulary.
  /// @throws std::bad_alloc   if memory cannot be allocated.
  /// @throws Cancelled        if a stop is requested.
  ///
  /// @par Reproducibility
  /// The logits are bit-identical to DecoderTrace::logits for any number of threads, regardless of how the tokens are
  /// divided among calls.
  std::span<const float> append(std::span<const Index> ids, const Runtime& runtime = {});

  /// Removes all tokens except the first ones.
  ///
  /// @param length  Number of tokens to keep.
  /// @throws InvalidArgument  if length is negative or above length().
  void truncate(Index length);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Options for choosing the next token. By default, the token is drawn from the model's distribution.
struct SamplingOptions {
  double temperature = 1;  ///< Divisor of the logits, at least 0; with 0, the largest logit is chosen (greedy).
  Index top_k = 0;         ///< Number of tokens with the largest logits that are kept, at least 0; 0 means all.
  /// Only the smallest set of most probable tokens whose probabilities sum to at least this value is kept. The value
  /// must be above 0 and at most 1.
  ///
  /// The probabilities are computed after temperature and top_k have been applied. At least one token is kept.
  double top_p = 1;
  std::uint64_t seed = 0;  ///< Seed of the random draw.
};

/// Chooses a token from its logits.
///
/// @code{.unparsed}
/// probability = softmax(logits / temperature) over the tokens that top_k and top_p keep
/// token       = the first one for which Σ probability > random_uniform(seed, kSamplingStream, position)
/// @endcode
///
/// In this formula, and for top_k, top_p and the choice of the largest logit, tokens are sorted by descending logit;
/// tokens with equal logits are sorted by ascending id.
///
/// @param logits    Logits, (V); a token with logit −∞ is never chosen unless all logits are −∞.
/// @param options   Temperature, filters and seed.
/// @param position  Index of the token in the text.
/// @return The id of the token.
/// @throws InvalidArgument  if logits is empty, if a logit is NaN or +∞, or if an option is out of range.
///
/// Sources: Fan, Lewis and Dauphin, "Hierarchical neural story generation", 2018 (top_k); Holtzman et al., "The curious
/// case of neural text degeneration", 2020 (top_p).
///
/// @par Example
/// @code{.cpp}
/// const Index next = sample_token(logits, {.temperature = 0.8, .top_k = 40, .seed = 7}, session.length());
/// @endcode
REGARD_EXPORT Index sample_token(std::span<const float> logits, const SamplingOptions& options, Index position);

/// Stream of random_uniform() that sample_token() draws from.
inline constexpr std::uint64_t kSamplingStream = 0x67656e6572617465;

/// Checks sampling options.
///
/// @param options  The options.
/// @throws InvalidArgument  "sampling: temperature is X; expected …" if an option is out of range.
REGARD_EXPORT void check_sampling(const SamplingOptions& options);

/// Options for generate().
struct GenerateOptions {
  Index max_tokens = 256;      ///< Maximum number of tokens to generate, at least 0.
  SamplingOptions sampling{};  ///< Options for choosing each token.
  /// Called with each token as soon as it is generated. Generation ends when the function returns false. The function
  /// may be empty.
  std::function<bool(Index id)> on_token{};
};

/// The reason why generation ended.
enum class GenerationEnd {
  tokens,   ///< max_tokens tokens were generated.
  context,  ///< The model has no positions left.
  caller    ///< GenerateOptions::on_token returned false.
};

/// Generated tokens.
struct Generated {
  std::vector<Index> ids;                     ///< The generated ids, without the prompt.
  GenerationEnd end = GenerationEnd::tokens;  ///< The reason why generation ended.
};

/// Continues a prompt.
///
/// A prompt of max_positions tokens is continued by one token, because the last token of a text needs no position.
///
/// @param decoder  The model.
/// @param prompt   Token ids, at least one.
/// @param options  Number of tokens, sampling and callback.
/// @param runtime  Threads, scratch memory and cancellation.
/// @return The generated tokens.
/// @throws InvalidArgument  before any work is done, if the prompt is empty, is longer than max_positions or contains
///                          an id outside the vocabulary, or if an option is out of range.
/// @throws DataError        if a logit is not finite because parameters of the model are too large or not finite. The
///                          message states the file and the position.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Reproducibility
/// The tokens are the same for any number of threads.
///
/// @par Example
/// @code{.cpp}
/// const Generated text = generate(decoder, vocabulary.encode("Once "), {.max_tokens = 100});
/// @endcode
REGARD_EXPORT Generated generate(const Decoder& decoder, std::span<const Index> prompt,
                                 const GenerateOptions& options = {}, const Runtime& runtime = {});

}  // namespace regard::inline v0
