// SPDX-License-Identifier: Apache-2.0
//
// Members common to the JSON of all sentence commands: how it was computed, and a sentence's tokens and words.
// Read next: json_style.h, compare_json.cpp, heads_text.cpp.
#pragma once

#include "explain/report/json_style.h"
#include "regard/explain/sentence.h"

namespace regard::inline v0 {

inline void write_words(JsonWriter& json, const std::vector<SentenceWord>& words) {
  const std::vector<std::string> names = word_names(words);
  std::size_t next = 0;
  json.objects("words", words, [&](const SentenceWord& word) {
    json.string("text", word.text);
    json.string("name", names[next++]);
    json.indices("tokens", word.tokens);
    json.boolean("special", word.special);
    json.boolean("unknown", word.unknown);
  });
  if (const std::string warning = vocabulary_warning(words); !warning.empty()) json.string("warning", warning);
}

// The first members of the document.
inline void write_source(JsonWriter& json, std::string_view command, std::string_view model_folder,
                         std::string_view model_sha256) {
  json.source(command);
  json.name("model");
  json.begin_object();
  json.string("folder", model_folder);
  json.string("sha256", model_sha256);
  json.end_object();
}

}  // namespace regard::inline v0
