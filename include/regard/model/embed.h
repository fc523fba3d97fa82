// SPDX-License-Identifier: Apache-2.0
//
// Vectors of many texts at once, by an encoder: what `regard embed` and `regard similar` compute.
//
//     ids of n texts ── rows of all tokens, one text after the other, nothing padded ── layers ──▶ mean over each
//     text's tokens, [CLS] and [SEP] included ── divided by its norm ‖·‖₂ ──▶ (n, E)
//
// Read next: encoder.h, sentence.h (fitted_tokens), src/model/encoder/embed.cpp.
#pragma once

#include <span>
#include <vector>

#include "regard/model/encoder.h"

namespace regard::inline v0 {

// Row i has the bits of mean_pooled_normalised(encode(encoder, texts[i])), whatever stands beside it; a text without
// ids gives zeros. Texts run through the layers in groups of up to 480 tokens, each group on one thread, so that
// scratch does not grow with n; a single group takes all threads.
// Throws std::invalid_argument before any work: a text of more ids than positions, an id outside the vocabulary (naming
// the text, counted from 0); afterwards only std::bad_alloc and regard::Cancelled.
REGARD_EXPORT Tensor<float, 2> embed_tokens(const Encoder& encoder, std::span<const std::vector<Index>> texts,
                                            const Runtime& runtime = {});

}  // namespace regard::inline v0
