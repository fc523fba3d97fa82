// SPDX-License-Identifier: Apache-2.0
//
// A tile of linear_forward for bf16, multiplied by Intel's Advanced Matrix Extensions (AMX) or, in all other sets, by
// an emulation with the same bits.
//
//   rows    [⌈rows / 16⌉][⌈D / 32⌉][16][32]     a tile register each; rows and elements past the end are zero
//   panel   [⌈D / 2⌉][32][2]                    two tile registers for 32 elements of D
//
//   one instruction:   even ← Σ over even k of 32 (one chain of fused multiply-adds from 0), odd likewise
//                      sum ← sum + (even + odd)
//
//   registers   sums 2×2 = 32 × 32      rows 2      panel 2      four loads per four products
//
// An element is one chain of such steps over 8192 elements of D; these segments are added in order. Subnormal values
// are treated as zero in the operands and in every result.
// Read next: tile_finish.h.
#include "kernels.h"
#include "simd_convert.h"
#include "tile_finish.h"

namespace regard::kernels::REGARD_ISA {
namespace {

constexpr Index kBlockPairs = kAmxDepth / 2;         // of a row in a tile register
constexpr Index kRowTile = kAmxRows * kBlockPairs;   // floats of a tile register
constexpr Index kPanelBlock = kBlockPairs * kPanel;  // of 32 elements of D in a panel
constexpr Index kSegmentBlocks = kDepthSegment;      // steps of a chain
constexpr Index kStepRows = 2 * kAmxRows;            // rows that are multiplied together
static_assert(kPanel == 2 * kAmxRows && kAmxBlockRows % kStepRows == 0);

// Blocks of 32 elements of D of a panel. The last one is incomplete unless D is a multiple of 32; it is completed with
// zeros in a copy.
class PanelBlocks {
 public:
  PanelBlocks(const float* panel, Index depth) : panel_(panel), whole_(depth / kAmxDepth) {
    const Index rest = (depth % kAmxDepth + 1) / 2;
    if (rest == 0) return;
    std::memcpy(last_, panel + whole_ * kPanelBlock, static_cast<std::size_t>(rest * kPanel) * sizeof(float));
    std::memset(last_ + rest * kPanel, 0, static_cast<std::size_t>((kBlockPairs - rest) * kPanel) * sizeof(float));
    asm volatile("" : : "m"(last_));  // tile loads do not tell the compiler what they read
  }
  const float* operator[](Index block) const { return block < whole_ ? panel_ + block * kPanelBlock : last_; }

