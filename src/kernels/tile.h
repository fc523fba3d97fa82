// SPDX-License-Identifier: Apache-2.0
//
// The register tile: kTileRows × (kTileVectors vectors) of products, each element one chain of fused multiply-adds from
// zero. Nearly all floating-point work of Regard is done in multiply().
//
//   for k in depth:  b = two vectors of the panel's row k;  for r in rows:  acc[r] += a(r, k) · b
//
//   registers      accumulators  b   a          loads per fused multiply-add
//   avx512 (32)    12×2 = 24     2   1 of 6     14 / 24
//   neon   (32)    12×2 = 24     2   1 of 6     14 / 24
//   avx2   (16)     6×2 = 12     2   1 of 2      8 / 12
//   generic (16)    4×2 =  8     2   1 + 1 product
//
// With pairs of bf16 values (dot_pairs), k counts pairs and a fused multiply-add becomes a dot product of two. a is
// read with broadcasts from a small packed block that stays in L1; b streams through a panel of 32 columns.
#pragma once

#include "simd.h"

namespace regard::kernels::REGARD_ISA {
namespace {

#if defined(REGARD_ISA_avx512) || defined(REGARD_ISA_neon)
inline constexpr Index kTileRows = 12;
#elif defined(REGARD_ISA_avx2)
inline constexpr Index kTileRows = 6;
#else
inline constexpr Index kTileRows = 4;
#endif
inline constexpr int kTileVectors = 2;
static_assert(kRows % kTileRows == 0);

// With 16 registers, the overhead instructions around the products dominate: several steps of a full tile run without a
// jump, and a row group consists of several tiles, which all read the same tile of b from L1. For WebAssembly, clang
// moves the loads of all these steps up, which takes more registers than there are: one step at a time is faster.
#if defined(REGARD_ISA_avx512) || defined(REGARD_ISA_neon)
inline constexpr Index kGroupTiles = 1;
inline constexpr Index kStepsAtOnce = 1;
#else
inline constexpr Index kGroupTiles = 5;
#if defined(REGARD_ISA_simd128)
inline constexpr Index kStepsAtOnce = 1;
#else
inline constexpr Index kStepsAtOnce = 4;
#endif
#endif
inline constexpr Index kGroupRows = kGroupTiles * kTileRows;
static_assert(kRows % kGroupRows == 0);

REGARD_INLINE constexpr Index smaller(Index a, Index b) { return a < b ? a : b; }
REGARD_INLINE constexpr Index larger(Index a, Index b) { return a > b ? a : b; }

template <class T>
inline constexpr Index kTileColumns = kTileVectors * kWidth<T>;

template <class T, int Rows>
struct Tile {
  Vec<T> row[Rows][kTileVectors];
};

// The words that a tile multiplies: values of T, or pairs of bf16 values if T is float.
struct Scalars {
  static constexpr Index kPerWord = 1;
  template <class V>
  REGARD_INLINE V multiply_add(V a, V b, V sum) {
    return fma_in_place(a, b, sum);
  }
  template <class V>
  REGARD_INLINE V join(const V* numbers) {
    return numbers[0];
  }
};
struct Bf16Pairs {
  static constexpr Index kPerWord = 2;
  REGARD_INLINE Vec<float> multiply_add(Vec<float> a, Vec<float> b, Vec<float> sum) { return dot_pairs(a, b, sum); }
  REGARD_INLINE Vec<float> join(const Vec<float>* numbers) { return round_to_pairs(numbers[0], numbers[1]); }
};

// The number of words that hold this many elements.
template <class Words>
REGARD_INLINE constexpr Index words_of(Index numbers) {
  return (numbers + Words::kPerWord - 1) / Words::kPerWord;
}

// The offset of a column in panels [⌈columns / kPanel⌉][kPanel elements][kPanel].
template <class Words>
REGARD_INLINE constexpr Index offset_of(Index column) {
  return column / kPanel * (kPanel / Words::kPerWord * kPanel) + column % kPanel;
}

// Keeps only those elements of the words whose bit i in `seen`, which is not 0, is set; the others become 0.
template <class T, class Words>
REGARD_INLINE Vec<T> only_seen(Vec<T> words, std::uint64_t seen) {
  if (Words::kPerWord == 1 || seen == 3) return words;
  return from_bits<T>(bits_of<T>(words) & (seen == 1 ? 0xffff : -0x10000));
}

// What multiply() does at each step besides the products: nothing, or reading an element of what is needed next, so
// that its cache line arrives meanwhile. Reading is for WebAssembly, which has no prefetch instruction.
struct NoReadAhead {
  __attribute__((always_inline)) void read() const {}
};
template <class T>
struct ReadAhead {
  const T* at;
  Index step;
  __attribute__((always_inline)) void read() {
    static_cast<void>(*static_cast<const volatile T*>(at));
    at += step;
  }
};

// tile[r] += Σ_k a[k * StepK + r * StepR] · b[k * kPanel …], k in order; depth ≥ 1.
template <class T, int Rows, Index StepK, Index StepR, class Words = Scalars, class Ahead = NoReadAhead>
REGARD_INLINE void multiply(Index depth, const T* a, const T* b, Tile<T, Rows>& tile, Ahead&& ahead = {}) {
  const auto step = [&](Index i) __attribute__((always_inline)) {
    Vec<T> column[kTileVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) column[v] = load(b + i * kPanel + v * kWidth<T>);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const Vec<T> factor = broadcast(a[i * StepK + r * StepR]);
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) tile.row[r][v] = Words::multiply_add(factor, column[v], tile.row[r][v]);
    }
  };
  if constexpr (Rows == kTileRows && kStepsAtOnce > 1) {
    for (; depth >= kStepsAtOnce; depth -= kStepsAtOnce) {
#pragma GCC unroll 4
      for (int i = 0; i < kStepsAtOnce; ++i) {
        step(i);
        // Keeps the compiler from moving loads of the next step up, which would take a register from the sums.
        asm volatile("" ::: "memory");
      }
      a += kStepsAtOnce * StepK;
      b += kStepsAtOnce * kPanel;
    }
    if (depth == 0) return;
  }
  const T* const end = b + depth * kPanel;
#pragma GCC unroll 1
  do {
    ahead.read();
    step(0);
    a += StepK;
    b += kPanel;
  } while (b != end);
}

template <class T, int Rows>
REGARD_INLINE void clear(Tile<T, Rows>& tile) {
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) tile.row[r][v] = Vec<T>{};
  }
}

template <int N>
struct Rows {
  static constexpr int value = N;
};

// Calls f with the smallest tile that holds num_rows rows, so that few rows cost little.
template <class F>
REGARD_INLINE void with_rows(Index num_rows, F f) {
  if (num_rows == 1) {
    f(Rows<1>{});
  } else if (num_rows == 2) {
    f(Rows<2>{});
  } else if (num_rows <= 4) {
    f(Rows<4>{});
  } else if constexpr (kTileRows > 4) {
    if (num_rows <= 6) {
      f(Rows<6>{});
    } else if constexpr (kTileRows > 6) {
      if (num_rows <= 8) {
        f(Rows<8>{});
      } else {
        f(Rows<12>{});
      }
    }
  }
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
