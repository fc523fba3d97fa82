// SPDX-License-Identifier: Apache-2.0
//
// The validated contents of a tokenizer.json: every id below is an index of `tokens`.
// Read next: tokenizer_json.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "added_tokens.h"
#include "bert_normalizer.h"
#include "regard/model/tokenizer.h"

namespace regard::inline v0 {

struct TokenizerFile {
  std::vector<std::string> tokens;  // by id: those of the model and the added ones
  std::vector<Index> pieces;        // ids of the model's tokens, ascending by the bytes of the tokens
  Index unknown = 0;
  std::string continuing_prefix;
  Index max_characters = 0;
  BertNormalizer normalizer;
  std::vector<AddedToken> added;
  std::vector<Index> before;  // tokens added before and after a text
  std::vector<Index> after;
};

// Throws InvalidArgument if an option is out of range.
void check_tokenizer_options(const TokenizerOptions& options);

TokenizerFile read_tokenizer_file(std::string_view json, const std::string& source, const TokenizerOptions& options,
                                  const std::stop_token& stop);

}  // namespace regard::inline v0
