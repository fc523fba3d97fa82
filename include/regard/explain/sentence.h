// SPDX-License-Identifier: Apache-2.0
/// @file
/// A sentence as processed by a model: its words, and all values that the model computes for them.
///
/// @verbatim
///     text ── Tokenizer ──▶ pieces ── encode ──▶ trace                an encoder
///     text ── Vocabulary ─▶ tokens ── decode_trace ──▶ trace          a decoder trained by Regard
///
///     "embeddings"  =  em ##bed ##ding ##s      vector: mean over the pieces
///                                               attention: sum over the key's pieces, mean over the query's pieces
/// @endverbatim
///
/// For a decoder, each token forms its own word, there are no special tokens, and a token attends only to itself and to
/// the tokens before it.
///
/// Words and tokens are numbered from 0, including [CLS]. Extents: L tokens, W words, N layers, H heads, width E.
/// docs/guide/sentence.md specifies the results, and docs/reference/model.md describes the models.
///
/// Read next: encoder.h, tokenizer.h, src/explain/sentence/sentence.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/model/encoder.h"
#include "regard/model/tokenizer.h"
#include "regard/train/trained_model.h"

namespace regard::inline v0 {

/// The extents of a model.
struct ModelExtents {
  Index num_layers = 0;     ///< N, number of layers.
  Index num_heads = 0;      ///< H, number of query heads.
  Index head_size = 0;      ///< D, size of a head.
  Index width = 0;          ///< E, size of the residual stream.
  Index max_positions = 0;  ///< P, maximum number of tokens.
  bool causal = false;      ///< Whether the model is a decoder: tokens attend only to themselves and to earlier tokens.
};

/// A model with its tokenizer or vocabulary: an encoder with a tokenizer, or a decoder with a vocabulary. Copies share
/// the memory of the parameters.
struct SentenceModel {
  std::string folder;                     ///< The folder that the model was loaded from, or its name.
  Encoder encoder{};                      ///< The encoder; without layers if the model is a decoder.
  std::optional<Tokenizer> tokenizer{};   ///< The tokenizer of the encoder.
  std::optional<TrainedModel> trained{};  ///< The decoder with its vocabulary.
  std::string known_sha256{};             ///< Result of sha256(), if already known; see ModelInMemory::sha256.

