// SPDX-License-Identifier: Apache-2.0
//
// A tile of the matrix product of linear_forward: packed rows (pack_query) times one packed panel (pack_keys), with
// elements of T or pairs of bf16 values.
//
//   output[r][c] = activation(Σ over segments of 256 of (one chain over the segment) + bias[c])
//                  or output[r][c] + the same sum
//
//   for each register tile of rows
//     1. products     chains and segments, into an array on the stack (1.5 KiB for 12 rows of float)
//     2. finish       bias and activation, applied while the array is in L1, and stored in the output
//   or, for whole tiles without either, straight into the output
//
// Read next: tile_epilogue.h, tile_finish.h.
#include "kernels.h"
#include "tile_epilogue.h"
#include "tile_finish.h"

namespace regard::kernels::REGARD_ISA {
namespace {

#if defined(REGARD_ISA_simd128)
inline constexpr bool kReadsAhead = true;
#else
inline constexpr bool kReadsAhead = false;
#endif

// Which part of the next panel, `size` elements, is read by tile `number` of a panel's whole tiles.
template <class T>
ReadAhead<T> part_of_next(const T* next_panel, const T* panel, Index size, Index num_tiles, Index number) {
  if (next_panel == nullptr) return {panel, 0};
  const Index step = (kPanel + num_tiles - 1) / num_tiles;
  const Index part = size / kPanel * step;
  return {next_panel + smaller(number * part, size - part), step};
}

template <class T, int Rows, class Words>
void product_tile(Index depth, const T* a, const T* b, T* products, [[maybe_unused]] ReadAhead<T> ahead) {
  if constexpr (kReadsAhead && Rows == kTileRows) {
    depth_tile<T, Rows, kPanel, false, Words>(depth, 1, a, b, products, ahead);
  } else {
    depth_tile<T, Rows, kPanel, false, Words>(depth, 1, a, b, products);
  }
}

// A whole register tile of a depth of one segment, without a bias: written to the output, or added to it, row by row
// while the following rows are multiplied.
template <class T, bool Add, class Words>
void written_tile(Index depth, const T* a, const T* b, T* output, Index output_stride) {
  Tile<T, kTileRows> tile;
  clear(tile);
  multiply_rows<T, kTileRows, kTileRows, 1, Words>(depth, a, b, tile, [&](int r) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      T* const to = output + v * kWidth<T>;
      store(to, Add ? load(to) + tile.row[r][v] : tile.row[r][v]);
    }
    output += output_stride;
  });
}

template <class T, class Words>
void tile(Index num_rows, Index num_columns, Index depth, const T* packed_a, const T* panel_b, const T* bias,
          Activation activation, T* output, Index output_stride, const T* next_panel) {
  const Index words = words_of<Words>(depth);
  // Tiles of one or two rows do not read ahead.
  const Index num_tiles = larger(1, (num_rows + 1) / kTileRows) * (kPanel / kTileColumns<T>);
  const bool is_added = activation == Activation::added;
  const bool is_written = !bias && (is_added || activation == Activation::none) && num_columns == kPanel && words > 0 &&
                          words <= kDepthSegment / Words::kPerWord;
  for (Index first = 0; first < num_rows; first += kTileRows) {
    const Index count = smaller(num_rows - first, kTileRows);
    if (is_written && count == kTileRows) {
      const auto write = is_added ? written_tile<T, true, Words> : written_tile<T, false, Words>;
      for (Index column = 0; column < kPanel; column += kTileColumns<T>)
        write(words, packed_a + first * words, panel_b + column, output + first * output_stride + column,
              output_stride);
      continue;
    }
    alignas(64) T products[kTileRows * kPanel];
    if (words == 0) std::memset(products, 0, sizeof products);
    for (Index column = 0; column < num_columns && words > 0; column += kTileColumns<T>) {
      with_rows(count, [&](auto rows) {
        const Index number = (first / kTileRows * kPanel + column) / kTileColumns<T>;
        product_tile<T, decltype(rows)::value, Words>(
            words, packed_a + first * words, panel_b + column, products + column,
            part_of_next(next_panel, panel_b, words * kPanel, num_tiles, number));
      });
    }
    finish_tile<T>(activation, count, num_columns, products, bias, output + first * output_stride, output_stride);
  }
}

}  // namespace

#if !defined(REGARD_PAIRS_ONLY)
template <class T>
void linear_tile(Index num_rows, Index num_columns, Index depth, const T* packed_a, const T* panel_b, const T* bias,
                 Activation activation, T* output, Index output_stride, const T* next_panel) {
  tile<T, Singles>(num_rows, num_columns, depth, packed_a, panel_b, bias, activation, output, output_stride,
                   next_panel);
}

template void linear_tile(Index, Index, Index, const float*, const float*, const float*, Activation, float*, Index,
                          const float*);
template void linear_tile(Index, Index, Index, const double*, const double*, const double*, Activation, double*, Index,
                          const double*);
#endif

void linear_pairs(Index num_rows, Index num_columns, Index depth, const float* packed_a, const float* panel_b,
                  const float* bias, Activation activation, float* output, Index output_stride,
                  const float* next_panel) {
  tile<float, Pairs>(num_rows, num_columns, depth, packed_a, panel_b, bias, activation, output, output_stride,
                     next_panel);
}

void narrow(const float* from, Bfloat16* to, Index count) {
  typedef std::uint16_t Half __attribute__((vector_size(kVectorBytes / 2)));
  for (Index i = 0; i < count; i += kWidth<float>) {
    const Vec<float> x = load_some(from + i, count - i);
    const IntVec<float> bits = bits_of<float>(x);
    const IntVec<float> rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const IntVec<float> quiet = bits >> 16 | 0x40;
    const Half halves = __builtin_convertvector(x == x ? rounded : quiet, Half);
    if (count - i >= kWidth<float>) {
      std::memcpy(static_cast<void*>(to + i), &halves, sizeof halves);
    } else {
      std::memcpy(static_cast<void*>(to + i), &halves, static_cast<std::size_t>(count - i) * sizeof(Bfloat16));
    }
  }
}

}  // namespace regard::kernels::REGARD_ISA
