// SPDX-License-Identifier: Apache-2.0
//
// What the explanation of a sentence reads from a model, whether it is an encoder or a decoder.
//
//     x (E) · weight (E, D) + bias (D)  ──▶  query, key or value of one head      with rotary position embeddings,
//     then context (D) · output (D, E)       ──▶  the head's contribution              query and key are rotated
//
// Read next: sentence_model.cpp, sentence_row.cpp, sentence_details.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "regard/explain/sentence.h"

namespace regard::inline v0 {

// An encoder with its tokenizer. Throws DataError if the tokenizer has more tokens than the encoder.
SentenceModel encoder_model(std::string name, Encoder encoder, Tokenizer tokenizer);

// One head's columns of a projection, and its bias, which may be absent.
struct HeadProjection {
  TensorView<const float, 2> weight;  // (E, D)
  TensorView<const float, 1> bias;    // (D)
  double bias_at(Index d) const { return bias.absent() ? 0.0 : static_cast<double>(bias(d)); }
};
struct HeadProjections {
  HeadProjection query, key, value;
  TensorView<const float, 2> output;  // the head's rows of W_output, (D, E)
};
HeadProjections head_projections(const SentenceModel& model, Index layer, Index head);
// The bias of the output projection, which may be absent.
TensorView<const float, 1> output_bias(const SentenceModel& model, Index layer);

// The vectors that a layer projects to query, key and value.
inline const Tensor<float, 2>& projected_input(const LayerTrace& trace) {
  return trace.attention_input.size() > 0 ? trace.attention_input : trace.input;
}
// Whether query and key are rotated by their position after they are projected.
bool rotates(const SentenceModel& model);

// Whether a query token can attend to a key token, apart from hidden keys.
inline bool is_visible(bool causal, Index query, Index key) { return !causal || key <= query; }

// The words to which a name, as for word_index(), refers: one, none, or several with the same spelling.
std::vector<Index> words_named(const std::vector<SentenceWord>& words, std::string_view name);

// The tokens of a text for a decoder: each is a word.
TokenizedText decoder_tokens(const Vocabulary& vocabulary, std::string_view text, const std::stop_token& stop);

Tensor<float, 2> head_output_of(const SentenceModel& model, const ModelTrace& trace, Index layer, Index head,
                                const Runtime& runtime);
Tensor<double, 2> value_norms_of(const SentenceModel& model, const ModelTrace& trace, Index layer,
                                 const Runtime& runtime);

}  // namespace regard::inline v0
