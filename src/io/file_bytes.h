// SPDX-License-Identifier: Apache-2.0
//
// A model file, opened so that only regular files are ever read and nothing blocks, and then read or mapped; and the
// detection of files of a different kind than expected.
//
//     open ── fstat: regular? how long? ── read at most that many bytes ── fstat: same file, length and time?
//
// Read next: file_bytes.cpp, safetensors.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "regard/runtime.h"

namespace regard::inline v0::internal {

// The reason for a failed system call, from errno: "No such file or directory".
std::string system_reason();

// Throws regard::DataError if the path is not a folder.
void check_is_folder(const std::string& path);

// The bytes held by a file's reader: allocated memory, or the mapped file.
struct SharedBytes {
  std::shared_ptr<const std::byte> first;
  std::size_t count = 0;
  std::span<const std::byte> span() const { return {first.get(), count}; }
};

class ModelFile {
 public:
  // True if anything exists under this path.
  static bool stands(const std::string& path);
  // Throws regard::DataError "<path>: …", like the functions below; the path is escaped in the message.
  explicit ModelFile(std::string path);
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;
  ~ModelFile();

  const std::string& path() const { return path_; }
  std::uint64_t num_bytes() const { return num_bytes_; }
  // Both throw Cancelled if a stop is requested. Reads from the given offset on; an end of file before all bytes are
  // read is an error.
  void read(std::uint64_t offset, std::span<std::byte> to, const std::stop_token& stop = {}) const;
  // Into memory aligned to 64 bytes, so that elements are aligned.
  SharedBytes read(std::uint64_t offset, std::uint64_t count, const std::stop_token& stop) const;
  SharedBytes map() const;
  // Throws if the file has been replaced or has changed its length or time since it was opened.
  void check_unchanged() const;

 private:
  struct Stamp {
    std::uint64_t device, inode, num_bytes;
    std::int64_t seconds, nanoseconds;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  Stamp stamp() const;
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_;
  int descriptor_ = -1;
  std::uint64_t num_bytes_ = 0;
  Stamp opened_{};
};

// "this is a gzip archive, not safetensors; unpack it first", if the first bytes of a file identify a different kind
// than the expected one.
std::optional<std::string> foreign_kind(std::span<const std::byte> first_bytes, std::string_view expected);
// The number of bytes that foreign_kind examines.
inline constexpr std::size_t kKindBytes = 64;

}  // namespace regard::inline v0::internal
