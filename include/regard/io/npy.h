// SPDX-License-Identifier: Apache-2.0
//
// NumPy's array files, read and written by our own grammar.
//
//     magic 93 4E 55 4D 50 59 · version · header length · {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
//     then the elements, row-major, or column-major with fortran_order
//
// A file is untrusted: versions 1 to 3, a header of at most 64 KiB with exactly these three keys, rank at
// most 8, sizes checked before memory is asked for, data of exactly the stated length. Numbers of float16 are widened
// to float32, exactly. Format: NumPy's numpy.lib.format. Read next: src/io/npy.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/export.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

// Fills bytes and returns how many came: fewer than asked for only at the end. Throws regard::DataError.
using ByteSource = std::function<std::size_t(std::span<std::byte> bytes)>;

// An array in memory: this machine's byte order, bool as 0 or 1, the order of the file in the strides.
struct NpyArray {
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  ElementType type = ElementType::float32;  // or float64, int32, int64, boolean
  std::vector<Index> shape;
  std::vector<Index> strides;  // in elements
  std::unique_ptr<std::byte, Free> data;

  // T is what type says: float, double, std::int32_t, std::int64_t or bool.
  template <class T>
  const T* elements() const {
    return reinterpret_cast<const T*>(data.get());
  }
};

// Reads the header when made, so that a program can ask for shapes before it reads, and the elements on request.
// Both throw regard::DataError: "<name>: byte <offset>: …".
class REGARD_EXPORT NpyReader {
 public:
  // source stands at the file's first byte. num_bytes is the length of the whole file, where it is known.
  NpyReader(ByteSource source, std::string name, std::optional<std::uint64_t> num_bytes = std::nullopt);

  const std::string& name() const { return name_; }
  ElementType type() const { return type_; }
  const std::vector<Index>& shape() const { return shape_; }
  Index num_elements() const { return num_elements_; }
  // To be called once.
  NpyArray read();

 private:
  void read_header();
  Index stored_bytes() const;  // of an element of the file

  ByteSource source_;
  std::string name_;
  std::optional<std::uint64_t> num_bytes_;
  std::uint64_t offset_ = 0;
  ElementType type_ = ElementType::float32;
  bool half_ = false;  // of float16, which becomes float32
  bool big_endian_ = false;
  bool fortran_order_ = false;
  std::vector<Index> shape_;
  Index num_elements_ = 1;
};

// The bytes before the elements of a row-major array: version 1.0, what numpy.save writes.
REGARD_EXPORT std::string npy_header(ElementType type, std::span<const Index> shape);

// "(2, 3)", "(2,)", "()": as Python writes it.
REGARD_EXPORT std::string npy_shape_text(std::span<const Index> shape);

}  // namespace regard::inline v0
