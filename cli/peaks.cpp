// SPDX-License-Identifier: Apache-2.0
//
// Measures the peaks in rounds, each figure once per round, and keeps the best, so that a short load on the machine
// lowers only one round.
//
//     bytes that are read repeatedly:   L2      half of it, by each thread
//                                       L3      half of it, by all threads that share it; at least twice L2 each
//                                       memory  four times every L3 in use
//
// Read next: regard/peaks.h.
#include "peaks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "caches.h"
#include "program.h"
#include "progress.h"
#include "regard/io/utf8.h"
#include "regard/peaks.h"
#include "regard/runtime.h"

namespace regard::program {
namespace {

constexpr int kPeakRounds = 3;
constexpr double kSeconds = 0.06;                                 // per figure and round
constexpr std::uint64_t kMemoryBytes = std::uint64_t{256} << 20;  // if no third-level cache is known

// The number of processors in a list: 5 for "0-3,8".
int num_processors(std::string_view list) {
  int count = 0;
  for (std::string_view range : split(list, ',')) {
    int first = 0;
    const auto [end, error] = std::from_chars(range.data(), range.data() + range.size(), first);
    int last = first;
    if (error == std::errc() && end != range.data() + range.size())
      std::from_chars(end + 1, range.data() + range.size(), last);
    count += std::max(1, last - first + 1);
  }
  return std::max(1, count);
}

// The number of bytes that each of num_threads threads reads to measure a place; 0 if it cannot be separated from
// another.
std::uint64_t bytes_to_read(const std::string& place, int num_threads, const std::vector<Cache>& levels) {
  const auto find = [&](int level) {
    return std::find_if(levels.begin(), levels.end(),
                        [level](const Cache& cache) { return cache.level == level && cache.type != "Instruction"; });
  };
  const auto second = find(2), third = find(3);
  if (place == "L2") return second == levels.end() ? 0 : second->bytes / 2;
  if (third == levels.end()) {
    return place == "memory" ? kMemoryBytes / static_cast<std::uint64_t>(num_threads) : 0;
  }
  // One thread per core, as in operators.
  const auto first = find(1);
  const int of_a_core = first == levels.end() ? 1 : num_processors(first->shared_by);
  const int sharing = std::clamp(num_processors(third->shared_by) / of_a_core, 1, num_threads);
  const std::uint64_t share = third->bytes / static_cast<std::uint64_t>(sharing);
  if (place == "memory") {
    const std::uint64_t all = 4 * share * static_cast<std::uint64_t>(num_threads);
    return all > available_memory_bytes() / 2 ? 0 : 4 * share;
  }
  return second != levels.end() && share / 2 < 2 * second->bytes ? 0 : share / 2;
}

void keep_best(Rates& rates, std::size_t index, double rate) { rates[index] = std::max(rates[index], rate); }

std::string rate_cells(const Rates& rates) {
  std::string cells;
  for (double rate : rates) cells += rate > 0 ? fmt::format("{:>12.1f}", rate) : fmt::format("{:>12}", "-");
  return cells;
}

void write_rates(JsonWriter& json, std::string_view name, const Rates& rates) {
  json.name(name);
  json.begin_array(JsonLayout::one_line);
  for (double rate : rates) {
    if (rate > 0) {
      json.number(rate);
    } else {
      json.null();
    }
  }
  json.end_array();
}

}  // namespace

Peaks measure_peaks() {
  const int all = default_num_threads();
  Peaks peaks;
  peaks.threads = all > 1 ? std::vector<int>{1, all} : std::vector<int>{1};
  const std::size_t columns = peaks.threads.size();
  peaks.fma_gflops.assign(columns, 0.0);
  if (bf16_dot_gflops(1, kSeconds / 10)) peaks.bf16_dot_gflops.assign(columns, 0.0);
  const std::vector<Cache> levels = caches();
  for (const char* place : {"L2", "L3", "memory"}) {
    ReadPeak read{place};
    for (int threads : peaks.threads) read.bytes_per_thread.push_back(bytes_to_read(place, threads, levels));
    read.gigabytes_per_second.assign(columns, 0.0);
    peaks.reads.push_back(read);
  }

  Progress progress("peaks");
  const auto total = static_cast<Index>(kPeakRounds * columns);
  for (Index done = 0; done < total; ++done) {
    progress.update(done, total);
    const std::size_t column = static_cast<std::size_t>(done) % columns;
    const int threads = peaks.threads[column];
    keep_best(peaks.fma_gflops, column, fma_gflops(threads, kSeconds));
    if (!peaks.bf16_dot_gflops.empty())
      keep_best(peaks.bf16_dot_gflops, column, bf16_dot_gflops(threads, kSeconds).value_or(0.0));
    for (ReadPeak& read : peaks.reads) {
      const auto bytes = static_cast<std::size_t>(read.bytes_per_thread[column]);
      if (bytes > 0) keep_best(read.gigabytes_per_second, column, read_gigabytes_per_second(bytes, threads, kSeconds));
    }
  }
  return peaks;
}

std::size_t bytes_to_reach_memory(int num_threads) {
  const std::uint64_t bytes = bytes_to_read("memory", num_threads, caches());
  return static_cast<std::size_t>(bytes > 0 ? bytes : kMemoryBytes / static_cast<std::uint64_t>(num_threads));
}

std::string peaks_text(const Peaks& peaks) {
  std::string text = fmt::format("{:<18}", "peaks");
  for (int threads : peaks.threads)
    text += fmt::format("{:>12}", threads == 1 ? "1 thread" : fmt::format("{} threads", threads));
  const auto add = [&text](const std::string& label, const Rates& rates, const std::string& unit) {
    text += fmt::format("\n  {:<16}{}   {}", label, rate_cells(rates), unit);
  };
  add("multiply-add", peaks.fma_gflops, "GFLOP/s, float, from registers");
  if (!peaks.bf16_dot_gflops.empty()) add("bfloat16 dot", peaks.bf16_dot_gflops, "GFLOP/s, from registers");
  for (const ReadPeak& read : peaks.reads) {
    const std::uint64_t bytes = *std::max_element(read.bytes_per_thread.begin(), read.bytes_per_thread.end());
    add("read " + read.place, read.gigabytes_per_second,
        bytes == 0 ? "GB/s" : fmt::format("GB/s, up to {} per thread", bytes_text(bytes)));
  }
  return text + fmt::format("\n  Best of {} rounds. Other load on this machine lowers these figures.\n", kPeakRounds);
}

void write_peaks(JsonWriter& json, const Peaks& peaks) {
  json.name("peaks");
  json.begin_object();
  json.list("threads", peaks.threads);
  write_rates(json, "fma_gflops", peaks.fma_gflops);
  if (peaks.bf16_dot_gflops.empty()) {
    json.null("bf16_dot_gflops");
  } else {
    write_rates(json, "bf16_dot_gflops", peaks.bf16_dot_gflops);
  }
  const auto write_read = [&json](const ReadPeak& read) {
    json.string("place", read.place);
    json.list("bytes_per_thread", read.bytes_per_thread);
    write_rates(json, "gigabytes_per_second", read.gigabytes_per_second);
  };
  json.objects("read", peaks.reads, write_read, JsonLayout::hanging, JsonLayout::one_line);
  json.end_object();
}

}  // namespace regard::program
