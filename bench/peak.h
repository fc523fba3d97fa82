// SPDX-License-Identifier: Apache-2.0
//
// The references of the benchmarks as plain functions, so that bench/compare.py can measure them in the same process as
// Regard and its competitors. Read next: regard/peaks.h, operators.h.
#pragma once

#include <cstdint>

extern "C" {
// fma_gflops, bf16_dot_gflops and read_gigabytes_per_second; −1 if they cannot be measured.
double regard_bench_peak(int num_threads, double seconds);
double regard_bench_bf16_peak(int num_threads, double seconds);
double regard_bench_read(std::int64_t bytes_per_thread, int num_threads, double seconds);
// The name of Regard's active instruction set; "" if REGARD_FORCE_ISA names one that is not available.
const char* regard_bench_instruction_set();
}
