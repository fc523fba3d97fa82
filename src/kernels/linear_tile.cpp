// SPDX-License-Identifier: Apache-2.0
//
// A tile of a matrix product for linear_forward: packed rows (pack_query) times one packed panel (pack_keys).
//
//   output[r][c] = activation(Σ over segments of 256 of (one chain over the segment) + bias[c])
//
// A register tile of products goes through 1.5 KiB of stack, where bias and activation take it up while it is in L1.
// Read next: tile.h, simd_gelu.h.
#include "kernels.h"
#include "simd_gelu.h"
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

// output[r][c] = f(products[r][c] + bias[c]).
template <class T, class F>
REGARD_INLINE void finish_tile(Index num_rows, Index num_columns, const T* products, const T* bias, T* output,
                               Index output_stride, F f) {
  for (Index c = 0; c < num_columns; c += kWidth<T>) {
    const Index width = num_columns - c;
    const Vec<T> added = bias ? load_some(bias + c, width) : Vec<T>{};
    for (Index r = 0; r < num_rows; ++r) {
      Vec<T> sum = load(products + r * kPanel + c);
      if (bias) sum += added;
      store_some(output + r * output_stride + c, f(sum), width);
    }
  }
}

}  // namespace

template <class T>
void linear_tile(Index num_rows, Index num_columns, Index depth, const T* packed_a, const T* panel_b, const T* bias,
                 Activation activation, T* output, Index output_stride) {
  for (Index first = 0; first < num_rows; first += kTileRows) {
    const Index count = num_rows - first < kTileRows ? num_rows - first : kTileRows;
    alignas(64) T products[kTileRows * kPanel];
    for (Index column = 0; column < num_columns; column += kTileColumns<T>) {
      with_rows(count, [&](auto rows) {
        product_tile<T, decltype(rows)::value>(depth, packed_a + first * depth, panel_b + column, products + column);
      });
    }
    const auto finish = [&](auto f) {
      finish_tile(count, num_columns, products, bias, output + first * output_stride, output_stride, f);
    };
    if (activation == Activation::none) {
      finish([](Vec<T> x) { return x; });
    } else if (activation == Activation::relu) {
      finish([](Vec<T> x) { return max(Vec<T>{}, x); });
    } else {
      finish([](Vec<T> x) { return gelu<T>(x); });
    }
  }
}

template void linear_tile(Index, Index, Index, const float*, const float*, const float*, Activation, float*, Index);
template void linear_tile(Index, Index, Index, const double*, const double*, const double*, Activation, double*, Index);

}  // namespace regard::kernels::REGARD_ISA
