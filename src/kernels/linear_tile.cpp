// SPDX-License-Identifier: Apache-2.0
//
// A tile of a matrix product for linear_forward: packed rows (pack_query) times one packed panel (pack_keys).
//
//   output[r][c] = Σ over segments of 256 of (one chain over the segment) + bias[c]
#include "kernels.h"
#include "tile.h"

namespace regard::kernels::REGARD_ISA {
namespace {

template <class T, int Rows>
void product_tile(Index depth, const T* a, const T* b, T* result) {
  Tile<T, Rows> tile;
  clear(tile);
  for (Index done = 0; done < depth; done += kDepthSegment) {
    const Index step = depth - done < kDepthSegment ? depth - done : kDepthSegment;
    Tile<T, Rows> segment;
    clear(segment);
    multiply<T, Rows, kTileRows, 1>(step, a + done * kTileRows, b + done * kPanel, segment);
    for (int r = 0; r < Rows; ++r) {
      for (int v = 0; v < kTileVectors; ++v) tile.row[r][v] += segment.row[r][v];
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < kTileVectors; ++v) store(result + r * kPanel + v * kWidth<T>, tile.row[r][v]);
  }
}

}  // namespace

template <class T>
void linear_tile(Index num_rows, Index num_columns, Index depth, const T* packed_a, const T* panel_b, const T* bias,
                 T* output, Index output_stride) {
  for (Index first = 0; first < num_rows; first += kTileRows) {
    const Index count = num_rows - first < kTileRows ? num_rows - first : kTileRows;
    alignas(64) T result[kTileRows * kPanel];
    for (Index column = 0; column < num_columns; column += kTileColumns<T>) {
      with_rows(count, [&](auto rows) {
        product_tile<T, decltype(rows)::value>(depth, packed_a + first * depth, panel_b + column, result + column);
      });
    }
    for (Index r = 0; r < count; ++r) {
      T* to = output + (first + r) * output_stride;
      const T* from = result + r * kPanel;
      for (Index c = 0; c < num_columns; ++c) to[c] = bias ? from[c] + bias[c] : from[c];
    }
  }
}

template void linear_tile(Index, Index, Index, const float*, const float*, const float*, float*, Index);
template void linear_tile(Index, Index, Index, const double*, const double*, const double*, double*, Index);

}  // namespace regard::kernels::REGARD_ISA
