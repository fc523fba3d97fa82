// SPDX-License-Identifier: Apache-2.0
//
// The peak rates at which this machine computes and reads, as measured by `regard info --peaks`.
// Read next: peaks.cpp, regard/peaks.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "regard/io/json_writer.h"

namespace regard::program {

// One figure for each number of threads in Peaks::threads: the best of several rounds, or 0 if there is none.
using Rates = std::vector<double>;

struct ReadPeak {
  std::string place;  // "L2", "L3", "memory"
  std::vector<std::uint64_t> bytes_per_thread{};
  Rates gigabytes_per_second{};
};

struct Peaks {
  std::vector<int> threads;  // 1, and the number that operators use
  Rates fma_gflops;
  Rates bf16_dot_gflops;  // empty if the processor has no such instruction
  std::vector<ReadPeak> reads;
};

// Takes about two seconds and shows a progress line on a terminal.
Peaks measure_peaks();

// The number of bytes that each of num_threads threads must read repeatedly to read from memory: four times its share
// of the third-level cache, or 256 MiB in total if no such cache is known or memory is short.
std::size_t bytes_to_reach_memory(int num_threads);

std::string peaks_text(const Peaks& peaks);
// Member "peaks" of a JSON document.
void write_peaks(JsonWriter& json, const Peaks& peaks);

}  // namespace regard::program
