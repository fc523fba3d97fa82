// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts text to the token ids that a pretrained BERT-family model expects, using the tokenizer.json file of a
/// Hugging Face folder.
///
/// @verbatim
///     text    Don't embed!
///     words          Don    '      t      embed         !             split at spaces and around punctuation
///     tokens  [CLS]  don    '      t      em     ##bed  !      [SEP]  longest pieces of the vocabulary
///     ids     101    2123   1005   1056   7861   8270   999    102
///     word    −1     0      1      2      3      3      4      −1
/// @endverbatim
///
/// The ids are identical to those of Hugging Face's tokenizers 0.23. docs/reference/tokenizer.md describes the rules
/// and their corner cases. WordPiece: Devlin et al., BERT, 2018 (arXiv:1810.04805).
///
/// Read next: src/model/tokenizer/tokenizer.cpp, include/regard/model/encoder.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/export.h"
#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// The result of tokenizing a text. ids, tokens, word and byte_ranges have one entry per token, in order.
///
/// Texts and vocabularies may contain anything: print tokens and words only through escape_for_terminal()
/// (regard/io/utf8.h) or a similar function.
struct TokenizedText {
  /// Ids, including the special tokens that the model expects around a text: [CLS] … [SEP].
  std::vector<Index> ids;
  /// Tokens as spelled in the vocabulary: "em", "##bed".
  std::vector<std::string> tokens;
  /// For each token, the index of its word in `words`, in ascending order; −1 for the special tokens around the text.
  ///
  /// A [MASK] or [SEP] that is part of the text counts as one of its words.
  std::vector<Index> word;
  /// For each token, the byte range [begin, end) of the text that it represents; {0, 0} where `word` is −1.
  ///
  /// The range of a letter includes its accents, even if the token does not contain them. Tokens that represent the
  /// same character have the same range.
  std::vector<std::array<Index, 2>> byte_ranges;
  /// The words as spelled in the text.
  ///
  /// Words are separated by spaces. Every punctuation mark and every CJK ideograph is a word of its own.
  std::vector<std::string> words;
};

/// Limits for untrusted files and texts. The first three can be set to values from 1 to 2³¹ − 1.
struct TokenizerOptions {
  Index max_tokens = Index{1} << 22;       ///< Maximum number of tokens in the vocabulary.
  Index max_token_bytes = 4096;            ///< Maximum size of a token, in bytes.
  Index max_text_bytes = Index{64} << 20;  ///< Maximum size of tokenizer.json and of a text to encode, in bytes.
  /// Memory limit for reading a tokenizer.json file, in bytes; if absent, available_memory_bytes().
  std::optional<std::uint64_t> max_memory_bytes{};
};

/// A WordPiece tokenizer. Copies share their data, and any number of threads may call encode() concurrently.
///
/// All members that take a stop token throw Cancelled if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const Tokenizer tokenizer = Tokenizer::read_folder("all-MiniLM-L6-v2");
/// const TokenizedText text = tokenizer.encode("Don't embed!");  // text.ids: 101, 2123, …
/// @endcode
class REGARD_EXPORT Tokenizer {
 public:
  /// Creates a tokenizer from the text of a tokenizer.json file.
  ///
  /// The text must contain
  /// - the model WordPiece, the normalizer BertNormalizer and the pre_tokenizer BertPreTokenizer,
  /// - the post_processor TemplateProcessing, BertProcessing or null.
  ///
  /// It may contain any added_tokens. Ids must be consecutive, starting at 0. The fields padding, truncation and
  /// decoder are not used.
  ///
  /// @param tokenizer_json  The JSON text.
  /// @param source          Name of the text for error messages.
  /// @param options         Limits.
  /// @param stop            Stop token, polled while the text is read.
  /// @return The tokenizer.
  /// @throws DataError        "source: byte N: …" if the text does not meet these requirements; "source: needs N bytes
  ///                          of memory; M are available" if there is too little memory, before any is allocated.
  /// @throws InvalidArgument  if an option is out of range.
  /// @throws Cancelled        if a stop is requested.
  static Tokenizer read(std::string_view tokenizer_json, const std::string& source,
                        const TokenizerOptions& options = {}, const std::stop_token& stop = {});
  /// Creates a tokenizer from the tokenizer.json file of a model folder.
  ///
  /// The file is opened in the same way as by read_model_text() (safetensors.h).
  ///
  /// @param folder   Path of the folder.
  /// @param options  Limits.
  /// @param stop     Stop token, polled while the file is read.
  /// @return The tokenizer.
  /// @throws DataError        as read() and read_model_text() do.
  /// @throws InvalidArgument  if an option is out of range.
  /// @throws Cancelled        if a stop is requested.
  static Tokenizer read_folder(const std::string& folder, const TokenizerOptions& options = {},
                               const std::stop_token& stop = {});

  /// Tokenizes a text.
  ///
  /// The result is never truncated or padded; the caller must check that the model accepts this number of ids. A byte
  /// that is not valid UTF-8 is treated as U+FFFD, which is removed if tokenizer.json sets clean_text. A word that
  /// cannot be formed from pieces of the vocabulary becomes the unknown token. The running time is linear in the length
  /// of the text.
  ///
  /// @param text  The text.
  /// @param stop  Stop token, polled while the text is tokenized.
  /// @return Ids, tokens and words.
  /// @throws InvalidArgument  if the text is longer than max_text_bytes.
  /// @throws Cancelled        if a stop is requested.
  TokenizedText encode(std::string_view text, const std::stop_token& stop = {}) const;

  /// Returns the number of tokens in the vocabulary. Ids are 0 … vocabulary_size() − 1.
  Index vocabulary_size() const;
  /// Returns the id of the unknown token, "[UNK]", which replaces any word that cannot be formed from pieces of the
  /// vocabulary.
  Index unknown_id() const;
  /// Returns the token with a given id.
  ///
  /// @param id  The id.
  /// @return The token, valid as long as a copy of the tokenizer exists.
  /// @throws InvalidArgument  if the id is out of range.
  std::string_view token(Index id) const;

 private:
  struct Parts;
  explicit Tokenizer(std::shared_ptr<const Parts> parts);
  std::shared_ptr<const Parts> parts_;
};

}  // namespace regard::inline v0
