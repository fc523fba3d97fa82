// SPDX-License-Identifier: Apache-2.0
//
// The arrays of a sentence as NPY files; see save_sentence.h.
//
//     array by array:  header · layer 0 · layer 1 · …     no array is in memory for more than a layer
//     tokens.json      tokens, words, and for each array its file, axes and shape
//
// Read next: docs/save.md, regard/io/npy.h.
#include "save_sentence.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "regard/io/npy.h"
#include "regard/io/utf8.h"
#include "regard/runtime.h"

namespace regard::program {
namespace {

struct Saved {
  std::string_view name;
  std::string_view short_name;
  std::string_view axes;  // as JSON
};
constexpr std::array<Saved, 7> kSaved = {{
    {"weights", "weights", R"(["layer", "head", "query", "key"])"},
    {"scores", "scores", R"(["layer", "head", "query", "key"])"},
    {"query", "q", R"(["layer", "head", "token", "dimension"])"},
    {"key", "k", R"(["layer", "head", "token", "dimension"])"},
    {"value", "v", R"(["layer", "head", "token", "dimension"])"},
    {"context", "context", R"(["layer", "head", "token", "dimension"])"},
    {"hidden_states", "hidden_states", R"(["state", "token", "dimension"])"},
}};

const Saved* find_saved(std::string_view name) {
  const auto found = std::find_if(kSaved.begin(), kSaved.end(),
                                  [&](const Saved& saved) { return saved.name == name || saved.short_name == name; });
  return found == kSaved.end() ? nullptr : &*found;
}

std::vector<Index> shape_of(std::string_view name, const EncoderConfig& config, Index length) {
  if (name == "weights" || name == "scores") return {config.num_layers, config.num_heads, length, length};
  if (name == "hidden_states") return {config.num_layers + 1, length, config.width};
  return {config.num_layers, config.num_heads, length, config.head_size()};
}

// Calls write(tensor) for one layer of an array after the other.
template <class Write>
void for_each_part(std::string_view name, const EncoderTrace& trace, Write write) {
  if (name == "hidden_states") write(trace.embedded);
  for (std::size_t n = 0; n < trace.layers.size(); ++n) {
    const LayerTrace& layer = trace.layers[n];
    const auto index = static_cast<Index>(n);
    if (name == "weights") write(encoder_weights(trace, index));
    if (name == "scores") write(encoder_weights(trace, index, WeightsKind::scores));
    if (name == "query") write(layer.query);
    if (name == "key") write(layer.key);
    if (name == "value") write(layer.value);
    if (name == "context") write(layer.context);
    if (name == "hidden_states") write(layer.output);
  }
}

template <class List>
std::string json_list(const List& list) {
  std::string json;
  for (const auto& entry : list) {
    json += json.empty() ? "" : ", ";
    if constexpr (std::is_same_v<std::decay_t<decltype(entry)>, std::string>) {
      json += json_string(entry);
    } else {
      json += std::to_string(entry);
    }
  }
  return "[" + json + "]";
}

std::string tokens_json(const SentenceModel& model, const Sentence& sentence, const std::vector<std::string>& names) {
  const auto length = static_cast<Index>(sentence.tokens.ids.size());
  std::string words, arrays;
  for (const SentenceWord& word : sentence.words) {
    words += fmt::format("{}\n    {{\"text\": {}, \"tokens\": {}, \"special\": {}}}", words.empty() ? "" : ",",
                         json_string(word.text), json_list(word.tokens), word.special);
  }
  for (const std::string& name : names) {
    arrays +=
        fmt::format("{}\n    \"{}\": {{\"file\": \"{}.npy\", \"axes\": {}, \"shape\": {}, \"dtype\": \"float32\"}}",
                    arrays.empty() ? "" : ",", name, name, find_saved(name)->axes,
                    json_list(shape_of(name, model.encoder.config, length)));
  }
  return fmt::format(R"({{
  "schema": "regard/1",
  "command": {},
  "version": {},
  "instruction_set": {},
  "model": {{"folder": {}, "sha256": {}}},
  "text": {},
  "ids": {},
  "tokens": {},
  "words": [{}
  ],
  "hidden": {},
  "num_truncated_tokens": {},
  "arrays": {{{}
  }}
}}
)",
                     json_string(command_line()), json_string(version()), json_string(active_instruction_set()),
                     json_string(model.folder),
                     json_string(model.encoder.checkpoint ? model.encoder.checkpoint->sha256() : std::string()),
                     json_string(sentence.text), json_list(sentence.tokens.ids), json_list(sentence.tokens.tokens),
                     words, json_list(sentence.trace.hidden_keys), sentence.num_truncated_tokens, arrays);
}

}  // namespace

SentenceSaver::SentenceSaver(std::string folder, std::string_view arrays) : folder_(std::move(folder)) {
  for (const std::string_view name : split(arrays, ',')) {
    if (arrays.empty()) break;
    const Saved* saved = find_saved(name);
    if (saved == nullptr) {
      throw UsageError(
          fmt::format("--arrays names \"{}\"; expected some of {}, with commas between", name, kSavedNames));
    }
    names_.emplace_back(saved->name);
  }
  if (!names_.empty()) {
    std::sort(names_.begin(), names_.end());
    names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
    return;
  }
  for (const Saved& saved : kSaved) names_.emplace_back(saved.name);
}

void SentenceSaver::write(const SentenceModel& model, const Sentence& sentence) {
  const std::filesystem::path& folder = made_.emplace(folder_).path();
  files_.emplace();
  const auto length = static_cast<Index>(sentence.tokens.ids.size());
  for (const std::string& name : names_) {
    const std::size_t file = files_->add((folder / (name + ".npy")).string());
    const std::string header = npy_header(NpyType::float32, shape_of(name, model.encoder.config, length));
    files_->write(file, header.data(), header.size());
    for_each_part(name, sentence.trace, [&](const auto& part) {
      files_->write(file, part.data(), static_cast<std::size_t>(part.size()) * sizeof(float));
    });
  }
  const std::string tokens = tokens_json(model, sentence, names_);
  files_->write(files_->add((folder / "tokens.json").string()), tokens.data(), tokens.size());
}

void SentenceSaver::commit() { files_->commit(); }

}  // namespace regard::program
