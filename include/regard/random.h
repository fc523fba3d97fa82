// SPDX-License-Identifier: Apache-2.0
/// @file
/// Counter-based random numbers: pure functions of (seed, stream, index), with no generator and no state to store.
///
/// The numbers do not depend on the order of calls or on the number of threads. Any element of a sequence can be
/// computed without the elements before it, so that shards, micro-batches and resumed runs reproduce the numbers of the
/// full run. All functions give bit-identical results on every machine and instruction set.
///
/// @verbatim
/// seed ─────────────────────────────┐ key
/// (index, stream) ── 128 bits ─▶ philox ─▶ 128 bits ── first 64 ─▶ uniform, integer or normal
/// @endverbatim
///
/// random_uniform(), random_below() and random_normal() use the same 64 bits for the same arguments: use a separate
/// stream for each purpose. Attention dropout uses the same generator with the counters (⌊j / 4⌋, i, h, b), so give it
/// a separate seed.
///
/// Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
///
/// Read next: src/runtime/random.cpp.
#pragma once

#include <array>
#include <cstdint>

#include "regard/export.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// Computes four random words with Philox4x32-10.
///
/// For each key, this is a bijection on the counters, so different counters give different words.
///
/// @param counter  The counter, least significant word first.
/// @param key      The key, for example a seed. Its low 32 bits are the first word of the key in the paper.
/// @return The four words, uniformly distributed.
///
/// @par Reproducibility
/// The words are identical to those of philox4x32-10 in the Random123 library. Attention dropout uses the same
/// generator.
///
/// @par Example
/// @code{.cpp}
/// const std::uint32_t word = philox({0, 0, 0, 0}, 0)[0];  // 0x6627e8d5
/// @endcode
REGARD_EXPORT std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t key);

/// Draws a uniformly distributed number: a multiple of 2⁻⁵³ in [0, 1).
///
/// @code{.unparsed}
/// ⌊bits / 2¹¹⌋ · 2⁻⁵³,  bits = words[0] + 2³² · words[1],  words = philox(index + 2⁶⁴ · stream, seed)
/// @endcode
///
/// @param seed    Seed of the experiment.
/// @param stream  Stream number; for example, one per tensor.
/// @param index   Index in the stream.
/// @return The number.
///
/// @par Example
/// @code{.cpp}
/// const double dice = 6 * random_uniform(seed, stream, 0);
/// @endcode
REGARD_EXPORT double random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

/// Draws an integer from 0 to n − 1.
///
/// @code{.unparsed}
/// ⌊bits · n / 2⁶⁴⌋, with bits as in random_uniform()
/// @endcode
///
/// Each integer has a probability within 2⁻⁶⁴ of 1/n. The relative error n · 2⁻⁶⁴ cannot be observed for practical n:
/// it is below 10⁻¹⁴ for n ≤ 100,000. No draw is rejected and repeated, so each result consumes exactly one index.
///
/// @param seed    Seed of the experiment.
/// @param stream  Stream number.
/// @param index   Index in the stream.
/// @param n       Number of possible results, at least 1.
/// @return The integer.
/// @throws InvalidArgument  if n < 1.
///
/// @par Example
/// @code{.cpp}
/// const Index die = 1 + random_below(seed, stream, 0, 6);
/// @endcode
REGARD_EXPORT Index random_below(std::uint64_t seed, std::uint64_t stream, std::uint64_t index, Index n);

/// Draws from the standard normal distribution.
///
/// @code{.unparsed}
/// Φ⁻¹(p),  p = (⌊bits / 2¹²⌋ + ½) · 2⁻⁵², with bits as in random_uniform()
/// @endcode
///
/// The magnitude is at most 8.21, which is −Φ⁻¹(2⁻⁵³). The distribution is exactly symmetric.
///
/// @param seed    Seed of the experiment.
/// @param stream  Stream number.
/// @param index   Index in the stream.
/// @return The number.
///
/// @par Error
/// The relative error with respect to Φ⁻¹(p) is at most 1e-15.
///
/// Source: algorithm AS 241 (PPND16): Wichura, "The percentage points of the normal distribution", 1988.
///
/// @par Example
/// @code{.cpp}
/// for (Index i = 0; i < count; ++i) weight[i] = 0.02f * static_cast<float>(random_normal(seed, stream, i));
/// @endcode
REGARD_EXPORT double random_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

}  // namespace regard::inline v0
