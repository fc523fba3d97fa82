// SPDX-License-Identifier: Apache-2.0
//
// Reads a safetensors file from its path.
//
//     open ── header length ── enough memory? ── header ── data ── NaN or ∞? ── unchanged? ──▶ Checkpoint
//
// Read next: file_bytes.h, safetensors.cpp, model_folder.cpp (shards).
#include <algorithm>
#include <array>
#include <utility>

#include "checkpoint.h"
#include "file_bytes.h"
#include "file_kind.h"

namespace regard::inline v0 {
namespace internal {

LoadedFile read_safetensors(const ModelFile& file, const ModelFileOptions& options, const std::stop_token& stop) {
  std::array<std::byte, kKindBytes> first{};
  const auto front = std::span(first).first(std::min<std::size_t>(first.size(), file.num_bytes()));
  file.read(0, front);
  const std::uint64_t length = header_length(front, file.num_bytes(), file.path(), options);
  const std::uint64_t data_begin = kLengthBytes + length;
  const std::uint64_t num_data_bytes = file.num_bytes() - data_begin;
  // The header, and the list of tensors, which takes up to twice as many bytes.
  check_memory(file.path(), 3 * length + (options.map ? 0 : num_data_bytes), options);
  LoadedFile loaded = load_parts(
      file.path(), file.read(0, data_begin, stop), num_data_bytes,
      [&] {
        return options.map ? part(file.map(), data_begin, num_data_bytes) : file.read(data_begin, num_data_bytes, stop);
      },
      options, stop);
  file.check_unchanged();
  return loaded;
}

}  // namespace internal

Checkpoint Checkpoint::read_file(const std::string& path, const ModelFileOptions& options,
                                 const std::stop_token& stop) {
  std::vector<internal::LoadedFile> files;
  files.push_back(internal::read_safetensors(internal::ModelFile(path), options, stop));
  return Checkpoint(std::make_shared<Contents>(path, std::move(files)));
}

}  // namespace regard::inline v0
