// SPDX-License-Identifier: Apache-2.0
//
// Writes the arrays of a sentence as NPY files; see save_sentence.h.
//
//     array by array:  header · layer 0 · layer 1 · …     only one layer of an array is in memory at a time
//     tokens.json:     tokens, words, and the file, axes and shape of each array
//
// Read next: docs/reference/save.md, regard/io/npy.h.
#include "save_sentence.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "regard/io/json_writer.h"
#include "regard/io/npy.h"
#include "regard/runtime.h"

namespace regard::program {
namespace {

struct Saved {
  std::string_view name;
  std::string_view short_name;
  std::string_view axes;  // separated by commas
};
constexpr std::array<Saved, 7> kSaved = {{
    {"weights", "weights", "layer,head,query,key"},
    {"scores", "scores", "layer,head,query,key"},
    {"query", "q", "layer,head,token,dimension"},
    {"key", "k", "layer,head,token,dimension"},
    {"value", "v", "layer,head,token,dimension"},
    {"context", "context", "layer,head,token,dimension"},
    {"hidden_states", "hidden_states", "state,token,dimension"},
}};

const Saved* find_saved(std::string_view name) {
  const auto found = std::find_if(kSaved.begin(), kSaved.end(),
                                  [&](const Saved& saved) { return saved.name == name || saved.short_name == name; });
  return found == kSaved.end() ? nullptr : &*found;
}

std::vector<Index> shape_of(std::string_view name, const ModelExtents& extents, Index length) {
  if (name == "weights" || name == "scores") return {extents.num_layers, extents.num_heads, length, length};
  if (name == "hidden_states") return {extents.num_layers + 1, length, extents.width};
  return {extents.num_layers, extents.num_heads, length, extents.head_size};
}

// Calls write(tensor) for each layer of an array.
template <class Write>
void for_each_part(std::string_view name, const ModelTrace& trace, Write write) {
  if (name == "hidden_states") write(trace.embedded);
  for (std::size_t n = 0; n < trace.layers.size(); ++n) {
    const LayerTrace& layer = trace.layers[n];
    const auto index = static_cast<Index>(n);
    if (name == "weights") write(trace_weights(trace, index));
    if (name == "scores") write(trace_weights(trace, index, WeightsKind::scores));
    if (name == "query") write(layer.query);
    if (name == "key") write(layer.key);
    if (name == "value") write(layer.value);
    if (name == "context") write(layer.context);
    if (name == "hidden_states") write(layer.output);
  }
}

std::string tokens_json(const SentenceModel& model, const Sentence& sentence, const std::vector<std::string>& names) {
  const auto length = static_cast<Index>(sentence.tokens.ids.size());
  JsonWriter json;
  json.begin_object();
  json.source(command_line());
  json.name("model");
  json.begin_object(JsonLayout::one_line);
  json.string("folder", model.folder);
  json.string("sha256", model.sha256());
  json.end_object();
  json.string("text", sentence.text);
  json.list("ids", sentence.tokens.ids);
  json.list("tokens", sentence.tokens.tokens);
  const auto write_word = [&json](const SentenceWord& word) {
    json.string("text", word.text);
    json.list("tokens", word.tokens);
    json.boolean("special", word.special);
  };
  json.objects("words", sentence.words, write_word, JsonLayout::lines, JsonLayout::one_line);
  json.list("hidden", sentence.trace.hidden_keys);
  json.whole("num_truncated_tokens", sentence.num_truncated_tokens);
  json.name("arrays");
  json.begin_object();
  for (const std::string& name : names) {
    json.name(name);
    json.begin_object(JsonLayout::one_line);
    json.string("file", name + ".npy");
    json.list("axes", split(find_saved(name)->axes, ','));
    json.list("shape", shape_of(name, model.extents(), length));
    json.string("dtype", "float32");
    json.end_object();
  }
  json.end_object();
  json.end_object();
  return json.take();
}

}  // namespace

SentenceSaver::SentenceSaver(std::string folder, std::string_view arrays) : folder_(std::move(folder)) {
  for (const std::string_view name : split(arrays, ',')) {
    if (arrays.empty()) break;
    const Saved* saved = find_saved(name);
    if (saved == nullptr) {
      throw UsageError(
          fmt::format("--arrays names \"{}\"; expected names from {}, separated by commas", name, kSavedNames));
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
    const std::string header = npy_header(ElementType::float32, shape_of(name, model.extents(), length));
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
