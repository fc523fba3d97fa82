// SPDX-License-Identifier: Apache-2.0
//
// Packing: copies query, key and value into the order in which the register tiles read them.
//
//   query  [group][D][row_group]         consecutive broadcasts; one row group per tile
//   key    [panel][D][32]                transposed: lanes run along keys
//   value  [panel][⌈Dv/32⌉][32][32]      lanes run along value columns; finite[panel] is false for non-finite values
//
// Rows, keys and columns past the end are zero, except in a query group of a single row, whose other rows are never
// read. 16-bit elements are converted while they are copied; S is their type, or T.
// Read next: simd_convert.h, attention_tile.cpp.
#include "kernels.h"
#include "simd_convert.h"
#include "tile.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// One group, element by element, with any strides and alignment, for columns d_begin … depth − 1 of the source.
template <class T, Index Width, class S>
void pack_elements(Matrix<S> source, Index width, Index d_begin, Index depth, T* packed) {
  // Eight columns at a time: each row's cache line is read once while the destination stays in L1.
  for (Index d0 = d_begin; d0 < depth; d0 += 8) {
    const Index d1 = d0 + 8 < depth ? d0 + 8 : depth;
    for (Index r = 0; r < Width; ++r) {
      const S* from = source.data + r * source.row_stride + d0 * source.column_stride;
      T* to = packed + d0 * Width + r;
      for (Index d = d0; d < d1; ++d) {
        *to = r < width ? read_as<T>(from) : 0;
        from += source.column_stride;
        to += Width;
      }
    }
  }
}

// Prefetches the rows, of `bytes` bytes each, that are read next: hardware prefetchers do not predict the order of
// their lines.
REGARD_INLINE void prefetch_rows(const char* first, Index row_bytes, Index num_rows, Index bytes) {
  for (Index r = 0; r < num_rows; ++r) {
    for (Index at = 0; at < bytes; at += 64) __builtin_prefetch(first + r * row_bytes + at);
  }
}

// One group of rows with contiguous elements, in squares of kWidth × kWidth in registers. Returns the number of source
// columns that are done, a multiple of kWidth.
template <class T, Index Width, class S>
Index pack_squares(Matrix<S> source, Index width, Index depth, T* packed) {
  constexpr Index kLastPart = (Width - 1) / kWidth<T> * kWidth<T>;
  const Index done = depth / kWidth<T> * kWidth<T>;
  for (Index d0 = 0; d0 < done; d0 += kWidth<T>) {
    // From the last part to the first: if a part is narrower than a vector, the excess that it stores is overwritten by
    // the next store.
    for (Index part = kLastPart; part >= 0; part -= kWidth<T>) {
      if (part >= width && part + kWidth<T> <= Width) {
        for (Index i = 0; i < kWidth<T>; ++i) store(packed + (d0 + i) * Width + part, Vec<T>{});
        continue;
      }
      Vec<T> square[kWidth<T>];
#pragma GCC unroll 16
      for (Index i = 0; i < kWidth<T>; ++i) {
        square[i] = Vec<T>{};
        if (part + i < Width && part + i < width)
          square[i] = load_as<T>(source.data + (part + i) * source.row_stride + d0);
      }
      transpose<T>(square);
#pragma GCC unroll 16
      for (Index i = 0; i < kWidth<T>; ++i) {
        T* to = packed + (d0 + i) * Width + part;
        if (part + kWidth<T> <= Width || d0 + i + 1 < depth) {
          store(to, square[i]);
        } else {
          store_some(to, square[i], Width - part);
        }
      }
    }
  }
  return done;
}

// One group, of a source whose columns are contiguous.
template <class T, Index Width, class S>
void pack_lines(Matrix<S> source, Index depth, T* packed) {
  for (Index d = 0; d < depth; ++d) {
    widen_row(source.data + d * source.column_stride, packed + d * Width, Width);
  }
}

// A group of a single row. Tiles of one row of query read no other row (with_rows, tile.h).
template <class T, Index Width, class S>
void pack_row(Matrix<S> source, Index depth, T* packed) {
  if (Width == kPanel) std::memset(packed, 0, static_cast<std::size_t>(depth * Width) * sizeof(T));
  for (Index d = 0; d < depth; ++d) packed[d * Width] = read_as<T>(source.data + d * source.column_stride);
}

