// SPDX-License-Identifier: Apache-2.0
//
// The small BERT with random parameters in tests/encoder/tiny, and a tokenizer with a few words: a model for tests of
// sentences that needs no download. tests/support/sentence_model.py creates the same as a folder.
// Read next: regard/explain/sentence.h, tokenizer_files.h.
#pragma once

#include <string>
#include <vector>

#include "data_path.h"
#include "regard/explain/sentence.h"
#include "rejection.h"
#include "tokenizer_files.h"

namespace regard {

// At most the 60 rows of the embedding table.
inline std::string small_tokenizer_json() {
  regard_tokenizer::TokenizerText text;
  text.vocabulary = {"[PAD]", "[UNK]",  "[CLS]", "[SEP]", "[MASK]", "he",    "sat", "on",    "the",    "bank",
                     "of",    "river",  "she",   "put",   "her",    "money", "in",  "they",  "walked", "along",
                     "at",    "dawn",   "a",     "is",    "no",     ".",     ",",   "#",     "0",      "em",
                     "##bed", "##ding", "##s",   "<",     ">",      "/",     "=",   "script"};
  return regard_tokenizer::tokenizer_json(text);
}

inline const SentenceModel& small_sentence_model() {
  static const SentenceModel model{"tiny", load_encoder(data_path("encoder/tiny")),
                                   Tokenizer::read(small_tokenizer_json(), "tokenizer.json")};
  return model;
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace regard
