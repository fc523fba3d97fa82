// SPDX-License-Identifier: Apache-2.0
//
// A tile of the matrix product of linear_forward: packed rows (pack_query) times one packed panel (pack_keys), with
// elements of T or pairs of bf16 values.
//
//   output[r][c] = activation(Σ over segments of 256 of (one chain over the segment) + bias[c])
//                  or output[r][c] + the same sum
//
//   for each segment, for each register tile of rows
//     1. products     a chain for each element, written or added to an array on the stack (7.5 KiB for 60 rows)
//   2. finish         bias and activation, applied while the array is in L1, and stored in the output
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

// The products of a register tile of a depth of one segment, written to `to` or added to it, row by row while the
// following rows are multiplied.
template <class T, int Rows, bool Add, class Words>
void segment_tile(Index depth, const T* a, const T* b, T* to, Index stride, [[maybe_unused]] ReadAhead<T> ahead) {
  Tile<T, Rows> tile;
  clear(tile);
  const auto store_row = [&](int r) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      T* const at = to + v * kWidth<T>;
      store(at, Add ? load(at) + tile.row[r][v] : tile.row[r][v]);
    }
    to += stride;
  };
  if constexpr (kReadsAhead && Rows == kTileRows) {
    multiply_rows<T, Rows, kTileRows, 1, Words>(depth, a, b, tile, store_row, ahead);
  } else {
    multiply_rows<T, Rows, kTileRows, 1, Words>(depth, a, b, tile, store_row);
  }
}

// Segment by segment, so that a segment of the panel stays in L1 while all rows are multiplied with it.
template <class T, class Words>
void tile(Index num_rows, Index num_columns, Index depth, const T* packed_a, const T* panel_b, const T* bias,
          Activation activation, T* output, Index output_stride, const T* next_panel) {
  constexpr Index kSegment = kDepthSegment / Words::kPerWord;
  const Index words = words_of<Words>(depth);
  // Tiles of one or two rows do not read ahead.
  const Index num_tiles = larger(1, (num_rows + 1) / kTileRows) * (kPanel / kTileColumns<T>);
  const bool is_added = activation == Activation::added;
  const bool is_direct = !bias && num_columns == kPanel && words > 0 &&
                         (activation == Activation::none || (is_added && words <= kSegment));
  // Whole register tiles are written to the output if nothing else happens to it; others are finished in this array.
  const Index direct_rows = is_direct ? num_rows / kTileRows * kTileRows : 0;
  alignas(64) T products[kRows * kPanel];
  if (words == 0) std::memset(products, 0, sizeof products);
  for (Index begin = 0; begin < words; begin += kSegment) {
    const Index step = smaller(words - begin, kSegment);
    for (Index first = 0; first < num_rows; first += kTileRows) {
      const bool direct = first < direct_rows;
      const bool added = begin > 0 || (direct && is_added);
      T* const to = direct ? output + first * output_stride : products + first * kPanel;
      for (Index column = 0; column < num_columns; column += kTileColumns<T>) {
        ReadAhead<T> ahead = part_of_next(next_panel, panel_b, words * kPanel, num_tiles,
                                          (first / kTileRows * kPanel + column) / kTileColumns<T>);
        ahead.at += begin * ahead.step;
        with_rows(smaller(num_rows - first, kTileRows), [&](auto rows) {
          constexpr int kCount = decltype(rows)::value;
          const auto multiply = added ? segment_tile<T, kCount, true, Words> : segment_tile<T, kCount, false, Words>;
          multiply(step, packed_a + first * words + begin * kTileRows, panel_b + begin * kPanel + column, to + column,
                   direct ? output_stride : kPanel, ahead);
        });
      }
    }
  }
  finish_tile<T>(activation, num_rows - direct_rows, num_columns, products + direct_rows * kPanel, bias,
                 output + direct_rows * output_stride, output_stride);
}

}  // namespace

#if !defined(REGARD_PAIRS_ONLY)
template <class T>
void linear_tile(Index num_rows, Index num_columns, Index depth, const T* packed_a, const T* panel_b, const T* bias,
                 Activation activation, T* output, Index output_stride, const T* next_panel) {
  tile<T, Scalars>(num_rows, num_columns, depth, packed_a, panel_b, bias, activation, output, output_stride,
                   next_panel);
}

REGARD_INSTANTIATE_COMPUTE(linear_tile);
#endif

void linear_pairs(Index num_rows, Index num_columns, Index depth, const float* packed_a, const float* panel_b,
                  const float* bias, Activation activation, float* output, Index output_stride,
                  const float* next_panel) {
  tile<float, Bf16Pairs>(num_rows, num_columns, depth, packed_a, panel_b, bias, activation, output, output_stride,
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
