// SPDX-License-Identifier: Apache-2.0
/// @file
/// Computes sentence vectors of many texts with an encoder, as `regard embed` and `regard similar` do.
///
/// @verbatim
///     token ids of n texts ── one row per token, texts concatenated, no padding ── layers
///         ──▶ mean over each text's tokens, including [CLS] and [SEP] ── divided by its L2 norm ‖·‖₂ ──▶ (n, E)
/// @endverbatim
///
/// E is the width of the model. docs/guide/sentence-vectors.md gives the formula, and docs/reference/model.md describes
/// the encoder.
///
/// Read next: encoder.h, sentence.h (fitted_tokens), src/model/encoder/embed.cpp.
#pragma once

#include <span>
#include <vector>

#include "regard/model/encoder.h"

namespace regard::inline v0 {

/// Computes the vector of each text: the mean of its tokens' states after the last layer, normalized to L2 norm 1.
///
/// Texts are processed in groups of up to 480 tokens, as packed sequences. A longer text forms a separate group. Each
/// group runs on one thread, so scratch memory does not grow with n; a single group uses all threads.
///
/// A token attends only to tokens of its own text. The mask of a group of two texts with 2 tokens each:
/// @verbatim
///     1 1 0 0
///     1 1 0 0
///     0 0 1 1
///     0 0 1 1
/// @endverbatim
///
/// @param encoder  The model.
/// @param texts    Token ids of n texts, including [CLS] and [SEP]; at most max_positions ids per text.
/// @param runtime  Threads, scratch memory and cancellation.
/// @return One vector per text, (n, E). A text without ids yields a zero vector.
/// @throws InvalidArgument  before any work is done, if a text has more ids than the model has positions, or if an id
///                          is outside the vocabulary. The message states the zero-based index of the text.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Reproducibility
/// Row i is bit-identical to `mean_pooled_normalized(encode(encoder, texts[i]))`, regardless of the other texts.
///
/// @par Example
/// @code{.cpp}
/// const std::vector<std::vector<Index>> texts{tokenizer.encode("a walk by the water").ids};
/// const Tensor<float, 2> vectors = embed_tokens(encoder, texts);  // (1, E)
/// @endcode
REGARD_EXPORT Tensor<float, 2> embed_tokens(const Encoder& encoder, std::span<const std::vector<Index>> texts,
                                            const Runtime& runtime = {});

}  // namespace regard::inline v0
