// SPDX-License-Identifier: Apache-2.0
//
// The contents of a Checkpoint, and the reader of one of its files.
// Read next: safetensors.cpp, model_folder.cpp.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "file_bytes.h"
#include "regard/io/safetensors.h"

namespace regard::inline v0 {
namespace internal {

struct LoadedFile {
  std::string path;
  SharedBytes front{};  // the header's length and the header
  SharedBytes data{};
  std::vector<StoredTensor> tensors{};  // in the order of their data
};

// Throws like Checkpoint::read_file; available memory is checked for this file only.
LoadedFile read_safetensors(const ModelFile& file, const ModelFileOptions& options, const std::stop_token& stop);

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
