// SPDX-License-Identifier: Apache-2.0
//
// Files of a pretrained model: its numbers (safetensors, in one file or in shards) and its texts (config.json …).
//
//     8 bytes: N, little-endian · N bytes: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …}
//     then the data, one tensor behind the other
//
// Files are untrusted. The header is read whole before memory for the data is asked for; its offsets must
// tile the data without hole or overlap, and the file must end with the last. Format: the README of safetensors, as
// strict as its own reader and stricter: no name twice, no field unknown, names of 1 to 512 bytes without control
// characters, rank at most 8, extents at most 2^48, 4096 shards.
//
// What reads throws regard::Cancelled where a stop is requested.
// Read next: src/io/safetensors.cpp, src/io/model_folder.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/export.h"
#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

// A type as the file has it: "F64", "BF16", "BOOL".
REGARD_EXPORT std::string_view safetensors_type_name(ElementType type);

// A tensor as it lies in the file: dense, row-major, little-endian.
struct StoredTensor {
  std::string name;
  ElementType type = ElementType::float32;
  std::vector<Index> shape;          // empty: one number
  std::span<const std::byte> bytes;  // of the Checkpoint that holds it
};

struct ModelFileOptions {
  // Maps the file instead of reading it: less memory, but whoever shortens the file meanwhile ends the process
  // (SIGBUS), and whoever writes to it changes the numbers.
  bool map = false;
  // NaN and ±∞ among floating-point numbers are rejected unless this is set.
  bool allow_nonfinite = false;
  std::uint64_t max_header_bytes = 100'000'000;
  Index max_tensors = 1 << 20;  // in one file
  // Bytes that a model may take in memory, and each text of JSON while it is read; absent: available_memory_bytes().
  std::optional<std::uint64_t> max_memory_bytes{};
};

// All tensors of one file, or of all shards of a folder. Copies share the bytes.
class REGARD_EXPORT Checkpoint {
 public:
  // Throw regard::DataError "<path>: byte <offset>: …" or "<path>: …": a file that cannot be opened, is not regular or
  // changes while it is read; one that breaks the format (one that is really a zip, gzip, pickle, HTML page or Git LFS
  // pointer is named as that); NaN and ±∞; more memory than there is, with both numbers.
  static Checkpoint read_file(const std::string& path, const ModelFileOptions& options = {},
                              const std::stop_token& stop = {});
  // model.safetensors, else the shards that model.safetensors.index.json names; those lie in the same folder, hold
  // exactly the tensors that the index gives them, and no tensor twice. Symbolic links in the folder are followed.
  static Checkpoint read_folder(const std::string& folder, const ModelFileOptions& options = {},
                                const std::stop_token& stop = {});

  // Path of the file, or of the index.
  const std::string& name() const;
  const std::vector<StoredTensor>& tensors() const;  // ascending by the bytes of their names
  const StoredTensor* find(std::string_view name) const;

  // The numbers as f32, row-major: F32 as stored, F16 and BF16 exactly, F64 rounded to nearest.
  // Throws regard::DataError naming the file and the tensor: a type that holds no real numbers; an F64 too large.
  std::vector<float> read_float32(const StoredTensor& tensor, const std::stop_token& stop = {}) const;
  // The same; F32 is not copied but seen where it lies in the file's bytes, which live as long as the pointer does.
  std::shared_ptr<const float> share_float32(const StoredTensor& tensor, const std::stop_token& stop = {}) const;

  // SHA-256 in hex: of the file; of shards, of the lines "<SHA-256>  <file name>\n" in the order of their names, as
  // `sha256sum model-*.safetensors | sha256sum` says. The first call that is not stopped reads every byte: about 0.3 s
  // for 100 MB.
  std::string sha256(const std::stop_token& stop = {}) const;

 private:
  struct Contents;
  explicit Checkpoint(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}
  friend REGARD_EXPORT Checkpoint parse_safetensors(std::vector<std::byte> bytes, std::string name,
                                                    const ModelFileOptions& options, const std::stop_token& stop);
  std::shared_ptr<const Contents> contents_;
};

// A safetensors file that is in memory already; name stands in errors. Throws as Checkpoint::read_file.
REGARD_EXPORT Checkpoint parse_safetensors(std::vector<std::byte> bytes, std::string name,
                                           const ModelFileOptions& options = {}, const std::stop_token& stop = {});

// Which shard holds which tensor: "weight_map" of the text of a model.safetensors.index.json.
// Throws regard::DataError "<source>: byte <offset>: …": not JSON, no weight_map, a shard's name that is not the plain
// name of a .safetensors file; "<source>: needs <bytes> bytes of memory; <bytes> are available", before they are taken.
struct ShardedTensor {
  std::string tensor;
  std::string file;
};
REGARD_EXPORT std::vector<ShardedTensor> read_shard_index(std::string_view text, const std::string& source,
                                                          const std::stop_token& stop = {},
                                                          std::optional<std::uint64_t> max_memory_bytes = std::nullopt);

// The text of one file of a folder, such as config.json: opened without waiting, regular, UTF-8, at most max_bytes.
// Throws regard::DataError naming the path; a Git LFS pointer or HTML page in place of a text is named as that.
REGARD_EXPORT std::string read_model_text(const std::string& folder, std::string_view file, std::uint64_t max_bytes,
                                          const std::stop_token& stop = {});

}  // namespace regard::inline v0
