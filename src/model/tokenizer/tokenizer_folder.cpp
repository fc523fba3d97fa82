// SPDX-License-Identifier: Apache-2.0
//
// Tokenizer::read_folder: a tokenizer from the tokenizer.json of a folder.
// Read next: tokenizer.cpp.
#include "model/loading.h"
#include "regard/io/safetensors.h"
#include "tokenizer_json.h"

namespace regard::inline v0 {

Tokenizer Tokenizer::read_folder(const std::string& folder, const TokenizerOptions& options,
                                 const std::stop_token& stop) {
  check_tokenizer_options(options);
  constexpr std::string_view kTokenizerFile = "tokenizer.json";
  const auto max_bytes = static_cast<std::uint64_t>(options.max_text_bytes);
  return read(read_model_text(folder, kTokenizerFile, max_bytes, stop), internal::file_in(folder, kTokenizerFile),
              options, stop);
}

}  // namespace regard::inline v0
