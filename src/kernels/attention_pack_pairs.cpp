// SPDX-License-Identifier: Apache-2.0
//
// Packing for the bf16 dot product: the layouts of attention_pack.cpp, with a pair of bf16 values in place of each
// float.
//
//   query  [group][⌈D/2⌉][row_group][2]     dimensions 2i and 2i + 1 are adjacent
//   key    [panel][⌈D/2⌉][32][2]
//   value  [panel][⌈Dv/32⌉][16][32][2]      keys 2i and 2i + 1 are adjacent
//
// Rows, keys and columns past the end are zero, and so is the missing second value of an odd pair. A pair is moved as
// the bits of a float and never used in float arithmetic.
// Read next: attention_tile.cpp.
#include "kernels.h"
#include "simd_convert.h"
#include "tile.h"

namespace regard::kernels::REGARD_ISA {
namespace {

REGARD_INLINE std::uint32_t read_bits(const Bfloat16* from) {
  std::uint16_t bits;
  std::memcpy(&bits, static_cast<const void*>(from), sizeof bits);
  return bits;
}

// One group of rows, pair by pair from `first` on.
template <Index Width>
void pack_elements(Matrix<Bfloat16> source, Index width, Index first, Index depth, float* packed) {
  for (Index r = 0; r < Width; ++r) {
    const Bfloat16* row = source.data + r * source.row_stride;
    for (Index d = first * 2; d < depth; d += 2) {
      std::uint32_t pair = r < width ? read_bits(row + d * source.column_stride) : 0;
      if (r < width && d + 1 < depth) pair |= read_bits(row + (d + 1) * source.column_stride) << 16;
      std::memcpy(packed + d / 2 * Width + r, &pair, sizeof pair);
    }
  }
}

// One group of rows with contiguous elements, in squares of pairs in registers. Returns the number of pairs that are
// done, a multiple of kWidth.
template <Index Width>
Index pack_squares(Matrix<Bfloat16> source, Index width, Index depth, float* packed) {
  constexpr Index kSide = kWidth<float>;
  constexpr Index kLastPart = (Width - 1) / kSide * kSide;
  const Index done = depth / 2 / kSide * kSide;
  for (Index pair = 0; pair < done; pair += kSide) {
    // From the last part to the first, as in attention_pack.cpp.
    for (Index part = kLastPart; part >= 0; part -= kSide) {
      Vec<float> square[kSide];
#pragma GCC unroll 16
      for (Index i = 0; i < kSide; ++i) {
        square[i] = Vec<float>{};
        if (part + i < Width && part + i < width) {
          const Bfloat16* from = source.data + (part + i) * source.row_stride + pair * 2;
          std::memcpy(&square[i], static_cast<const void*>(from), sizeof square[i]);
        }
      }
      transpose<float>(square);
#pragma GCC unroll 16
      for (Index i = 0; i < kSide; ++i) {
        float* to = packed + (pair + i) * Width + part;
        if (part + kSide <= Width || pair + i + 1 < depth / 2) {
          store(to, square[i]);
        } else {
          store_some(to, square[i], Width - part);
        }
      }
    }
  }
  return done;
}

// Count ≤ kWidth contiguous values of two lines as pairs, and zeros. nullptr for high means zeros.
template <Index Count>
REGARD_INLINE Vec<float> load_some_pairs(const Bfloat16* low, const Bfloat16* high) {
  Bfloat16 lines[2][kWidth<float>] = {};
  std::memcpy(static_cast<void*>(lines[0]), static_cast<const void*>(low), Count * sizeof(Bfloat16));
  if (high) std::memcpy(static_cast<void*>(lines[1]), static_cast<const void*>(high), Count * sizeof(Bfloat16));
  return load_pairs(lines[0], lines[1]);
}

// One whole group, of a source whose columns are contiguous.
template <Index Width>
void pack_lines(Matrix<Bfloat16> source, Index depth, float* packed) {
  constexpr Index kRest = Width % kWidth<float>;
  for (Index d = 0; d < depth; d += 2, packed += Width) {
    const Bfloat16* const low = source.data + d * source.column_stride;
    const Bfloat16* const high = d + 1 < depth ? low + source.column_stride : nullptr;
    for (Index part = 0; part + kWidth<float> <= Width; part += kWidth<float>)
      store(packed + part, load_pairs(low + part, high ? high + part : nullptr));
    if constexpr (kRest > 0) {
      constexpr Index kPart = Width - kRest;
      const Vec<float> pairs = load_some_pairs<kRest>(low + kPart, high ? high + kPart : nullptr);
      // The excess of a whole vector is overwritten by the next pair.
      if (d + 2 < depth) {
        store(packed + kPart, pairs);
      } else {
        store_some(packed + kPart, pairs, kRest);
      }
    }
  }
}

// (count, depth) → [⌈count/Width⌉][⌈depth/2⌉][Width] pairs.
template <Index Width>
void pack_groups(Matrix<Bfloat16> source, Index count, Index depth, float* packed) {
  for (Index first = 0; first < count; first += Width) {
    const Index width = smaller(count - first, Width);
    const Matrix<Bfloat16> group{source.data + first * source.row_stride, source.row_stride, source.column_stride};
    if (source.row_stride == 1 && width == Width) {
      pack_lines<Width>(group, depth, packed);
    } else {
      const Index done = source.column_stride == 1 ? pack_squares<Width>(group, width, depth, packed) : 0;
      pack_elements<Width>(group, width, done, depth, packed);
    }
    packed += (depth + 1) / 2 * Width;
  }
}

// Joins two lines of kPanel values into pairs. Returns −1 in every lane with a non-finite value.
REGARD_INLINE IntVec<float> pair_line(const Bfloat16* low, const Bfloat16* high, float* to) {
  IntVec<float> found{};
#pragma GCC unroll 8
  for (Index c = 0; c < kPanel; c += kWidth<float>) {
    const Vec<float> pairs = load_pairs(low + c, high ? high + c : nullptr);
    store(to + c, pairs);
    const IntVec<float> bits = bits_of<float>(pairs);
    found |= ((bits & 0x7f80) == 0x7f80) | ((bits & 0x7f800000) == 0x7f800000);
  }
  return found;
}

}  // namespace

void pack_query_pairs(Matrix<Bfloat16> source, Index num_rows, Index depth, float* packed) {
  pack_groups<kTileRows>(source, num_rows, depth, packed);
}

void pack_key_pairs(Matrix<Bfloat16> source, Index num_keys, Index depth, float* panels) {
  pack_groups<kPanel>(source, num_keys, depth, panels);
}

void pack_value_pairs(Matrix<Bfloat16> source, Index num_keys, Index columns, float* panels, std::uint8_t* finite) {
  for (Index first = 0; first < num_keys; first += kPanel) {
    const Index keys = smaller(num_keys - first, kPanel);
    IntVec<float> found{};
    for (Index c0 = 0; c0 < columns; c0 += kPanel) {
      const Index width = smaller(columns - c0, kPanel);
      const Bfloat16* corner = source.data + first * source.row_stride + c0 * source.column_stride;
      for (Index k = 0; k < kPanel; k += 2) {
        const Bfloat16* rows[2] = {corner + k * source.row_stride, corner + (k + 1) * source.row_stride};
        Bfloat16 copies[2][kPanel] = {};
        for (Index i = 0; i < 2; ++i) {
          if (k + i < keys && width == kPanel && source.column_stride == 1) continue;
          for (Index c = 0; k + i < keys && c < width; ++c) {
            copies[i][c].bits = static_cast<std::uint16_t>(read_bits(rows[i] + c * source.column_stride));
          }
          rows[i] = copies[i];
        }
        found |= pair_line(rows[0], rows[1], panels + k / 2 * kPanel);
      }
      panels += kPanel / 2 * kPanel;
    }
    *finite++ = !any<float>(found);
  }
}

void pair_lines(const Bfloat16* lines, Index num_lines, float* pairs) {
  for (Index i = 0; i < num_lines; i += 2) {
    const Bfloat16* line = lines + i * kPanel;
    pair_line(line, i + 1 < num_lines ? line + kPanel : nullptr, pairs + i / 2 * kPanel);
  }
}

void widen_pairs(const float* pairs, Index num_lines, float* lines) {
  for (Index i = 0; i < num_lines; i += 2) {
#pragma GCC unroll 8
    for (Index c = 0; c < kPanel; c += kWidth<float>) {
      const IntVec<float> bits = bits_of<float>(load(pairs + i / 2 * kPanel + c));
      store(lines + i * kPanel + c, from_bits<float>(bits << 16));
      if (i + 1 < num_lines) store(lines + (i + 1) * kPanel + c, from_bits<float>(bits & -0x10000));
    }
  }
}

}  // namespace regard::kernels::REGARD_ISA
