// SPDX-License-Identifier: Apache-2.0
//
// The border between the library (one function per operator: batch, heads, threads, checks) and the kernels (one
// head, one tile, no allocation, no exceptions). Each instruction set fills one constant KernelTable; src/isa.cpp
// picks one. Layouts that both sides know are fixed here, and are the same on every instruction set.
//
//   packed keys    [panel of 32 keys][d][32]            scores run one lane per key
//   packed values  [panel of 32 keys][Dv/32][32 keys][32]  context runs one lane per value column
//   rows           one task owns up to kRows query rows of one head, and walks the keys block by block
//
// Read next: attention_tile.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace regard::kernels {

using Index = std::int64_t;

inline constexpr Index kPanelKeys = 32;   // one packed panel; also the columns of a value panel
inline constexpr Index kBlockKeys = 64;   // one step of the running maximum; one chain of products with value
inline constexpr Index kChunkKeys = 1024; // partial results are folded at this grid (kAttentionChunkKeys)
inline constexpr Index kRows = 60;        // query rows of a task: five register tiles of 12 rows
inline constexpr Index kDepthSegment = 256;  // longest chain of products in a dot product
inline constexpr Index kLanes = 16;       // virtual lanes of a row sum, on every instruction set

}  // namespace regard::kernels
