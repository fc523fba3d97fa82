// SPDX-License-Identifier: Apache-2.0
//
// regard/peaks.h for bench/compare.py. Read next: peak.h.
#include "peak.h"

#include <exception>
#include <string>

#include "regard/peaks.h"
#include "regard/runtime.h"

double regard_bench_peak(int num_threads, double seconds) try {
  return regard::fma_gflops(num_threads, seconds);
} catch (const std::exception&) {
  return -1.0;
}

const char* regard_bench_instruction_set() try {
  static const std::string name = regard::active_instruction_set();
  return name.c_str();
} catch (const std::exception&) {
  return "";
}
