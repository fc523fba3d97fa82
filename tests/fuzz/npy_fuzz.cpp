// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target for NPY files: any bytes are read, or rejected with std::runtime_error. The result is the same
// whether the length is known (a file) or not (a pipe). The array is written again and read back unchanged. Read next:
// src/io/npy.cpp.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "regard/io/npy.h"

namespace {

using regard::Index;
using regard::NpyArray;

void require(bool condition) {
  if (!condition) std::abort();
}

regard::ByteSource source_of(std::span<const std::byte> bytes) {
  return [bytes](std::span<std::byte> to) mutable {
    const std::size_t count = std::min(to.size(), bytes.size());
    std::copy_n(bytes.begin(), count, to.begin());
    bytes = bytes.subspan(count);
    return count;
  };
}

std::size_t num_bytes(const NpyArray& array) {
  Index count = regard::type_bytes(array.type);
  for (Index extent : array.shape) count *= extent;
  return static_cast<std::size_t>(count);
}

bool read(std::span<const std::byte> bytes, bool known, NpyArray& array) {
  try {
    regard::NpyReader reader(source_of(bytes), "fuzz", known ? std::optional(bytes.size()) : std::nullopt);
    array = reader.read();
    return true;
  } catch (const std::runtime_error& error) {
    require(std::strncmp(error.what(), "fuzz: byte ", 11) == 0);
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  NpyArray file;
  NpyArray pipe;
  const bool good = read(bytes, true, file);
  require(read(bytes, false, pipe) == good);
  if (!good) return 0;
  require(file.shape == pipe.shape && file.strides == pipe.strides && file.type == pipe.type);
  require(std::memcmp(file.data.get(), pipe.data.get(), num_bytes(file)) == 0);

  const std::string header = regard::npy_header(file.type, file.shape);
  require(header.size() % 64 == 0);
  std::vector<std::byte> again(header.size() + num_bytes(file));
  std::memcpy(again.data(), header.data(), header.size());
  std::memcpy(again.data() + header.size(), file.data.get(), num_bytes(file));
  NpyArray second;
  require(read(again, true, second) && second.shape == file.shape && second.type == file.type);
  require(std::memcmp(second.data.get(), file.data.get(), num_bytes(file)) == 0);
  return 0;
}
