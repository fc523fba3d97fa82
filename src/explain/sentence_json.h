// SPDX-License-Identifier: Apache-2.0
//
// What the JSON of every command on sentences holds: how it was computed, and a sentence's tokens and words.
// Read next: json_text.h, render_compare_json.cpp, render_heads.cpp.
#pragma once

#include "json_text.h"
#include "regard/runtime.h"
#include "regard/sentence.h"

namespace regard {
inline namespace v0 {

inline void write_text(JsonWriter& json, std::string_view name, std::string_view text) {
  json.name(name);
  json.string(text);
}

inline void write_strings(JsonWriter& json, std::string_view name, const std::vector<std::string>& texts) {
  json.name(name);
  json.begin_array(true);
  for (const std::string& text : texts) json.string(text);
  json.end_array();
}

inline void write_indices(JsonWriter& json, std::string_view name, const std::vector<Index>& indices) {
  json.name(name);
  json.begin_array(true);
  for (const Index i : indices) json.whole(i);
  json.end_array();
}

inline void write_words(JsonWriter& json, const std::vector<SentenceWord>& words) {
  json.name("words");
  json.begin_array();
  for (const SentenceWord& word : words) {
    json.begin_object();
    write_text(json, "text", word.text);
    write_indices(json, "tokens", word.tokens);
    json.name("special");
    json.boolean(word.special);
    json.end_object();
  }
  json.end_array();
}

// The first members of the document.
inline void write_source(JsonWriter& json, std::string_view command, std::string_view model_folder,
                         std::string_view model_sha256) {
  write_text(json, "schema", "regard/1");
  write_text(json, "command", command);
  write_text(json, "version", version());
  write_text(json, "instruction_set", active_instruction_set());
  json.name("model");
  json.begin_object();
  write_text(json, "folder", model_folder);
  write_text(json, "sha256", model_sha256);
  json.end_object();
}

}  // namespace v0
}  // namespace regard
