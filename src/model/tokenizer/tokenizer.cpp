// SPDX-License-Identifier: Apache-2.0
//
// Splits text into pieces, in one pass:
//
//     text → added tokens | the rest → segments up to a space → normalized → words → pieces, each with its bytes
//
// Read next: added_tokens.h, bert_normalizer.h, wordpiece.h.
#include "regard/model/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "regard/error.h"
#include "regard/io/safetensors.h"
#include "regard/io/utf8.h"
#include "tokenizer_json.h"
#include "wordpiece.h"

namespace regard::inline v0 {
namespace {

WordPiece make_wordpiece(const TokenizerFile& file, const std::stop_token& stop) {
  std::vector<std::pair<std::string_view, Index>> pieces;
  pieces.reserve(file.pieces.size());
  for (Index id : file.pieces) pieces.emplace_back(file.tokens[static_cast<std::size_t>(id)], id);
  return WordPiece(std::move(pieces), file.continuing_prefix, file.unknown, file.max_characters, stop);
}

// The added tokens matched in the original text, or those matched in the normalized text, whose contents are
// normalized, too.
AddedTokens make_added(const TokenizerFile& file, bool normalized, const std::stop_token& stop) {
  std::vector<AddedToken> chosen;
  for (AddedToken token : file.added) {
    if (token.normalized != normalized) continue;
    if (normalized) {
      NormalizedText content;
      file.normalizer.normalize(token.content, 0, content, stop);
      token.content = std::move(content.bytes);
    }
    chosen.push_back(std::move(token));
  }
  return AddedTokens(std::move(chosen), stop);
}

}  // namespace

struct Tokenizer::Parts {
  TokenizerFile file;
  WordPiece wordpiece;
  AddedTokens literal;
  AddedTokens normalized;
  std::size_t max_text_bytes;
};

namespace {

class Encoding {
 public:
  Encoding(const TokenizerFile& file, const WordPiece& wordpiece, const AddedTokens& literal,
           const AddedTokens& normalized, std::string_view text, const std::stop_token& stop)
      : file_(file), wordpiece_(wordpiece), literal_(literal), normalized_(normalized), text_(text), stop_(stop) {}

  TokenizedText encode() {
    for (Index id : file_.before) add_piece(id, -1, {0, 0});
    for (const AddedTokens::Part& part : literal_.split(text_, stop_)) {
      if (part.token >= 0)
        add_added(part.token, {static_cast<Index>(part.begin), static_cast<Index>(part.end)});
      else
        add_text(part.begin, part.end);
    }
    for (Index id : file_.after) add_piece(id, -1, {0, 0});
    return std::move(result_);
  }

 private:
  using ByteRange = std::array<Index, 2>;

  // A space ends every word, so each segment is normalized separately, unless an added token may span the space.
  void add_text(std::size_t begin, std::size_t end) {
    while (begin < end) {
      std::size_t stop = end;
      if (normalized_.empty()) stop = std::min(end, text_.substr(0, end).find_first_of(" \n", begin));
      if (stop < end) ++stop;
      file_.normalizer.normalize(text_.substr(begin, stop - begin), begin, stretch_, stop_);
      if (normalized_.empty()) {
        add_words(0, stretch_.bytes.size());
      } else {
        for (const AddedTokens::Part& part : normalized_.split(stretch_.bytes, stop_)) {
          if (part.token >= 0)
            add_added(part.token, byte_range_of(part.begin, part.end));
          else
            add_words(part.begin, part.end);
        }
      }
      begin = stop;
    }
  }

  // Splits the bytes [begin, end) of the segment at spaces and around punctuation.
  void add_words(std::size_t begin, std::size_t end) {
    const std::string_view bytes = std::string_view(stretch_.bytes).substr(0, end);
    std::size_t word = begin;
    for (std::size_t i = begin; i < end;) {
      throw_if_stopped(stop_, "Tokenizer::encode");
      const auto [code, num_bytes] = first_character(bytes.substr(i));
      const std::size_t next = i + num_bytes;
      const bool is_mark = is_punctuation(code);
      if (is_mark || is_space(code)) {
        if (word < i) add_word(word, i);
        if (is_mark) add_word(i, next);
        word = next;
      }
      i = next;
    }
    if (word < end) add_word(word, end);
  }

