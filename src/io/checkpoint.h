// SPDX-License-Identifier: Apache-2.0
//
// The contents of a Checkpoint, and the reader of one of its files, which may be in memory.
// Read next: safetensors.cpp, safetensors_file.cpp, model_folder.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "regard/io/safetensors.h"

namespace regard::inline v0 {
namespace internal {

struct LoadedFile {
  std::string path;
  SharedBytes front{};  // the header length and the header
  SharedBytes data{};
  std::vector<StoredTensor> tensors{};  // in the order of their data
};

class ModelFile;  // file_bytes.h
// Throws like Checkpoint::read_file; available memory is checked for this file only.
LoadedFile read_safetensors(const ModelFile& file, const ModelFileOptions& options, const std::stop_token& stop);

// A file begins with the length of its header.
inline constexpr std::uint64_t kLengthBytes = 8;
// Both functions below throw like Checkpoint::read_memory.
// Returns the header length. front: the first kKindBytes bytes, or all of a shorter file; num_bytes: the size of the
// whole file.
std::uint64_t header_length(std::span<const std::byte> front, std::uint64_t num_bytes, const std::string& path,
                            const ModelFileOptions& options);
// front: the length and the header. read_data is called after the header has been checked.
LoadedFile load_parts(std::string path, SharedBytes front, std::uint64_t num_data_bytes,
                      const std::function<SharedBytes()>& read_data, const ModelFileOptions& options,
                      const std::stop_token& stop);
// A range of bytes that keeps the whole alive.
SharedBytes part(const SharedBytes& whole, std::size_t begin, std::size_t count);

// The name of the tensor that holds the scales of a matrix of int8 (regard/io/rounding.h).
inline std::string scales_name(const std::string& matrix) { return matrix + ".scale"; }

// The largest scale: −128 times this is finite.
inline constexpr float kMaxScale = 0x1p120f;

// Throws regard::DataError, stating both numbers, if num_bytes exceeds the memory that may be used.
void check_memory(const std::string& path, std::uint64_t num_bytes, const ModelFileOptions& options);

}  // namespace internal

struct Checkpoint::Contents {
  // files: ascending by path. Their tensors, whose names must be unique, are moved into one list.
  Contents(std::string name_, std::vector<internal::LoadedFile> files_);

  std::string name;
  std::vector<internal::LoadedFile> files;
  std::vector<StoredTensor> tensors;  // ascending by name
  mutable std::once_flag summed;
  mutable std::string sum;  // SHA-256, once it has been requested
};

}  // namespace regard::inline v0
