// SPDX-License-Identifier: Apache-2.0
//
// run_with_peak(state, operations, call): the loop of every benchmark. Machines are shared and clock rates vary, so the
// peak is measured after every call, and the rates of both are means over the same period:
//
//   one untimed call, then for each iteration:  call (timed) ─ peak for 5 ms (not timed)
//
// Inputs are drawn from N(0, 1). Packing is part of the timed call.
// Read next: regard/peaks.h.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <random>

#include "regard/peaks.h"
#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::bench {

template <class T, int Rank>
Tensor<T, Rank> normal(const typename Tensor<T, Rank>::Shape& shape, unsigned seed) {
  Tensor<T, Rank> tensor(shape);
  std::mt19937 generator(seed);
  std::normal_distribution<T> distribution;
  for (Index i = 0; i < tensor.size(); ++i) tensor.data()[i] = distribution(generator);
  return tensor;
}

// Reports the rate in GFLOP/s, for a number of operations per call, and its share of the peak of the same threads.
template <class Call>
void run_with_peak(benchmark::State& state, double operations, Call&& call) {
  using Clock = std::chrono::steady_clock;
  constexpr double kPeakSeconds = 0.005;
  const int num_threads = default_num_threads();
  double seconds = 0.0, peak = 0.0;
  call();
  for ([[maybe_unused]] auto iteration : state) {
    const auto begin = Clock::now();
    call();
    const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    state.SetIterationTime(elapsed);
    seconds += elapsed;
    peak += fma_gflops(num_threads, kPeakSeconds);
  }
  const auto iterations = static_cast<double>(state.iterations());
  const double rate = operations * iterations / seconds / 1e9;
  state.counters["GFLOP/s"] = rate;
  state.counters["of_peak"] = rate / (peak / iterations);
  state.counters["threads"] = num_threads;
}

}  // namespace regard::bench
