// SPDX-License-Identifier: Apache-2.0
//
// Text to token ids, as a pretrained BERT-family model expects them: the tokenizer.json of a Hugging Face folder.
//
//     text    Don't embed!
//     words          Don    '      t      embed         !             cut at spaces, round punctuation
//     tokens  [CLS]  don    '      t      em     ##bed  !      [SEP]  longest pieces of the vocabulary
//     ids     101    2123   1005   1056   7861   8270   999    102
//     word    −1     0      1      2      3      3      4      −1
//
// The ids are those of Hugging Face's tokenizers 0.23; docs/tokenizer.md has the rules and their corners. WordPiece:
// Devlin et al., BERT, 2018 (arXiv:1810.04805).
// Read next: src/model/tokenizer/tokenizer.cpp, include/regard/model/encoder.h.
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

// What a text becomes: ids, tokens, word and byte_ranges have one entry for each piece, in order. Texts and
// vocabularies may hold anything: show tokens and words through escape_for_terminal (text.h) or its like.
struct TokenizedText {
  std::vector<Index> ids;           // with those that the model wants round a text: [CLS] … [SEP]
  std::vector<std::string> tokens;  // as they stand in the vocabulary: "em", "##bed"
  // Which of `words` a piece belongs to, in rising order; −1 for those set round the text. A [MASK] or [SEP] that
  // stands in the text is a word of it.
  std::vector<Index> word;
  // The bytes [begin, end) of the text that a piece was made from; {0, 0} where word is −1. With the accents that
  // stand on its letters, even when they are not in the piece. Pieces of one character have the same bytes.
  std::vector<std::array<Index, 2>> byte_ranges;
  // The words as they are written, bytes of the text: what is left between spaces when every punctuation mark and every
  // CJK ideograph is a word of its own.
  std::vector<std::string> words;
};

// Limits for files and texts of unknown origin; the first three are from 1 to 2^31 − 1.
struct TokenizerOptions {
  Index max_tokens = Index{1} << 22;       // in the vocabulary
  Index max_token_bytes = 4096;            // each
  Index max_text_bytes = Index{64} << 20;  // of a tokenizer.json, and of a text to encode
  // Bytes that reading a tokenizer.json may take in memory; absent: available_memory_bytes().
  std::optional<std::uint64_t> max_memory_bytes{};
};

// Copies share what they hold; encode may be called from many threads at once.
class REGARD_EXPORT Tokenizer {
 public:
  // Reads the text of a tokenizer.json: model WordPiece, normalizer BertNormalizer, pre_tokenizer BertPreTokenizer,
  // post_processor TemplateProcessing, BertProcessing or null, any added_tokens. Its padding, truncation and decoder
  // are not used. Ids must run from 0 without gaps. Throws regard::DataError "source: byte N: …" for anything else,
  // and "source: needs N bytes of memory; M are available" before they are taken; std::invalid_argument for options out
  // of range. All members that take a stop throw regard::Cancelled where it is requested.
  static Tokenizer read(std::string_view tokenizer_json, const std::string& source,
                        const TokenizerOptions& options = {}, const std::stop_token& stop = {});
  // The file tokenizer.json of a model's folder, opened as read_model_text does (safetensors.h), and throwing likewise.
  static Tokenizer read_folder(const std::string& folder, const TokenizerOptions& options = {},
                               const std::stop_token& stop = {});

  // Never cuts and never pads: models take a limited number of ids, which the caller compares. A byte that is no UTF-8
  // counts as U+FFFD, which clean_text removes; what the vocabulary cannot spell becomes the unknown token. Time grows
  // linearly with the text. Throws std::invalid_argument for a text longer than max_text_bytes.
  TokenizedText encode(std::string_view text, const std::stop_token& stop = {}) const;

  // Ids are 0 … vocabulary_size() − 1.
  Index vocabulary_size() const;
  // What stands for a word that the vocabulary cannot spell: "[UNK]".
  Index unknown_id() const;
  // Valid as long as a copy of the tokenizer. Throws std::invalid_argument for an id out of range.
  std::string_view token(Index id) const;

 private:
  struct Parts;
  explicit Tokenizer(std::shared_ptr<const Parts> parts);
  std::shared_ptr<const Parts> parts_;
};

}  // namespace regard::inline v0
