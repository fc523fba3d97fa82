// SPDX-License-Identifier: Apache-2.0
//
// The yardsticks of this machine, measured: how fast num_threads threads together compute from registers alone and read
// memory, with the vectors of the active instruction set (runtime.h). Each call takes about the seconds that it is
// given, uses threads of its own, and measures what the machine can do at this moment: what else runs lowers it.
// Read next: src/runtime/peaks.cpp, runtime.h.
#pragma once

#include <cstddef>
#include <optional>

#include "regard/export.h"
#include "regard/runtime.h"

namespace regard::inline v0 {

// All functions throw std::invalid_argument for num_threads outside 1 … 4096, for seconds that are not above 0 and
// finite, and when REGARD_FORCE_ISA names an instruction set that cannot be used; std::runtime_error when the threads
// cannot be started; regard::Cancelled where a stop is requested.

// Billions of f32 operations a second; a fused multiply-add is two. "generic" has no fused form and multiplies and
// adds.
REGARD_EXPORT double fma_gflops(int num_threads, double seconds, const std::stop_token& stop = {});

// Billions of operations a second of bf16 dot products that add to f32: two for each product. None where the processor
// lacks AVX512-BF16, and where the active instruction set is not avx512_bf16.
REGARD_EXPORT std::optional<double> bf16_dot_gflops(int num_threads, double seconds, const std::stop_token& stop = {});

// Billions of bytes a second that threads read, each its own bytes_per_thread over and over; the best of several loops.
// bytes_per_thread is rounded up to whole pages. Throws std::bad_alloc when so much memory cannot be had.
REGARD_EXPORT double read_gigabytes_per_second(std::size_t bytes_per_thread, int num_threads, double seconds,
                                               const std::stop_token& stop = {});

}  // namespace regard::inline v0
