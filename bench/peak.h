// SPDX-License-Identifier: Apache-2.0
//
// The yardstick of every benchmark as a library of its own, so that bench/compare.py calls it in the process in which
// it calls Regard and NumPy. Read next: regard/peaks.h.
#pragma once

extern "C" {
// fma_gflops; −1 when it cannot be measured.
double regard_bench_peak(int num_threads, double seconds);
// The name of Regard's active instruction set, "" when REGARD_FORCE_ISA names none that runs here.
const char* regard_bench_instruction_set();
}
