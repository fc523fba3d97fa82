// SPDX-License-Identifier: Apache-2.0
//
// The folder of a model: its text files, and its tensors in one file or in shards.
//
//     model.safetensors.index.json   {"weight_map": {tensor: shard, …}, …}
//       ── names of shards: plain, no path ── enough memory? ── read each ── do they match the index? ──▶
//
// Read next: safetensors.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "checkpoint.h"
#include "file_bytes.h"
#include "file_kind.h"
#include "regard/error.h"
#include "regard/io/json.h"
#include "regard/io/utf8.h"

namespace regard::inline v0 {
namespace {

using internal::ModelFile;

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
// The largest index of a published model has about 9 MB.
constexpr std::uint64_t kMaxIndexBytes = 32 << 20;
constexpr Index kMaxIndexDepth = 32;
constexpr std::size_t kMaxShards = 4096;
constexpr std::size_t kMaxFileName = 255;

std::string join(const std::string& folder, std::string_view file) {
  return fmt::format("{}{}{}", folder, folder.ends_with('/') ? "" : "/", file);
}

bool is_plain_name(std::string_view file) {
  return file.size() <= kMaxFileName && file.ends_with(".safetensors") && !file.starts_with('.') &&
         file.find('/') == std::string_view::npos && escape_for_terminal(file) == file;
}

// "a", "b" and 3 more
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMaxNamed = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxNamed); ++i) {
    text += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", text_in_message(names[i]));
  }
  return names.size() > kMaxNamed ? fmt::format("{} and {} more", text, names.size() - kMaxNamed) : text;
}

// Throws unless the shards contain exactly the tensors of the index.
void check_against_index(const std::string& index_path, const std::vector<ShardedTensor>& index,
                         const std::vector<internal::LoadedFile>& files) {
  const auto fail = [&](const std::string& what) {
    throw DataError(fmt::format("{}: {}", escape_for_terminal(index_path), what));
  };
  std::map<std::string_view, std::string_view> found;  // tensor: file
  for (const internal::LoadedFile& file : files) {
    const std::string_view name = std::string_view(file.path).substr(file.path.rfind('/') + 1);
    for (const StoredTensor& tensor : file.tensors) {
      const auto [at, is_new] = found.emplace(tensor.name, name);
      if (!is_new) {
        fail(fmt::format("tensor \"{}\" is in two shards, {} and {}", text_in_message(tensor.name), at->second, name));
      }
    }
  }
  std::vector<std::string> missing;
  for (const ShardedTensor& entry : index) {
    const auto at = found.find(entry.tensor);
    if (at == found.end()) {
      missing.push_back(entry.tensor);
      continue;
    }
    if (at->second != entry.file) {
      fail(fmt::format("tensor \"{}\" should be in {} according to the index, but is in {}",
                       text_in_message(entry.tensor), entry.file, at->second));
    }
    found.erase(at);
  }
  if (!missing.empty()) fail(fmt::format("tensors in the index but in no shard: {}", some_of(missing)));
  std::vector<std::string> unlisted;
  for (const auto& [tensor, file] : found) unlisted.emplace_back(tensor);
  if (!unlisted.empty()) fail(fmt::format("tensors in the shards but not in the index: {}", some_of(unlisted)));
}

}  // namespace