  /// Returns the extents of the encoder or of the decoder.
  REGARD_EXPORT ModelExtents extents() const;
  /// Returns the SHA-256 of the checkpoint; empty if the parameters do not come from files.
  ///
  /// @param stop  Stop token, polled while the bytes are read.
  /// @return 64 hex digits.
  /// @throws Cancelled  if a stop is requested.
  REGARD_EXPORT std::string sha256(const std::stop_token& stop = {}) const;
  /// Runs the model: encode(), or decode_trace() without logits.
  ///
  /// @param ids          Token ids, (L).
  /// @param hidden_keys  Indices of tokens that no query attends to.
  /// @param runtime      Threads, scratch memory and cancellation.
  /// @param last_rows    Indices of tokens whose vectors after an encoder's last layer are needed, as in
  ///                     EncoderOptions.
  /// @return All intermediate results.
  /// @throws InvalidArgument  as encode() and decode_trace() do.
  /// @throws Cancelled        if a stop is requested.
  REGARD_EXPORT ModelTrace trace(std::span<const Index> ids, std::vector<Index> hidden_keys,
                                 const Runtime& runtime = {}, std::vector<Index> last_rows = {}) const;
};

/// Loads either a model from a folder in the Hugging Face layout (config.json, tokenizer.json and model.safetensors) or
/// the model of a training run (load_trained_model()).
///
/// @param folder   Path of the folder.
/// @param options  File reading options and limits.
/// @param runtime  Threads, scratch memory and cancellation.
/// @return The model.
/// @throws DataError  as load_encoder(), Tokenizer::read_folder() and load_trained_model() do, and if the tokenizer has
///                    more tokens than the encoder's word embedding table has rows.
/// @throws Cancelled  if a stop is requested.
REGARD_EXPORT SentenceModel load_sentence_model(const std::string& folder, const ModelFileOptions& options = {},
                                                const Runtime& runtime = {});

/// The files of an encoder, in memory.
struct ModelInMemory {
  std::string name;            ///< Name of the model, displayed in place of a folder.
  std::string config_json;     ///< The text of config.json.
  std::string tokenizer_json;  ///< The text of tokenizer.json.
  /// The tokenizer, if tokenizer.json has already been read; in that case, tokenizer_json is not used.
  std::optional<Tokenizer> tokenizer{};
  SharedBytes safetensors{};  ///< The bytes of model.safetensors.
  std::string sha256{};       ///< SHA-256 of these bytes, which is not verified; if empty, it is computed when needed.
};
/// Loads an encoder and its tokenizer from memory. No file is opened.
///
/// @param files    The files. The bytes of the tensors are not copied; the model keeps them alive.
/// @param options  Limits, and whether NaN and ±∞ are accepted.
/// @param runtime  Threads, scratch memory and cancellation.
/// @return The model that load_sentence_model() would return for a folder with the same files.
/// @throws DataError  as load_sentence_model() does; the message states the model's name in place of the folder's path.
/// @throws Cancelled  if a stop is requested.
REGARD_EXPORT SentenceModel read_sentence_model(const ModelInMemory& files, const ModelFileOptions& options = {},
                                                const Runtime& runtime = {});

/// Reads the folder of an encoder and rounds its matrices (regard/io/rounding.h). Tensors that the encoder does not use
/// are omitted.
///
/// @param folder   Path of the folder.
/// @param type     Type to which matrices are rounded: `int8` or `float16`.
/// @param name     Name of the rounded model.
/// @param options  File reading options and limits.
/// @param stop     Stop token.
/// @return The files of the rounded model, for read_sentence_model(). The same folder produces the same bytes on every
///         machine.
/// @throws DataError        as load_sentence_model() does for the files of an encoder, and as round_tensors() does.
/// @throws InvalidArgument  as round_tensors() does.
/// @throws Cancelled        if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const SentenceModel model =
///     read_sentence_model(rounded_model("all-MiniLM-L6-v2", ElementType::int8, "all-MiniLM-L6-v2 in int8"));
/// @endcode
REGARD_EXPORT ModelInMemory rounded_model(const std::string& folder, ElementType type, std::string name,
                                          const ModelFileOptions& options = {}, const std::stop_token& stop = {});

/// A word of a sentence.
///
/// The special tokens that an encoder expects around a text, [CLS] and [SEP], are words with one token, marked as
/// special. Each token of a decoder is a word; whitespace is written as "␣", "⇥" and "↵".
struct SentenceWord {
  std::string text;           ///< The word as spelled in the text, or the name of a special token, such as "[CLS]".
  std::vector<Index> tokens;  ///< Token indices of its pieces.
  bool special = false;       ///< Whether the word is a special token around the text.
  /// Whether the word cannot be formed from pieces of the vocabulary, in which case the model receives [UNK] instead.
  bool unknown = false;
  /// Returns whether the word is split into pieces of the vocabulary. An unknown word does not count as split, even if
  /// it has several tokens.
  bool split() const { return !unknown && tokens.size() > 1; }
};

/// Options for read_sentence().
struct SentenceOptions {
  /// Words to hide as keys, specified as for word_index(). No query attends to them, in any layer, but they still act
  /// as queries.
  ///
  /// The mask of a 4-token text whose second token is hidden (rows are queries, columns are keys):
  /// @verbatim
  ///     1 0 1 1
  ///     1 0 1 1
  ///     1 0 1 1
  ///     1 0 1 1
  /// @endverbatim
  std::vector<std::string> hide;
  /// Whether to truncate a text that is too long, instead of rejecting it: an encoder keeps its first max_positions − 1
  /// tokens and the last one ([SEP]), a decoder its first max_positions tokens.
  bool truncate = false;
  /// Word whose vector after the last layer is needed, specified as for word_index(); see EncoderOptions::last_rows. If
  /// it is empty or does not name exactly one word, the vectors of all words are computed.
  std::string only{};
};

/// A sentence and all intermediate results that the model computed for it.
struct Sentence {
  std::string text;                 ///< The whole text, as given.
  TokenizedText tokens;             ///< The tokens, after truncation.
  std::vector<SentenceWord> words;  ///< The words of these tokens, in order, including special tokens.
  std::vector<Index> hidden;        ///< Indices of the hidden words, in ascending order.
  Index num_truncated_tokens = 0;   ///< Number of tokens that truncation removed.
  ModelTrace trace;                 ///< All intermediate results of the model.
};

/// The tokens of a text, fitted to the maximum length that the model accepts.
struct FittedTokens {
  TokenizedText tokens;            ///< The tokens, after truncation.
  Index num_truncated_tokens = 0;  ///< Number of tokens that truncation removed.
};
/// Tokenizes a text and checks that the model has enough positions for it.
///
/// @param model     The model.
/// @param text      The text.
/// @param truncate  Whether to truncate a text that is too long, as in SentenceOptions.
/// @param stop      Stop token.
/// @return The tokens.
/// @throws InvalidArgument  as Tokenizer::encode() and Vocabulary::encode() do, and if the text has more tokens than
///                          the model has positions and `truncate` is not set. The message states both counts.
/// @throws Cancelled        if a stop is requested.
REGARD_EXPORT FittedTokens fitted_tokens(const SentenceModel& model, std::string_view text, bool truncate = false,
                                         const std::stop_token& stop = {});

/// Runs the model on one sentence.
///
/// @param model    The model.
/// @param text     The sentence.
/// @param options  Hidden words, truncation and required vectors.
/// @param runtime  Threads, scratch memory and cancellation.
/// @return The sentence with all intermediate results.
/// @throws InvalidArgument  as fitted_tokens() and SentenceModel::trace() do, and as word_index() does for a word
///                          to hide.
/// @throws DataError        if a computed value is not finite because parameters of the model are too large or are not
///                          finite. The message states the layer, the array and the token.
/// @throws Cancelled        if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const SentenceModel model = load_sentence_model("all-MiniLM-L6-v2");
/// const Sentence sentence = read_sentence(model, "he sat on the bank of the river", {.hide = {"river"}});
/// @endcode
REGARD_EXPORT Sentence read_sentence(const SentenceModel& model, std::string_view text,
                                     const SentenceOptions& options = {}, const Runtime& runtime = {});

/// Finds a word by name.
///
/// @code{.unparsed}
/// WORD      the word
/// WORD#1    its second occurrence (occurrences are numbered from 0)
/// @INDEX    the word that contains token INDEX
/// @endcode
///
/// If no word matches exactly, the case of ASCII letters is ignored.
///
/// @param words  The words of a sentence.
/// @param name   The name.
/// @return Index of the word.
/// @throws InvalidArgument  if the word does not occur, or if it occurs several times and is named without `#`. The
///                          message lists the choices.
///
/// @par Example
/// @code{.cpp}
/// const Index river = word_index(sentence.words, "river");
/// @endcode
REGARD_EXPORT Index word_index(const std::vector<SentenceWord>& words, std::string_view name);

/// Returns, for each word, the shortest name that word_index() accepts: `river`, and `can#1` where `can` occurs more
/// than once.
///
/// @param words  The words of a sentence.
/// @return One name for each word.
REGARD_EXPORT std::vector<std::string> word_names(const std::vector<SentenceWord>& words);

/// Returns the mark that is shown after a word: "†" for an unknown word, "‡" for a split one, otherwise none.
///
/// @param word  The word.
/// @return The mark.
REGARD_EXPORT std::string_view word_mark(const SentenceWord& word);

/// Checks that a model is an encoder.
///
/// @param model  The model.
/// @param what   Name of the function that requires an encoder, for example "compare".
/// @throws InvalidArgument  if it is a decoder. The message states its folder.
REGARD_EXPORT void check_is_encoder(const SentenceModel& model, std::string_view what);

/// Checks that a text contains a word: that it is not empty and does not consist only of spaces.
///
/// @param words  The words of a sentence.
/// @throws InvalidArgument  if all words are special tokens.
REGARD_EXPORT void check_has_words(const std::vector<SentenceWord>& words);

/// Returns a warning if two or more words, and at least a quarter of all words, are unknown or split.
///
/// Such a text is likely to be in a language that the model was not trained on. docs/guide/sentence.md explains the
/// threshold. Special tokens do not count.
///
/// @param words  The words of a sentence.
/// @return One sentence, or an empty string.
REGARD_EXPORT std::string vocabulary_warning(const std::vector<SentenceWord>& words);

/// Computes the attention between words in one head.
///
/// The weights are summed over the pieces of the key word and averaged over the pieces of the query word.
///
/// @param sentence  The sentence.
/// @param weights   Result of trace_weights() for one layer, (H, L, L).
/// @param head      Zero-based head index.
/// @return Query words by key words, (W, W). Each row sums to 1.
///
/// @par Example
/// @code{.cpp}
/// const Tensor<double, 2> weights = word_weights(sentence, trace_weights(sentence.trace, 0), 4);  // layer 0, head 4
/// @endcode
REGARD_EXPORT Tensor<double, 2> word_weights(const Sentence& sentence, const Tensor<float, 3>& weights, Index head);

/// Computes the attention of one word in every head, that is, the word's row of word_weights().
///
/// @param sentence  The sentence.
/// @param word      Index of the query word.
/// @param runtime   Threads, scratch memory and cancellation.
/// @return One row for each layer and head, (N, H, W).
REGARD_EXPORT Tensor<double, 3> word_attention(const Sentence& sentence, Index word, const Runtime& runtime = {});

/// Computes the vector of a word: the mean of the vectors of its pieces.
///
/// @param sentence  The sentence.
/// @param states    States of the sentence's tokens, (L, E).
/// @param word      Index of the word.
/// @return The vector, (E).
///
/// @par Example
/// @code{.cpp}
/// const std::vector<float> bank = word_vector(sentence, sentence.trace.output(), word_index(sentence.words, "bank"));
/// @endcode
REGARD_EXPORT std::vector<float> word_vector(const Sentence& sentence, const Tensor<float, 2>& states, Index word);

/// Computes the cosine similarity between two vectors, in double.
///
/// @param a  The first vector.
/// @param b  The second vector, of the same length.
/// @return The cosine similarity; 0 if either vector is zero.
/// @throws InvalidArgument  if the lengths differ.
REGARD_EXPORT double cosine(std::span<const float> a, std::span<const float> b);

}  // namespace regard::inline v0
