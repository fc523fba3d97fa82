// SPDX-License-Identifier: Apache-2.0
//
// A sentence in a real model: its words, and every number that the encoder computed for them.
//
//     text ── Tokenizer ──▶ pieces ── encode ──▶ trace;     pieces of one word belong together:
//     "embeddings"  =  em ##bed ##ding ##s                  its vector is the mean of theirs, its attention the sum
//     over
//                                                           keys and the mean over queries
//
// Words and tokens count from 0, [CLS] included. Read next: encoder.h, tokenizer.h, src/explain/sentence/sentence.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "regard/model/encoder.h"
#include "regard/model/tokenizer.h"

namespace regard::inline v0 {

// A folder as Hugging Face lays it out: config.json, tokenizer.json, model.safetensors. Copies share memory.
struct SentenceModel {
  std::string folder;
  Encoder encoder;
  Tokenizer tokenizer;
};
// Throws regard::DataError as load_encoder and Tokenizer::read_folder do, and when the tokenizer has more tokens than
// the encoder's table has rows; regard::Cancelled where runtime.stop is requested.
REGARD_EXPORT SentenceModel load_sentence_model(const std::string& folder, const ModelFileOptions& options = {},
                                                const Runtime& runtime = {});

// A word as people name it. What the model sets around a text, [CLS] and [SEP], are words of one token, marked.
struct SentenceWord {
  std::string text;           // as written; "[CLS]"
  std::vector<Index> tokens;  // its pieces
  bool special = false;
  bool unknown = false;  // the vocabulary cannot spell it: the model sees [UNK], as for every such word
  // Split into pieces that the vocabulary has; an unknown word may be several tokens, too.
  bool split() const { return !unknown && tokens.size() > 1; }
};

struct SentenceOptions {
  std::vector<std::string> hide;  // words, as word_index takes them: keys that no query sees, in any layer
  bool truncate = false;          // keep the first max_positions − 1 tokens and the last ([SEP]), instead of rejecting
};

struct Sentence {
  std::string text;
  TokenizedText tokens;  // after the cut, if there was one
  std::vector<SentenceWord> words;
  std::vector<Index> hidden;       // words, rising
  Index num_truncated_tokens = 0;  // how many tokens the cut took away
  EncoderTrace trace;
};

// A text's tokens as the model takes them.
struct FittedTokens {
  TokenizedText tokens;
  Index num_truncated_tokens = 0;  // how many there were more
};
// With truncate the first max_positions − 1 and the last are kept. Throws std::invalid_argument for a text of more
// tokens than the model has positions, with both counts, and as Tokenizer::encode does.
REGARD_EXPORT FittedTokens fitted_tokens(const SentenceModel& model, std::string_view text, bool truncate = false,
                                         const Runtime& runtime = {});

// Throws std::invalid_argument as fitted_tokens does, for a word to
// hide that is not there, and as encode does; regard::DataError naming layer, array and token where the model's
// parameters, too large or not finite themselves, give this text a number that is not finite.
REGARD_EXPORT Sentence read_sentence(const SentenceModel& model, std::string_view text,
                                     const SentenceOptions& options = {}, const Runtime& runtime = {});

// The index of a word: WORD, WORD#1 for its second occurrence counted from 0, or @INDEX, the word that token INDEX
// belongs to. Where no word is written so, case is passed over. Throws std::invalid_argument for a word that is not
// there, or stands several times without #: naming the choices.
REGARD_EXPORT Index word_index(const std::vector<SentenceWord>& words, std::string_view name);

// The shortest name of each word that word_index takes: "river", and "can#1" where "can" occurs more than once.
REGARD_EXPORT std::vector<std::string> word_names(const std::vector<SentenceWord>& words);

// "†" for an unknown word, "‡" for a split one, else nothing: what stands behind a word wherever it is shown.
REGARD_EXPORT std::string_view word_mark(const SentenceWord& word);

// Throws std::invalid_argument for a text without any word: empty, or only spaces.
REGARD_EXPORT void check_has_words(const std::vector<SentenceWord>& words);

// One sentence where two or more words, and at least a quarter of all, are unknown or split: the text is likely to be
// in a language that the model was not trained on. Empty otherwise. docs/sentence.md says where the quarter comes from.
REGARD_EXPORT std::string vocabulary_warning(const std::vector<SentenceWord>& words);

// The attention of words to words in one head: (W, W), the mean over the query word's pieces of the sum over the key
// word's. Rows sum to 1. From encoder_weights of that layer: (H, L, L).
REGARD_EXPORT Tensor<double, 2> word_weights(const Sentence& sentence, const Tensor<float, 3>& weights, Index head);

// The rows of one word in every head: (N, H, W).
REGARD_EXPORT Tensor<double, 3> word_attention(const Sentence& sentence, Index word, const Runtime& runtime = {});

// A word's vector in states (L, E): the mean of its pieces.
REGARD_EXPORT std::vector<float> word_vector(const Sentence& sentence, const Tensor<float, 2>& states, Index word);

// The cosine of two vectors, in double; 0 where one is 0. Throws std::invalid_argument for different lengths.
REGARD_EXPORT double cosine(std::span<const float> a, std::span<const float> b);

}  // namespace regard::inline v0