 private:
  const float* panel_;
  Index whole_;
  alignas(64) float last_[kPanelBlock];
};

#if defined(REGARD_ISA_amx_bf16)

// to[r][c] = the sums over blocks first … end − 1 for 16 rows, or 32 with a second row tile, and 32 columns. Not
// inlined: a compiler that saw the array of the caller would assume that nothing is written to it.
template <bool Two>
__attribute__((noinline)) void multiply_blocks(Index first, Index end, const float* rows, const float* more_rows,
                                               const PanelBlocks& panel, float* to, Index stride) {
  constexpr int kTileBytes = kBlockPairs * sizeof(float), kPanelBytes = kPanel * sizeof(float);
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (Two) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (Index block = first; block < end; ++block) {
    const float* const columns = panel[block];
    _tile_loadd(6, columns, kPanelBytes);
    _tile_loadd(4, rows + block * kRowTile, kTileBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, columns + kAmxRows, kPanelBytes);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (Two) {
      _tile_loadd(5, more_rows + block * kRowTile, kTileBytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  const Index bytes = stride * Index{sizeof(float)};
  _tile_stored(0, to, bytes);
  _tile_stored(1, to + kAmxRows, bytes);
  if constexpr (Two) {
    _tile_stored(2, to + kAmxRows * stride, bytes);
    _tile_stored(3, to + kAmxRows * stride + kAmxRows, bytes);
  }
  asm volatile("" ::: "memory");
}

struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t unused[15] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

#else

template <bool Two>
void multiply_blocks(Index first, Index end, const float* rows, const float* more_rows, const PanelBlocks& panel,
                     float* to, Index stride) {
  for (Index r = 0; r < (Two ? kStepRows : kAmxRows); ++r) {
    const float* const row = (r < kAmxRows ? rows : more_rows) + r % kAmxRows * kBlockPairs;
    for (Index c = 0; c < kPanel; c += kWidth<float>) {
      Vec<float> sum{};
      for (Index block = first; block < end; ++block) {
        Vec<float> sums[2]{};
        for (Index i = 0; i < kBlockPairs; ++i) {
          const Vec<float> factor = broadcast(row[block * kRowTile + i]);
          const Vec<float> column = load(panel[block] + i * kPanel + c);
          sums[0] = without_subnormals(fma(element_of_pairs<0>(factor), element_of_pairs<0>(column), sums[0]));
          sums[1] = without_subnormals(fma(element_of_pairs<1>(factor), element_of_pairs<1>(column), sums[1]));
        }
        sum = without_subnormals(sum + without_subnormals(sums[0] + sums[1]));
      }
      store(to + r * stride + c, sum);
    }
  }
}

#endif

// 16 rows by 32 elements, of a source whose columns are contiguous.
void pack_columns(Matrix<Bfloat16> source, Index depth, float* packed) {
  constexpr Index kSide = kWidth<float>;
  for (Index r = 0; r < kAmxRows; r += kSide) {
    for (Index i = 0; i < kBlockPairs; i += kSide) {
      Vec<float> square[kSide];
#pragma GCC unroll 16
      for (Index k = 0; k < kSide; ++k) {
        const Index d = (i + k) * 2;
        const Bfloat16* const low = source.data + r + d * source.column_stride;
        square[k] = d < depth ? load_pairs(low, d + 1 < depth ? low + source.column_stride : nullptr) : Vec<float>{};
      }
      transpose<float>(square);
#pragma GCC unroll 16
      for (Index k = 0; k < kSide; ++k) store(packed + (r + k) * kBlockPairs + i, square[k]);
    }
  }
}

// Up to 16 rows by 32 elements.
void pack_elements(Matrix<Bfloat16> source, Index num_rows, Index depth, float* packed) {
  Bfloat16 tile[kAmxRows][kAmxDepth] = {};
  for (Index r = 0; r < num_rows; ++r) {
    const Bfloat16* const from = source.data + r * source.row_stride;
    if (source.column_stride == 1) {
      std::memcpy(static_cast<void*>(tile[r]), static_cast<const void*>(from),
                  static_cast<std::size_t>(depth) * sizeof(Bfloat16));
    } else {
      for (Index d = 0; d < depth; ++d)
        std::memcpy(static_cast<void*>(&tile[r][d]), static_cast<const void*>(from + d * source.column_stride),
                    sizeof(Bfloat16));
    }
  }
  std::memcpy(packed, tile, sizeof tile);
}

}  // namespace

void enter_amx() {
#if defined(REGARD_ISA_amx_bf16)
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) {
    shapes.row_bytes[tile] = kBlockPairs * sizeof(float);
    shapes.rows[tile] = kAmxRows;
  }
  asm volatile("" : : "m"(shapes));
  _tile_loadconfig(&shapes);
#endif
}

void leave_amx() {
#if defined(REGARD_ISA_amx_bf16)
  _tile_release();
#endif
}

void pack_amx_rows(Matrix<Bfloat16> source, Index num_rows, Index depth, float* packed) {
  for (Index r = 0; r < num_rows; r += kAmxRows) {
    const Index height = smaller(num_rows - r, kAmxRows);
    for (Index d = 0; d < depth; d += kAmxDepth, packed += kRowTile) {
      const Index width = smaller(depth - d, kAmxDepth);
      const Matrix<Bfloat16> part{source.data + r * source.row_stride + d * source.column_stride, source.row_stride,
                                  source.column_stride};
      if (source.column_stride == 1 && height == kAmxRows && width == kAmxDepth) {
        for (Index i = 0; i < kAmxRows; ++i)
          std::memcpy(packed + i * kBlockPairs, static_cast<const void*>(part.data + i * part.row_stride),
                      kBlockPairs * sizeof(float));
      } else if (source.row_stride == 1 && height == kAmxRows) {
        pack_columns(part, width, packed);
      } else {
        pack_elements(part, height, width, packed);
      }
    }
  }
}

void linear_amx(Index num_rows, Index num_columns, Index depth, const float* packed_a, const float* panel_b,
                const float* bias, Activation activation, float* output, Index output_stride) {
  const PanelBlocks panel(panel_b, depth);
  const Index blocks = (depth + kAmxDepth - 1) / kAmxDepth;
  const bool is_written = !bias && activation == Activation::none && num_columns == kPanel && blocks <= kSegmentBlocks;
  for (Index first = 0; first < num_rows; first += kStepRows) {
    const Index count = smaller(num_rows - first, kStepRows);
    const bool two = count > kAmxRows;
    const auto multiply = two ? multiply_blocks<true> : multiply_blocks<false>;
    const float* const rows = packed_a + first / kAmxRows * blocks * kRowTile;
    const float* const more_rows = rows + blocks * kRowTile;
    float* const to = output + first * output_stride;
    if (is_written && count == (two ? kStepRows : kAmxRows)) {
      multiply(0, blocks, rows, more_rows, panel, to, output_stride);
      continue;
    }
    alignas(64) float products[kStepRows * kPanel], segment[kStepRows * kPanel];
    multiply(0, smaller(blocks, kSegmentBlocks), rows, more_rows, panel, products, kPanel);
    for (Index block = kSegmentBlocks; block < blocks; block += kSegmentBlocks) {
      multiply(block, smaller(blocks, block + kSegmentBlocks), rows, more_rows, panel, segment, kPanel);
      for (Index i = 0; i < count * kPanel; i += kWidth<float>)
        store(products + i, load(products + i) + load(segment + i));
    }
    finish_tile<float>(activation, count, num_columns, products, bias, to, output_stride);
  }
}

}  // namespace regard::kernels::REGARD_ISA
