// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads and writes NumPy array files (NPY), without NumPy.
///
/// @verbatim
///     magic 93 4E 55 4D 50 59 · version · header length · {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
///     then the elements, row-major, or column-major with fortran_order
/// @endverbatim
///
/// Files are untrusted. Versions 1 to 3 are accepted, with at most 8 axes and a header of at most 64 KiB with exactly
/// these three keys. Sizes are checked before memory is allocated, and the data must have the stated length.
/// float16 elements are converted to float32, which is exact. Format: NumPy's numpy.lib.format.
///
/// Read next: src/io/npy.cpp; src/io/npy_matrix.cpp for matrices.
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
#include "regard/io/matrix.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// Fills `bytes` from a file or stream and returns the number of bytes read.
///
/// The number is less than bytes.size() only at the end of the file. The function throws DataError if reading fails.
using ByteSource = std::function<std::size_t(std::span<std::byte> bytes)>;

/// An array in memory, in native byte order. Booleans are stored as 0 or 1.
struct NpyArray {
  /// Frees the elements.
  struct Free {
    /// Calls std::free.
    ///
    /// @param p  Memory from std::malloc or std::realloc.
    void operator()(std::byte* p) const { std::free(p); }
  };
  ElementType type = ElementType::float32;  ///< One of float32, float64, int32, int64 and boolean.
  std::vector<Index> shape;                 ///< Extents; empty for a scalar.
  std::vector<Index> strides;               ///< In elements; column-major if the file has fortran_order.
  std::unique_ptr<std::byte, Free> data;    ///< The elements.

  /// Returns the elements as an array of their type.
  ///
  /// @tparam T  The type that `type` names: float, double, std::int32_t, std::int64_t or bool.
  /// @return A pointer to the first element, valid as long as `data` is.
  template <class T>
  const T* elements() const {
    return reinterpret_cast<const T*>(data.get());
  }
};

/// Reads one NPY file in two stages: the header on construction, the elements on request.
///
/// A program can therefore check the shape before it reads the elements. Both stages throw DataError
/// "name: byte N: …" for a file that is malformed, truncated or too long, or whose type is not supported.
///
/// @par Example
/// @code{.cpp}
/// NpyReader reader(source, "query.npy");  // reader.type() and reader.shape() are now known
/// const NpyArray query = reader.read();
/// @endcode
class REGARD_EXPORT NpyReader {
 public:
  /// Reads and checks the header.
  ///
  /// @param source     Source of bytes, positioned at the first byte of the file.
  /// @param name       Name of the file for error messages.
  /// @param num_bytes  Length of the whole file in bytes, if known.
  /// @throws DataError  "name: byte N: …" if the header is malformed or truncated, if the type is not supported, or if
  ///                    num_bytes does not match the header.
  NpyReader(ByteSource source, std::string name, std::optional<std::uint64_t> num_bytes = std::nullopt);

  /// Returns the name given to the constructor.
  const std::string& name() const { return name_; }
  /// Returns the type of the elements in memory: float32 even if the file stores float16.
  ElementType type() const { return type_; }
  /// Returns the extents.
  const std::vector<Index>& shape() const { return shape_; }
  /// Returns the product of the extents.
  Index num_elements() const { return num_elements_; }
  /// Reads the elements. This function may be called only once.
  ///
  /// If the length of the file is unknown, the buffer grows as bytes arrive.
  ///
  /// @return The array.
  /// @throws DataError       "name: byte N: …" if the file is truncated or too long.
  /// @throws std::bad_alloc  if memory cannot be allocated.
  NpyArray read();
  /// Reads only some rows: `first ≤ i < first + count` along the second-to-last axis, in all matrices. This function
  /// may be called only once, instead of read().
  ///
  /// @param first  First row.
  /// @param count  Number of rows; first + count is at most the extent of the axis.
  /// @param seek   Moves the source to a byte offset in the file.
  /// @return The rows, in the order of the file: row-major or column-major.
  /// @throws DataError        as read() does.
  /// @throws InvalidArgument  if there are fewer than two axes, or if the rows do not exist.
  /// @throws std::bad_alloc   if memory cannot be allocated.
  NpyArray read_rows(Index first, Index count, const std::function<void(std::uint64_t)>& seek);

 private:
  void read_header();
  // Converts elements that were read to native byte order and to the type in memory.
  void convert(NpyArray& array, Index count) const;
  Index stored_bytes() const;  // per element of the file

  ByteSource source_;
  std::string name_;
  std::optional<std::uint64_t> num_bytes_;
  std::uint64_t offset_ = 0;
  ElementType type_ = ElementType::float32;
  bool half_ = false;  // the file holds float16, converted to float32
  bool big_endian_ = false;
  bool fortran_order_ = false;
  std::vector<Index> shape_;
  Index num_elements_ = 1;
};

/// Formats the header of a row-major NPY file: the bytes before the elements, version 1.0, as numpy.save writes them.
///
/// @param type   Type of the elements: float32, float64, int32, int64 or boolean.
/// @param shape  Extents.
/// @return The bytes.
/// @throws InvalidArgument  if the type is not one of these.
///
/// @par Example
/// @code{.cpp}
/// file.write(npy_header(ElementType::float32, std::vector<Index>{2, 3}));
/// file.write(std::as_bytes(std::span(elements)));  // 6 floats
/// @endcode
REGARD_EXPORT std::string npy_header(ElementType type, std::span<const Index> shape);

/// Reads an NPY file in memory as a matrix, or as one matrix per head.
///
/// @param bytes   The file: an array with 1 to 3 axes, (columns), (rows, columns) or (heads, rows, columns).
/// @param source  Name of the file for error messages.
/// @return The matrix; its elements are converted to double.
/// @throws DataError  as NpyReader does, or if the array has a different number of axes. The message names `source`.
///
/// @par Example
/// @code{.cpp}
/// const Matrix m = read_npy(write_npy(matrix_of({{1, 2}, {3, 4}})), "example.npy");  // 2 rows, 2 columns
/// @endcode
REGARD_EXPORT Matrix read_npy(std::string_view bytes, const std::string& source);
/// Writes the stored elements of a matrix as a float64 NPY file.
///
/// @param matrix  The matrix.
/// @return The bytes of the file: an array of shape (rows, columns), or (heads, rows, columns) if Matrix::has_heads is
///         set.
REGARD_EXPORT std::string write_npy(const Matrix& matrix);

/// Formats a shape as Python does: "(2, 3)", "(2,)" or "()".
///
/// @param shape  Extents.
/// @return The text.
REGARD_EXPORT std::string npy_shape_text(std::span<const Index> shape);

}  // namespace regard::inline v0
