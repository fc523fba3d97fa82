// SPDX-License-Identifier: Apache-2.0
//
// A file of a model, opened so that nothing but a regular file is ever read and nothing waits, and read or mapped; and
// what a file really is that should be another.
//
//     open ── fstat: regular? how long? ── read at most that ── fstat: still the same file, length and time?
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

// The reason that a call to the system failed, from errno: "No such file or directory".
std::string system_reason();

// Throws regard::DataError where no folder stands under that path.
void check_is_folder(const std::string& path);

// Bytes that a file's reader holds: memory of its own, or the mapped file.
struct SharedBytes {
  std::shared_ptr<const std::byte> first;
  std::size_t count = 0;
  std::span<const std::byte> span() const { return {first.get(), count}; }
};

class ModelFile {
 public:
  // Something with this name is there, whatever it is.
  static bool stands(const std::string& path);
  // Throws regard::DataError "<path>: …", like all that follows; path is escaped in it.
  explicit ModelFile(std::string path);
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;
  ~ModelFile();

  const std::string& path() const { return path_; }
  std::uint64_t num_bytes() const { return num_bytes_; }
  // Both throw Cancelled where a stop is requested. From a place in the file on; fewer bytes than asked for only where
  // the file has become shorter, which is an error.
  void read(std::uint64_t offset, std::span<std::byte> to, const std::stop_token& stop = {}) const;
  // In memory that starts at a multiple of 64: numbers lie aligned there.
  SharedBytes read(std::uint64_t offset, std::uint64_t count, const std::stop_token& stop) const;
  SharedBytes map() const;
  // Fails when the file is another, longer, shorter or newer than when it was opened.
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

// "this is a gzip archive, not safetensors; unpack it first", where the first bytes of a file are those of another kind
// than the one expected.
std::optional<std::string> foreign_kind(std::span<const std::byte> first_bytes, std::string_view expected);
// How many bytes foreign_kind looks at.
inline constexpr std::size_t kKindBytes = 64;

}  // namespace regard::inline v0::internal