// (count, depth) → [⌈count/width⌉][depth][width], zero past count.
template <class T, Index Width, class S>
void pack_groups(Matrix<S> source, Index count, Index depth, T* packed) {
  if (depth == 0) return;
  for (Index first = 0; first < count; first += Width) {
    const Index width = count - first < Width ? count - first : Width;
    const Matrix<S> group{source.data + first * source.row_stride, source.row_stride, source.column_stride};
    if (source.row_stride == 1 && width == Width) {
      pack_lines<T, Width>(group, depth, packed);
    } else if (width == 1) {
      pack_row<T, Width>(group, depth, packed);
    } else {
      Index done = 0;
      if (source.column_stride == 1) {
        const Index rows_to_prefetch = smaller(Width, count - first - width);
        prefetch_rows(reinterpret_cast<const char*>(group.data + width * group.row_stride),
                      group.row_stride * static_cast<Index>(sizeof(S)), rows_to_prefetch,
                      depth * static_cast<Index>(sizeof(S)));
        done = pack_squares<T, Width>(group, width, depth, packed);
      }
      pack_elements<T, Width>(group, width, done, depth, packed);
    }
    packed += depth * Width;
  }
}

// A panel of up to 32 rows of 32 contiguous values; poison becomes NaN if any value is not finite.
template <class T, class S>
void pack_whole_values(const S* from, Index row_stride, Index keys, T* panel, Vec<T>& poison) {
  constexpr int kVectors = static_cast<int>(kPanel) / kWidth<T>;
  Vec<T> found[kVectors]{};
#pragma GCC unroll 4
  for (Index k = 0; k < keys; ++k) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const Vec<T> x = load_as<T>(from + k * row_stride + v * kWidth<T>);
      store(panel + k * kPanel + v * kWidth<T>, x);
      found[v] += x * static_cast<T>(0);  // 0 · x is NaN exactly when x is not finite
    }
  }
  for (int v = 0; v < kVectors; ++v) poison += found[v];
  for (Index at = keys * kPanel; at < kPanel * kPanel; at += kWidth<T>) store(panel + at, Vec<T>{});
}

}  // namespace

template <class T, class S>
void PackKernels<T, S>::pack_query(Matrix<S> source, Index num_rows, Index depth, T* packed) {
  pack_groups<T, kTileRows>(source, num_rows, depth, packed);
}

template <class T, class S>
void PackKernels<T, S>::pack_keys(Matrix<S> source, Index num_keys, Index depth, T* panels) {
  pack_groups<T, kPanel>(source, num_keys, depth, panels);
}

template <class T, class S>
void PackKernels<T, S>::pack_values(Matrix<S> source, Index num_keys, Index columns, T* panels, std::uint8_t* finite) {
  for (Index first = 0; first < num_keys; first += kPanel) {
    const Index keys = num_keys - first < kPanel ? num_keys - first : kPanel;
    Vec<T> poison{};
    if (source.column_stride == 1) {
      prefetch_rows(reinterpret_cast<const char*>(source.data + (first + keys) * source.row_stride),
                    source.row_stride * static_cast<Index>(sizeof(S)), smaller(kPanel, num_keys - first - keys),
                    columns * static_cast<Index>(sizeof(S)));
    }
    for (Index c0 = 0; c0 < columns; c0 += kPanel) {
      const Index width = columns - c0 < kPanel ? columns - c0 : kPanel;
      const S* corner = source.data + first * source.row_stride + c0 * source.column_stride;
      if (width == kPanel && source.column_stride == 1) {
        pack_whole_values(corner, source.row_stride, keys, panels, poison);
      } else {
        std::memset(panels, 0, static_cast<std::size_t>(kPanel * kPanel) * sizeof(T));
        for (Index k = 0; k < keys; ++k) {
          const S* from = corner + k * source.row_stride;
          T* to = panels + k * kPanel;
          for (Index c = 0; c < width; ++c) to[c] = read_as<T>(from + c * source.column_stride);
          for (Index c = 0; c < kPanel; c += kWidth<T>) poison += load(to + c) * static_cast<T>(0);
        }
      }
      panels += kPanel * kPanel;
    }
    *finite++ = !any<T>(poison != poison);
  }
}

template <class T, class S>
void PackKernels<T, S>::widen(const S* from, T* to, Index count)
  requires(sizeof(S) < sizeof(T))
{
  widen_row(from, to, count);
}

REGARD_INSTANTIATE_COMPUTE_CLASS(struct, PackKernels);
template struct PackKernels<float, Bfloat16>;
template struct PackKernels<float, Float16>;

}  // namespace regard::kernels::REGARD_ISA
