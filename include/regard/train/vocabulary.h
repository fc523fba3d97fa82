// SPDX-License-Identifier: Apache-2.0
/// @file
/// The vocabulary of a model that Regard trains: its tokens, the tokenization of texts, and the file format in which a
/// run stores it.
///
/// @verbatim
///     characters     "a fox"      ▶  a│ │f│o│x               the characters of a text, in code point order
///     byte_pairs     "the fox"    ▶  the│ fo│x               bytes and learned merges of the most frequent pairs
///     words          "^ b a ="    ▶  ^│b│a│=                 the symbols of a task (tasks.h), separated by spaces
/// @endverbatim
///
/// Byte-pair encoding: Sennrich, Haddow and Birch, "Neural machine translation of rare words with subword units", 2016.
/// Byte-level encoding: Radford et al., "Language models are unsupervised multitask learners", 2019.
///
/// Read next: src/train/data/vocabulary.cpp, src/train/data/byte_pairs.cpp, text_data.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/export.h"
#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// The kind of tokens into which a text is split.
enum class VocabularyKind {
  characters,  ///< Each character (code point) is a token.
  byte_pairs,  ///< Tokens are sequences of bytes within a word, formed by learned merges of pairs.
  words        ///< Tokens are separated by whitespace.
};

/// A vocabulary. Copies share their data, and any number of threads may use them concurrently.
///
/// Tokens may contain anything: print them only through escape_for_terminal() (regard/io/utf8.h) or a similar function.
///
/// @par Example
/// @code{.cpp}
/// const Vocabulary vocabulary = Vocabulary::learn_byte_pairs(text, 1000);
/// const std::vector<Index> ids = vocabulary.encode("A walk by the river");
/// vocabulary.decode(ids);  // "A walk by the river"
/// @endcode
class REGARD_EXPORT Vocabulary {
 public:
  /// Creates a vocabulary of the characters of a text, sorted by code point.
  ///
  /// @param text    The text, in UTF-8.
  /// @param source  Name of the text for error messages, usually the path of the file.
  /// @param stop    Stop token, polled while the text is read.
  /// @return The vocabulary.
  /// @throws DataError  if the text is empty or not valid UTF-8. The message states the offset of the invalid byte.
  /// @throws Cancelled  if a stop is requested.
  static Vocabulary characters_of(std::string_view text, const std::string& source = "text",
                                  const std::stop_token& stop = {});

  /// Learns a byte-pair vocabulary from a text.
  ///
  /// - Tokens 0 to 255 are the bytes. Token 256 + m is the concatenation of the two tokens of merge m.
  /// - The text is split into words, and no token crosses a word boundary. A word is a run of letters, of digits or of
  ///   other characters, together with the space before it, if any; or it is a run of whitespace. Bytes from 0x80
  ///   upwards count as letters. A word is at most 64 bytes long.
  /// - Each merge joins the most frequent pair of adjacent tokens. Ties are broken in favor of the smaller first
  ///   token, then of the smaller second token.
  ///
  /// Learning ends early when no pair occurs twice. The result depends only on the text and the size.
  ///
  /// @param text              The text; it may contain any bytes.
  /// @param size              Number of tokens, from 256 to 2²⁴.
  /// @param source            Name of the text for error messages.
  /// @param stop              Stop token, polled during learning.
  /// @param max_memory_bytes  Memory limit for learning, in bytes; if absent, available_memory_bytes().
  /// @return The vocabulary, with at most `size` tokens.
  /// @throws InvalidArgument  if size is out of range.
  /// @throws DataError        "source: needs N bytes of memory; M are available", before any memory is allocated.
  /// @throws Cancelled        if a stop is requested.
  static Vocabulary learn_byte_pairs(std::string_view text, Index size, const std::string& source = "text",
                                     const std::stop_token& stop = {},
                                     std::optional<std::uint64_t> max_memory_bytes = std::nullopt);

  /// Creates a vocabulary from a list of words.
  ///
  /// @param words  The tokens: at least one, all distinct and not empty, in UTF-8, without whitespace.
  /// @return The vocabulary. The id of a word is its index.
  /// @throws InvalidArgument  if a word is invalid. The message states the word.
  static Vocabulary of_words(std::vector<std::string> words);

  /// Reads a vocabulary from a text returned by json(). The text may be untrusted.
  ///
  /// @param json              The JSON text.
  /// @param source            Name of the text for error messages.
  /// @param stop              Stop token, polled while the text is read.
  /// @param max_memory_bytes  Memory limit for reading, in bytes; if absent, available_memory_bytes().
  /// @return The vocabulary.
  /// @throws DataError  "source: byte N: …" if the text is invalid; "source: needs N bytes of memory; M are available",
  ///                    before any memory is allocated.
  /// @throws Cancelled  if a stop is requested.
  static Vocabulary read(std::string_view json, const std::string& source, const std::stop_token& stop = {},
                         std::optional<std::uint64_t> max_memory_bytes = std::nullopt);

  /// Writes the vocabulary as JSON.
  ///
  /// @code{.unparsed}
  /// {"schema": "regard/1", "kind": "characters", "tokens": ["\n", " ", "a"]}         the same for words
  /// {"schema": "regard/1", "kind": "byte_pairs", "merges": [[116, 104], [256, 101]]}
  /// @endcode
  ///
  /// @return The text, which read() accepts.
  std::string json() const;

  /// Returns the kind of tokens into which a text is split.
  VocabularyKind kind() const;
  /// Returns the number of tokens. Ids are 0 … size() − 1.
  Index size() const;
  /// Returns the bytes of a token. A token of byte_pairs need not be valid UTF-8.
  ///
  /// @param id  The id.
  /// @return The token, valid as long as a copy of the vocabulary exists.
  /// @throws InvalidArgument  if the id is out of range.
  std::string_view token(Index id) const;

  /// Tokenizes a text.
  ///
  /// Byte pairs are merged within each word in the order in which they were learned. A byte-pair vocabulary can encode
  /// any text.
  ///
  /// @param text  The text, in UTF-8; for byte_pairs, any bytes.
  /// @param stop  Stop token, polled while the text is tokenized.
  /// @return The ids.
  /// @throws InvalidArgument  "encode: byte N: …" if a character or word is not in the vocabulary.
  /// @throws Cancelled        if a stop is requested.
  std::vector<Index> encode(std::string_view text, const std::stop_token& stop = {}) const;

  /// Tokenizes a text, as encode() does, and appends 32-bit ids, which take half as much memory.
  ///
  /// @param text  The text.
  /// @param ids   Vector to which the ids are appended.
  /// @param stop  Stop token, polled while the text is tokenized.
  /// @throws InvalidArgument  as encode() does.
  /// @throws Cancelled        if a stop is requested.
  void append_ids(std::string_view text, std::vector<std::uint32_t>& ids, const std::stop_token& stop = {}) const;

  /// Converts token ids to text. Words are separated by single spaces.
  ///
  /// @param ids  The ids.
  /// @return The text. For ids from encode(), it is the original text or, for words, the words separated by single
  ///         spaces.
  /// @throws InvalidArgument  if an id is out of range.
  std::string decode(std::span<const Index> ids) const;

 private:
  struct Parts;
  explicit Vocabulary(std::shared_ptr<const Parts> parts);
  std::shared_ptr<const Parts> parts_;
};

}  // namespace regard::inline v0
