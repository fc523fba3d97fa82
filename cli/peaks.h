// SPDX-License-Identifier: Apache-2.0
//
// How fast this machine computes and reads: what `regard info --peaks` measures and shows.
// Read next: peaks.cpp, regard/peaks.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "regard/io/json_writer.h"

namespace regard::program {

// One figure for each number of threads in Peaks::threads; the best of several rounds, 0 where there is none.
using Rates = std::vector<double>;

struct ReadPeak {
  std::string place;  // "L2", "L3", "memory"
  std::vector<std::uint64_t> bytes_per_thread{};
  Rates gigabytes_per_second{};
};

struct Peaks {
  std::vector<int> threads;  // 1, and as many as operators use
  Rates fma_gflops;
  Rates bf16_dot_gflops;  // empty where there is no such instruction
  std::vector<ReadPeak> reads;
};

// Takes about two seconds; a line of progress is shown on a terminal.
Peaks measure_peaks();

// Bytes that each of num_threads threads reads over and over so that they come from memory: four times its share of the
// third-level cache, or 256 MiB in all where no such cache is known or memory is short.
std::size_t bytes_to_reach_memory(int num_threads);

std::string peaks_text(const Peaks& peaks);
// Member "peaks" of a JSON document.
void write_peaks(JsonWriter& json, const Peaks& peaks);

}  // namespace regard::program
