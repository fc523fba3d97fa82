// SPDX-License-Identifier: Apache-2.0
//
// Runs peak_loop on a number of threads at once and counts what they did until the last one finished: a thread that
// has to wait for its processor lowers the peak as it would lower anybody's figure.
//
//   each thread:  wait for the others ─ peak_loop in slices until the time is over ─ note slices and end
//
// Read next: peak_loop.cpp.
#include "peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "regard/runtime.h"

namespace regard::bench {

using PeakLoop = float (*)(std::int64_t turns, float factor, float addend);

namespace generic {
float peak_loop(std::int64_t turns, float factor, float addend);
extern const double peak_loop_operations;
}  // namespace generic
namespace avx2 {
float peak_loop(std::int64_t turns, float factor, float addend);
extern const double peak_loop_operations;
}  // namespace avx2
namespace avx512 {
float peak_loop(std::int64_t turns, float factor, float addend);
extern const double peak_loop_operations;
}  // namespace avx512

namespace {

// 12 fused multiply-adds a turn, one or two a cycle: 20 to 80 microseconds, long beside the clock's 30 nanoseconds.
constexpr std::int64_t kTurnsPerSlice = 1 << 14;

// Keeps the loop's result alive.
std::atomic<float> result_sink{0.0f};

}  // namespace

double peak_gflops(int num_threads, double seconds) {
  using Clock = std::chrono::steady_clock;
  const std::string isa = active_instruction_set();
  PeakLoop loop = generic::peak_loop;
  double operations = generic::peak_loop_operations;
  if (isa == "avx2") {
    loop = avx2::peak_loop;
    operations = avx2::peak_loop_operations;
  } else if (isa == "avx512") {
    loop = avx512::peak_loop;
    operations = avx512::peak_loop_operations;
  }

  struct Share {
    std::int64_t slices = 0;
    Clock::time_point begin, end;
  };
  std::vector<Share> shares(static_cast<std::size_t>(num_threads));
  std::latch start(num_threads);
  const auto work = [&](Share& share) {
    start.arrive_and_wait();
    share.begin = Clock::now();
    const auto deadline =
        share.begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    do {
      result_sink.store(loop(kTurnsPerSlice, -1.0f, 1.0f), std::memory_order_relaxed);
      ++share.slices;
      share.end = Clock::now();
    } while (share.end < deadline);
  };
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < shares.size(); ++i) others.emplace_back(work, std::ref(shares[i]));
  work(shares[0]);
  others.clear();

  std::int64_t slices = 0;
  Clock::time_point begin = shares[0].begin, end = shares[0].end;
  for (const Share& share : shares) {
    slices += share.slices;
    begin = std::min(begin, share.begin);
    end = std::max(end, share.end);
  }
  const double elapsed = std::chrono::duration<double>(end - begin).count();
  return static_cast<double>(slices) * static_cast<double>(kTurnsPerSlice) * operations / elapsed / 1e9;
}

}  // namespace regard::bench

double regard_bench_peak(int num_threads, double seconds) try {
  return regard::bench::peak_gflops(num_threads, seconds);
} catch (const std::exception&) {
  return -1.0;
}

const char* regard_bench_instruction_set() try {
  static const std::string name = regard::active_instruction_set();
  return name.c_str();
} catch (const std::exception&) {
  return "";
}