  void add_word(std::size_t begin, std::size_t end) {
    wordpiece_.split(std::string_view(stretch_.bytes).substr(begin, end - begin), pieces_);
    const auto word = static_cast<Index>(result_.words.size());
    add_written(byte_range_of(begin, end));
    std::size_t piece_begin = begin;
    for (const WordPiece::Piece& piece : pieces_) {
      add_piece(piece.token, word, byte_range_of(piece_begin, begin + piece.end));
      piece_begin = begin + piece.end;
    }
  }

  void add_added(Index token, ByteRange range) {
    const auto word = static_cast<Index>(result_.words.size());
    add_written(range);
    add_piece(token, word, range);
  }

  void add_written(ByteRange range) {
    result_.words.emplace_back(
        text_.substr(static_cast<std::size_t>(range[0]), static_cast<std::size_t>(range[1] - range[0])));
  }

  void add_piece(Index id, Index word, ByteRange range) {
    result_.ids.push_back(id);
    result_.tokens.push_back(file_.tokens[static_cast<std::size_t>(id)]);
    result_.word.push_back(word);
    result_.byte_ranges.push_back(range);
  }

  // Canonical ordering may have moved characters, so the first one need not come first in the text.
  ByteRange byte_range_of(std::size_t begin, std::size_t end) const {
    ByteRange range{std::numeric_limits<Index>::max(), 0};
    for (std::size_t i = begin; i < end; ++i) {
      range[0] = std::min<Index>(range[0], stretch_.origin[i].begin);
      range[1] = std::max<Index>(range[1], stretch_.origin[i].end);
    }
    return range;
  }

  const TokenizerFile& file_;
  const WordPiece& wordpiece_;
  const AddedTokens& literal_;
  const AddedTokens& normalized_;
  std::string_view text_;
  const std::stop_token& stop_;
  TokenizedText result_;
  NormalizedText stretch_;
  std::vector<WordPiece::Piece> pieces_;
};

void check(Index value, std::string_view name, Index limit) {
  if (value < 1 || value > limit)
    throw InvalidArgument(fmt::format("TokenizerOptions::{} is {}; expected 1 to {}", name, value, limit));
}

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

void check_tokenizer_options(const TokenizerOptions& options) {
  constexpr Index kMaxIndex = std::numeric_limits<std::int32_t>::max();  // ids and nodes take 32 bits, offsets likewise
  check(options.max_tokens, "max_tokens", kMaxIndex);
  check(options.max_token_bytes, "max_token_bytes", kMaxIndex);
  check(options.max_text_bytes, "max_text_bytes", kMaxIndex);
}

Tokenizer Tokenizer::read(std::string_view tokenizer_json, const std::string& source, const TokenizerOptions& options,
                          const std::stop_token& stop) {
  check_tokenizer_options(options);
  if (tokenizer_json.size() > static_cast<std::size_t>(options.max_text_bytes))
    throw DataError(fmt::format("{}: byte {}: longer than the {} bytes that TokenizerOptions::max_text_bytes allows",
                                escape_for_terminal(source), options.max_text_bytes, options.max_text_bytes));
  TokenizerFile file = read_tokenizer_file(tokenizer_json, source, options, stop);
  WordPiece wordpiece = make_wordpiece(file, stop);
  AddedTokens literal = make_added(file, false, stop);
  AddedTokens normalized = make_added(file, true, stop);
  return Tokenizer(
      std::make_shared<const Parts>(Parts{std::move(file), std::move(wordpiece), std::move(literal),
                                          std::move(normalized), static_cast<std::size_t>(options.max_text_bytes)}));
}

TokenizedText Tokenizer::encode(std::string_view text, const std::stop_token& stop) const {
  if (text.size() > parts_->max_text_bytes)
    throw InvalidArgument(
        fmt::format("Tokenizer::encode: the text has {} bytes, more than the {} that TokenizerOptions::max_text_bytes "
                    "allows",
                    text.size(), parts_->max_text_bytes));
  return Encoding(parts_->file, parts_->wordpiece, parts_->literal, parts_->normalized, text, stop).encode();
}

Index Tokenizer::vocabulary_size() const { return static_cast<Index>(parts_->file.tokens.size()); }

Index Tokenizer::unknown_id() const { return parts_->file.unknown; }

std::string_view Tokenizer::token(Index id) const {
  if (id < 0 || id >= vocabulary_size())
    throw InvalidArgument(fmt::format("Tokenizer::token: the id is {}; expected 0 to {}", id, vocabulary_size() - 1));
  return parts_->file.tokens[static_cast<std::size_t>(id)];
}

}  // namespace regard::inline v0
