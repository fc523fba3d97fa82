// SPDX-License-Identifier: Apache-2.0
//
// The yardstick of every benchmark: how many operations a second the processor can do at all, from registers alone.
// A library of its own, so that bench/compare.py calls it in the process in which it calls Regard and NumPy.
// Read next: peak_loop.cpp, interleaved.h.
#pragma once

namespace regard::bench {

// Billions of f32 operations (a fused multiply-add is two) a second of num_threads threads together, measured for
// about this long, with the vectors of Regard's active instruction set: the widest unless REGARD_FORCE_ISA says else.
double peak_gflops(int num_threads, double seconds);

}  // namespace regard::bench

extern "C" {
// The same; −1 when it cannot be measured.
double regard_bench_peak(int num_threads, double seconds);
// The name of Regard's active instruction set, "" when REGARD_FORCE_ISA names none that runs here.
const char* regard_bench_instruction_set();
}
