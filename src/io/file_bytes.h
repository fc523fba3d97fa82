// SPDX-License-Identifier: Apache-2.0
//
// A model file, opened so that only regular files are ever read and nothing blocks, and then read or mapped.
//
//     open ── fstat: regular? how long? ── read at most that many bytes ── fstat: same file, length and time?
//
// Read next: file_bytes.cpp, safetensors.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "regard/io/safetensors.h"

namespace regard::inline v0::internal {

// The reason for a failed system call, from errno: "No such file or directory".
std::string system_reason();

// Throws regard::DataError if the path is not a folder.
void check_is_folder(const std::string& path);

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

}  // namespace regard::inline v0::internal
