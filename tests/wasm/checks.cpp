// SPDX-License-Identifier: Apache-2.0
//
// Requests of the tests, answered by a WebAssembly module with the library of the core of live pages, and by a native
// program (native.cpp) from the same source. Every answer is one line.
//
//     {"do": "golden"}                         "name hash;" of each result of ../support/golden_*.h
//     {"do": "tokenizer"}                      opens the added file tokenizer.json
//     {"do": "tokens", "text": …}              its token ids
//     {"do": "time", "tokens": N, "runs": N}   seconds of the fastest run of the added model, on one thread
//
// Read next: bits_test.py, tokens_test.py, speed.py.
#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "regard/explain/sentence.h"
#include "regard/io/json_fields.h"
#include "regard/model/tokenizer.h"
#include "requests.h"
#include "support/golden_layers.h"
#include "support/golden_operators.h"

namespace regard {
namespace {

std::string golden_lines() {
  golden::Lines all = golden::all_lines(kernels::active());
  golden::add_layers(all);
  std::string text;
  for (const auto& [name, hash] : all.lines()) text.append(name).append(" ").append(hash).append(";");
  return text;
}

std::string_view added_text(std::string_view name) {
  const SharedBytes& file = added_files().at(std::string(name));
  return {reinterpret_cast<const char*>(file.first.get()), file.count};
}

std::optional<Tokenizer>& tokenizer() {
  static std::optional<Tokenizer> opened;
  return opened;
}

std::string token_ids(std::string_view text) {
  std::string ids;
  for (const Index id : tokenizer().value().encode(text).ids) ids.append(std::to_string(id)).append(" ");
  return ids;
}

std::string fastest_run(Index num_tokens, Index runs) {
  static const SentenceModel model = read_sentence_model({.name = "timed",
                                                          .config_json = std::string(added_text("config.json")),
                                                          .tokenizer_json = std::string(added_text("tokenizer.json")),
                                                          .safetensors = added_files().at("model.safetensors")});
  const std::vector<Index> ids(static_cast<std::size_t>(num_tokens), 7);
  double fastest = std::numeric_limits<double>::infinity();
  for (Index run = 0; run < runs; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    model.trace(ids, {}, {.num_threads = 1});
    fastest = std::min(fastest, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return std::to_string(fastest);
}

}  // namespace

std::string answer_to(std::string_view text) {
  const JsonValue root = read_json(text, "request");
  const JsonFields request("request", root);
  const std::string& action = request.text("do");
  if (action == "golden") return golden_lines();
  if (action == "tokens") return token_ids(request.text("text"));
  if (action == "time") return fastest_run(request.whole("tokens", 1, 512), request.whole("runs", 1, 100));
  tokenizer() = Tokenizer::read(added_text("tokenizer.json"), "tokenizer.json");
  return {};
}

}  // namespace regard
