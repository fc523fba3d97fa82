// SPDX-License-Identifier: Apache-2.0
//
// Runs a loop on several threads at once, and counts their work until the last one finishes: a thread that has to wait
// for its processor lowers the peak, as it would lower any other measurement.
//
//   each thread:  wait for the others ─ loop in slices until the time is over ─ record slices and end time
//
// The threads are not those of the pool, which may run tasks one after another.
// Read next: kernels/peak.cpp.
#include "regard/peaks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "isa.h"
#include "machine.h"
#include "parallel.h"
#include "regard/error.h"

namespace regard::inline v0 {
namespace {

using Clock = std::chrono::steady_clock;

// An iteration has a dozen operations or more, so a slice takes 20 to 80 microseconds, which is long compared with the
// clock's 30 nanoseconds.
constexpr kernels::Index kIterationsPerSlice = 1 << 14;

// Keeps compilers from removing the loops.
std::atomic<float> sum_sink{0.0f};
std::atomic<std::int32_t> bits_sink{0};

void check_arguments(const char* function, int num_threads, double seconds) {
  if (num_threads < 1 || num_threads > internal::kMaxThreads) {
    throw InvalidArgument(std::string(function) + ": num_threads is " + std::to_string(num_threads) +
                          "; expected 1 to " + std::to_string(internal::kMaxThreads));
  }
  if (!(seconds > 0) || !std::isfinite(seconds)) {
    throw InvalidArgument(std::string(function) + ": seconds is " + std::to_string(seconds) +
                          "; expected a finite number above 0");
  }
}

// Slices per second of all threads together. prepare(thread) runs on its thread before the time begins, and returns the
// slice to repeat.
double slices_per_second(int num_threads, double seconds, const std::stop_token& stop,
                         const std::function<std::function<void()>(int)>& prepare) {
  struct Share {
    double slices = 0;
    Clock::time_point begin, end;
    std::exception_ptr error;
  };
  enum : int { kWait, kGo, kStop };
  std::vector<Share> shares(static_cast<std::size_t>(num_threads));
  std::atomic<int> signal{kWait}, num_ready{0};
  const auto work = [&](std::size_t thread, bool last) {
    Share& share = shares[thread];
    std::function<void()> slice;
    try {
      slice = prepare(static_cast<int>(thread));
    } catch (...) {
      share.error = std::current_exception();
    }
    num_ready.fetch_add(1);
    num_ready.notify_all();
    if (last) {
      for (int ready; (ready = num_ready.load()) < num_threads;) num_ready.wait(ready);
      const bool whole = std::all_of(shares.begin(), shares.end(), [](const Share& s) { return !s.error; });
      signal.store(whole ? kGo : kStop);
      signal.notify_all();
    }
    signal.wait(kWait);
    if (signal.load() != kGo) return;
    share.begin = Clock::now();
    const auto deadline =
        share.begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    do {
      slice();
      ++share.slices;
      share.end = Clock::now();
    } while (share.end < deadline && !stop.stop_requested());
  };
  {
    std::vector<std::jthread> others;
    try {
      for (std::size_t thread = 1; thread < shares.size(); ++thread) others.emplace_back(work, thread, false);
    } catch (const std::system_error& error) {
      signal.store(kStop);
      signal.notify_all();
      throw std::runtime_error("only " + std::to_string(others.size() + 1) + " of " + std::to_string(num_threads) +
                               " threads could be started: " + error.what());
    }
    work(0, true);
  }

  double slices = 0;
  Clock::time_point begin = shares[0].begin, end = shares[0].end;
  for (const Share& share : shares) {
    if (share.error) std::rethrow_exception(share.error);
    slices += share.slices;
    begin = std::min(begin, share.begin);
    end = std::max(end, share.end);
  }
  throw_if_stopped(stop);
  return slices / std::chrono::duration<double>(end - begin).count();
}

double gflops(const kernels::PeakLoop& loop, int num_threads, double seconds, const std::stop_token& stop) {
  const double slices = slices_per_second(num_threads, seconds, stop, [&](int) {
    return [&] { sum_sink.store(loop.run(kIterationsPerSlice, -1.0f, 1.0f), std::memory_order_relaxed); };
  });
  return slices * static_cast<double>(kIterationsPerSlice) * static_cast<double>(loop.operations) / 1e9;
}

}  // namespace

double fma_gflops(int num_threads, double seconds, const std::stop_token& stop) {
  check_arguments("fma_gflops", num_threads, seconds);
  return gflops(kernels::active().peak.multiply_add, num_threads, seconds, stop);
}

std::optional<double> bf16_dot_gflops(int num_threads, double seconds, const std::stop_token& stop) {
  check_arguments("bf16_dot_gflops", num_threads, seconds);
  const kernels::PeakLoop* loop = kernels::bf16_dot_loop();
  if (loop == nullptr) return std::nullopt;
  return gflops(*loop, num_threads, seconds, stop);
}

double read_gigabytes_per_second(std::size_t bytes_per_thread, int num_threads, double seconds,
                                 const std::stop_token& stop) {
  constexpr std::size_t kStepBytes = kernels::kReadStep * sizeof(float);
  // 64 KiB take a microsecond from the second-level cache; for smaller slices, reading the clock would distort the
  // result.
  constexpr std::size_t kSliceBytes = std::size_t{1} << 20;
  check_arguments("read_gigabytes_per_second", num_threads, seconds);
  if (bytes_per_thread > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_array_new_length();
  const std::size_t steps = bytes_per_thread / kStepBytes + (bytes_per_thread % kStepBytes != 0 ? 1 : 0);
  if (steps == 0) throw InvalidArgument("read_gigabytes_per_second: bytes_per_thread is 0; expected 1 or more");
  const std::size_t count = steps * static_cast<std::size_t>(kernels::kReadStep);
  const std::size_t bytes = count * sizeof(float);
  const std::size_t rounds = std::max<std::size_t>(1, kSliceBytes / bytes);
  // In pieces of a few milliseconds; a stop request is checked between them.
  const auto for_each_piece = [&](const auto& body) {
    constexpr std::size_t kPiece = (std::size_t{16} << 20) / kStepBytes * static_cast<std::size_t>(kernels::kReadStep);
    for (std::size_t at = 0; at < count && !stop.stop_requested(); at += kPiece) body(at, std::min(kPiece, count - at));
  };

  // Allocated and written by the thread that reads it, so that it is in that thread's local memory.
  std::vector<std::unique_ptr<float[]>> memory(static_cast<std::size_t>(num_threads));
  double best = 0;
  for (const auto read : kernels::active().peak.read) {
    const double slices =
        slices_per_second(num_threads, seconds / kernels::kReadLoops, stop, [&](int thread) -> std::function<void()> {
          std::unique_ptr<float[]>& own = memory[static_cast<std::size_t>(thread)];
          if (own == nullptr) {
            own.reset(new float[count]);
            for_each_piece([&](std::size_t at, std::size_t length) { std::fill_n(own.get() + at, length, 1.0f); });
          }
          return [&own, &for_each_piece, read, rounds] {
            for (std::size_t i = 0; i < rounds; ++i)
              for_each_piece([&](std::size_t at, std::size_t length) {
                bits_sink.store(read(own.get() + at, static_cast<kernels::Index>(length)), std::memory_order_relaxed);
              });
          };
        });
    best = std::max(best, slices * static_cast<double>(rounds) * static_cast<double>(bytes) / 1e9);
  }
  return best;
}

}  // namespace regard::inline v0
