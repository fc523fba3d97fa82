// SPDX-License-Identifier: Apache-2.0
//
// NPY files in memory as matrices: arrays with 1 to 3 axes, of any type that is read, as doubles.
// Read next: include/regard/io/npy.h.
#include <algorithm>
#include <cstring>

#include "regard/error.h"
#include "regard/io/npy.h"

namespace regard::inline v0 {
namespace {

template <class T>
void append_numbers(const NpyArray& array, Matrix& matrix) {
  const T* elements = array.elements<T>();
  const std::size_t axes = array.shape.size();
  const auto stride = [&](std::size_t from_last) {
    return from_last < axes ? array.strides[axes - 1 - from_last] : Index{0};
  };
  for (Index h = 0; h < matrix.num_heads; ++h)
    for (Index r = 0; r < matrix.num_rows; ++r)
      for (Index c = 0; c < matrix.num_columns; ++c)
        matrix.numbers.push_back(static_cast<double>(elements[h * stride(2) + r * stride(1) + c * stride(0)]));
}

}  // namespace

Matrix read_npy(std::string_view bytes, const std::string& source) {
  std::size_t next = 0;
  NpyReader reader(
      [&](std::span<std::byte> into) {
        const std::size_t count = std::min(into.size(), bytes.size() - next);
        std::memcpy(into.data(), bytes.data() + next, count);
        next += count;
        return count;
      },
      source, bytes.size());
  const std::vector<Index>& shape = reader.shape();
  if (shape.empty() || shape.size() > 3)
    throw DataError(source + ": has shape " + npy_shape_text(shape) +
                    "; expected (rows, columns), or (heads, rows, columns)");
  const NpyArray array = reader.read();
  Matrix matrix;
  matrix.num_columns = array.shape.back();
  matrix.num_rows = array.shape.size() > 1 ? array.shape[array.shape.size() - 2] : 1;
  matrix.num_heads = array.shape.size() > 2 ? array.shape[0] : 1;
  matrix.has_heads = array.shape.size() > 2;
  matrix.numbers.reserve(static_cast<std::size_t>(reader.num_elements()));
  switch (array.type) {
    case ElementType::float32:
      append_numbers<float>(array, matrix);
      break;
    case ElementType::float64:
      append_numbers<double>(array, matrix);
      break;
    case ElementType::int32:
      append_numbers<std::int32_t>(array, matrix);
      break;
    case ElementType::int64:
      append_numbers<std::int64_t>(array, matrix);
      break;
    default:  // boolean
      append_numbers<bool>(array, matrix);
      break;
  }
  return matrix;
}

std::string write_npy(const Matrix& matrix) {
  std::vector<Index> shape{matrix.stored_rows(), matrix.stored_columns()};
  if (matrix.has_heads) shape.insert(shape.begin(), matrix.num_heads);
  std::string bytes = npy_header(ElementType::float64, shape);
  bytes.append(reinterpret_cast<const char*>(matrix.numbers.data()), matrix.numbers.size() * sizeof(double));
  return bytes;
}

}  // namespace regard::inline v0
