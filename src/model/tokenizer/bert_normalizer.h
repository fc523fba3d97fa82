// SPDX-License-Identifier: Apache-2.0
//
// BERT's normalizer: converts text to lower case without accents, and records the origin of each byte.
//
//     character → clean_text: drop controls, any space is ' ' → ideograph: spaces around it
//               → strip_accents: decompose, canonical order, drop marks → lower case → bytes, each with its origin
//
// Read next: bert_normalizer.cpp, bert_characters.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bert_characters.h"
#include "regard/runtime.h"

namespace regard::inline v0 {

// The bytes [begin, end) of the original text. Texts are shorter than 4 GiB.
struct Origin {
  std::uint32_t begin;
  std::uint32_t end;
};

struct NormalizedText {
  std::string bytes;           // UTF-8
  std::vector<Origin> origin;  // of each byte; all bytes of a character have the same origin
};

struct BertNormalizer {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;

  // Replaces `to` by the normalized text, which begins at byte `offset` of the original. An accent that is dropped
  // extends the origin of its base character. Runs in linear time, except for sorting runs of combining characters.
  void normalize(std::string_view text, std::size_t offset, NormalizedText& to, const std::stop_token& stop = {}) const;
};

}  // namespace regard::inline v0