std::vector<ShardedTensor> read_shard_index(std::string_view text, const std::string& source,
                                            const std::stop_token& stop,
                                            std::optional<std::uint64_t> max_memory_bytes) {
  const auto fail = [&](std::size_t at, const std::string& what) {
    throw DataError(fmt::format("{}: byte {}: {}", escape_for_terminal(source), at, what));
  };
  const JsonValue root = read_json(text, source, kMaxIndexDepth, stop, max_memory_bytes);
  if (root.kind() != JsonValue::Kind::object) fail(root.offset, "the shard index must be an object");
  const JsonValue* map = root.find("weight_map");
  if (map == nullptr || map->kind() != JsonValue::Kind::object) {
    fail(root.offset, "the shard index has no weight_map, which maps tensors to files");
  }
  // The list, and the data for comparing it with the shards: names, and a tree of views.
  constexpr std::uint64_t kPerTensor = 256;
  std::uint64_t needed = max_memory_bytes ? json_memory_bytes(text, kMaxIndexDepth, stop) : 0;
  for (const auto& [tensor, file] : map->members()) needed += kPerTensor + 2 * tensor.size() + 2 * file.text().size();
  check_json_memory(source, needed, max_memory_bytes);
  std::vector<ShardedTensor> index;
  index.reserve(map->members().size());
  for (const auto& [tensor, file] : map->members()) {
    if (file.kind() != JsonValue::Kind::string) {
      fail(file.offset, fmt::format("the file of tensor \"{}\" must be a string", text_in_message(tensor)));
    }
    if (!is_plain_name(file.text())) {
      fail(file.offset, fmt::format("\"{}\" is not the plain name of a .safetensors file in the same folder",
                                    text_in_message(file.text())));
    }
    index.push_back({tensor, file.text()});
  }
  return index;
}

Checkpoint Checkpoint::read_folder(const std::string& folder, const ModelFileOptions& options,
                                   const std::stop_token& stop) {
  internal::check_is_folder(folder);
  const std::string single = join(folder, kSingleFile);
  const std::string index_path = join(folder, kIndexFile);
  if (ModelFile::stands(single)) return read_file(single, options, stop);
  if (!ModelFile::stands(index_path)) {
    throw DataError(
        fmt::format("{}: contains neither {} nor {}{}", escape_for_terminal(folder), kSingleFile, kIndexFile,
                    ModelFile::stands(join(folder, "pytorch_model.bin"))
                        ? "; pytorch_model.bin is a Python pickle, which is never read; save the model as safetensors"
                        : ""));
  }
  const std::vector<ShardedTensor> index = read_shard_index(read_model_text(folder, kIndexFile, kMaxIndexBytes, stop),
                                                            index_path, stop, options.max_memory_bytes);
  std::vector<std::string> names;
  for (const ShardedTensor& entry : index) names.push_back(entry.file);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (names.size() > kMaxShards) {
    throw DataError(
        fmt::format("{}: lists {} shards; the limit is {}", escape_for_terminal(index_path), names.size(), kMaxShards));
  }
  // All shards are examined before the first is read.
  std::uint64_t num_bytes = 0;
  for (const std::string& name : names) {
    if (__builtin_add_overflow(num_bytes, ModelFile(join(folder, name)).num_bytes(), &num_bytes)) num_bytes = ~0ull;
  }
  if (!options.map) internal::check_memory(folder, num_bytes, options);
  std::vector<internal::LoadedFile> files;
  for (const std::string& name : names) {
    files.push_back(internal::read_safetensors(ModelFile(join(folder, name)), options, stop));
  }
  check_against_index(index_path, index, files);
  return Checkpoint(std::make_shared<Contents>(index_path, std::move(files)));
}

std::string read_model_text(const std::string& folder, std::string_view file, std::uint64_t max_bytes,
                            const std::stop_token& stop) {
  const ModelFile opened(join(folder, file));
  const auto fail = [&](const std::string& what) {
    throw DataError(fmt::format("{}: {}", escape_for_terminal(opened.path()), what));
  };
  if (opened.num_bytes() > max_bytes) {
    fail(fmt::format("has {} bytes; the limit is {}", opened.num_bytes(), max_bytes));
  }
  std::string text(opened.num_bytes(), '\0');
  opened.read(0, std::as_writable_bytes(std::span(text)), stop);
  opened.check_unchanged();
  if (const auto kind = internal::foreign_kind(std::as_bytes(std::span(text)), "text")) fail("byte 0: " + *kind);
  if (const std::size_t valid = valid_utf8_bytes(text, stop); valid != text.size()) {
    fail(fmt::format("byte {}: not valid UTF-8", valid));
  }
  return text;
}

}  // namespace regard::inline v0
