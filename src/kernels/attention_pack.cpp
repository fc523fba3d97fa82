// SPDX-License-Identifier: Apache-2.0
//
// Packing: copies of query, key and value in the order in which the register tiles read them.
//
//   query  [group][D][row_group]         one broadcast after the other, a row group a tile
//   key    [panel][D][32]                transposed: lanes run along keys
//   value  [panel][⌈Dv/32⌉][32][32]      lanes run along value columns; finite[panel] for poisoned keys
//
// Rows, keys and columns past the end are zero. Read next: attention_tile.cpp.
#include "kernels.h"
#include "tile.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// (count, depth) → [⌈count/width⌉][depth][width], zeros past count.
template <class T, Index Width>
void pack_groups(Matrix<T> source, Index count, Index depth, T* packed) {
  if (depth == 0) return;
  for (Index first = 0; first < count; first += Width) {
    const Index width = count - first < Width ? count - first : Width;
    const T* corner = source.data + first * source.row_stride;
    if (width < Width) std::memset(packed, 0, static_cast<std::size_t>(depth * Width) * sizeof(T));
    // Eight columns at a time: each row's cache line is read once while the destination stays in L1.
    for (Index d0 = 0; d0 < depth; d0 += 8) {
      const Index d1 = d0 + 8 < depth ? d0 + 8 : depth;
      for (Index r = 0; r < width; ++r) {
        const T* from = corner + r * source.row_stride + d0 * source.column_stride;
        T* to = packed + d0 * Width + r;
        for (Index d = d0; d < d1; ++d) {
          std::memcpy(to, static_cast<const void*>(from), sizeof(T));  // the source may be misaligned
          from += source.column_stride;
          to += Width;
        }
      }
    }
    packed += depth * Width;
  }
}

}  // namespace

template <class T>
void pack_query(Matrix<T> source, Index num_rows, Index depth, T* packed) {
  pack_groups<T, kTileRows>(source, num_rows, depth, packed);
}

template <class T>
void pack_keys(Matrix<T> source, Index num_keys, Index depth, T* panels) {
  pack_groups<T, kPanel>(source, num_keys, depth, panels);
}

template <class T>
void pack_values(Matrix<T> source, Index num_keys, Index columns, T* panels, std::uint8_t* finite) {
  for (Index first = 0; first < num_keys; first += kPanel) {
    const Index keys = num_keys - first < kPanel ? num_keys - first : kPanel;
    Vec<T> poison{};  // 0 · x is NaN exactly when x is not finite
    for (Index c0 = 0; c0 < columns; c0 += kPanel) {
      const Index width = columns - c0 < kPanel ? columns - c0 : kPanel;
      if (keys < kPanel || width < kPanel)
        std::memset(panels, 0, static_cast<std::size_t>(kPanel * kPanel) * sizeof(T));
      for (Index k = 0; k < keys; ++k) {
        const T* from = source.data + (first + k) * source.row_stride + c0 * source.column_stride;
        T* to = panels + k * kPanel;
        if (source.column_stride == 1) {
          std::memcpy(to, static_cast<const void*>(from), static_cast<std::size_t>(width) * sizeof(T));
        } else {
          for (Index c = 0; c < width; ++c) {
            std::memcpy(to + c, static_cast<const void*>(from + c * source.column_stride), sizeof(T));
          }
        }
        for (Index c = 0; c < kPanel; c += kWidth<T>) poison += load(to + c) * static_cast<T>(0);
      }
      panels += kPanel * kPanel;
    }
    *finite++ = !any<T>(poison != poison);
  }
}

template void pack_query(Matrix<float>, Index, Index, float*);
template void pack_query(Matrix<double>, Index, Index, double*);
template void pack_keys(Matrix<float>, Index, Index, float*);
template void pack_keys(Matrix<double>, Index, Index, double*);
template void pack_values(Matrix<float>, Index, Index, float*, std::uint8_t*);
template void pack_values(Matrix<double>, Index, Index, double*, std::uint8_t*);

}  // namespace regard::kernels::REGARD_ISA
