// SPDX-License-Identifier: Apache-2.0
//
// peak.h, implemented with regard/peaks.h. Read next: peak.h.
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

double regard_bench_bf16_peak(int num_threads, double seconds) try {
  return regard::bf16_dot_gflops(num_threads, seconds).value_or(-1.0);
} catch (const std::exception&) {
  return -1.0;
}

double regard_bench_read(std::int64_t bytes_per_thread, int num_threads, double seconds) try {
  return regard::read_gigabytes_per_second(static_cast<std::size_t>(bytes_per_thread), num_threads, seconds);
} catch (const std::exception&) {
  return -1.0;
}

const char* regard_bench_instruction_set() try {
  static const std::string name = regard::active_instruction_set();
  return name.c_str();
} catch (const std::exception&) {
  return "";
}
