// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures the peak rates of this machine, the reference for benchmark results: arithmetic on registers and reads from
/// memory, on a given number of threads, with the vector instructions of the active instruction set (runtime.h).
///
/// Each call starts its own threads and takes about the requested number of seconds. It measures the performance of the
/// machine at that moment: any other load lowers the result.
///
/// Read next: src/runtime/peaks.cpp, runtime.h.
#pragma once

#include <cstddef>
#include <optional>

#include "regard/export.h"
#include "regard/runtime.h"

namespace regard::inline v0 {

/// Measures the rate of f32 arithmetic on registers.
///
/// The "generic" instruction set has no fused multiply-add; a separate multiplication and addition are measured
/// instead.
///
/// @param num_threads  The number of threads, 1 to 4096.
/// @param seconds      Duration of the measurement in seconds, finite and above 0.
/// @param stop         Stop token, which ends the measurement.
/// @return Total rate of all threads, in billions of operations per second. A fused multiply-add counts as two
///         operations.
/// @throws InvalidArgument     if `num_threads` or `seconds` is out of range, or if `REGARD_FORCE_ISA` names an
///                             instruction set that cannot be used.
/// @throws std::runtime_error  if the threads cannot be started.
/// @throws Cancelled           if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const double peak = fma_gflops(default_num_threads(), 0.5);
/// @endcode
REGARD_EXPORT double fma_gflops(int num_threads, double seconds, const std::stop_token& stop = {});

/// Measures the rate of bf16 dot products that are accumulated in f32, on registers.
///
/// @param num_threads  The number of threads, 1 to 4096.
/// @param seconds      Duration of the measurement in seconds, finite and above 0.
/// @param stop         Stop token, which ends the measurement.
/// @return Total rate of all threads, in billions of operations per second. Each product counts as two operations.
///         Empty if the processor lacks AVX512-BF16 or if the active instruction set is not avx512_bf16.
/// @throws InvalidArgument     if `num_threads` or `seconds` is out of range, or if `REGARD_FORCE_ISA` names an
///                             instruction set that cannot be used.
/// @throws std::runtime_error  if the threads cannot be started.
/// @throws Cancelled           if a stop is requested.
REGARD_EXPORT std::optional<double> bf16_dot_gflops(int num_threads, double seconds, const std::stop_token& stop = {});

/// Measures the rate at which threads read memory: each reads its own buffer repeatedly.
///
/// @param bytes_per_thread  The size of each thread's buffer in bytes, at least 1, rounded up to whole pages.
/// @param num_threads       The number of threads, 1 to 4096.
/// @param seconds           Duration of the measurement in seconds, finite and above 0.
/// @param stop              Stop token, which ends the measurement.
/// @return Total rate of all threads, in billions of bytes per second, for the fastest of several loops.
/// @throws InvalidArgument     if an argument is out of range, or if `REGARD_FORCE_ISA` names an instruction set that
///                             cannot be used.
/// @throws std::bad_alloc      if the buffers cannot be allocated.
/// @throws std::runtime_error  if the threads cannot be started.
/// @throws Cancelled           if a stop is requested.
REGARD_EXPORT double read_gigabytes_per_second(std::size_t bytes_per_thread, int num_threads, double seconds,
                                               const std::stop_token& stop = {});

}  // namespace regard::inline v0
