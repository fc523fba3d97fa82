// SPDX-License-Identifier: Apache-2.0
//
// The loops behind regard/peaks.h compute the documented results on every instruction set, so that no part was
// optimized away; the rates are positive and finite, without any expectation of their size.
// Read next: src/runtime/peaks.cpp.
#include "regard/peaks.h"

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "runtime/isa.h"
#include "support/instruction_sets.h"

namespace regard::peaks_test {
namespace {

constexpr double kSeconds = 0.003;

// Chain c starts at (c + 1) / (2 · chains).
double sum_of_beginnings(double chains) { return (chains + 1) / 4; }

TEST(Peaks, MultiplyAddRunsEveryIterationOfEveryChain) {
  on_every_instruction_set([](const kernels::KernelTable& table) {
    const kernels::PeakLoop& loop = table.peak.multiply_add;
    const double chains = 12, begin = sum_of_beginnings(chains);
    EXPECT_EQ(loop.operations % static_cast<kernels::Index>(2 * chains), 0);
    EXPECT_FLOAT_EQ(loop.run(0, 1.0f, 1.0f), static_cast<float>(begin));
    EXPECT_FLOAT_EQ(loop.run(1000, 1.0f, 1.0f), static_cast<float>(begin + 1000 * chains));
    EXPECT_FLOAT_EQ(loop.run(1, 4.0f, 0.5f), static_cast<float>(4 * begin + 0.5 * chains));
    EXPECT_FLOAT_EQ(loop.run(1001, -1.0f, 1.0f), static_cast<float>(chains - begin));
  });
}

TEST(Peaks, DotRunsBothProductsOfEveryIterationOfEveryChain) {
  const kernels::PeakLoop* loop = kernels::bf16_dot_loop();
  if (loop == nullptr) return;  // RatesArePositive checks the rate in that case
  const double chains = 24, begin = sum_of_beginnings(chains);
  EXPECT_EQ(loop->operations, 4 * 24 * 16);
  EXPECT_FLOAT_EQ(loop->run(0, 1.0f, 1.0f), static_cast<float>(begin));
  EXPECT_FLOAT_EQ(loop->run(1000, 1.0f, 0.5f), static_cast<float>(begin + 1000 * 1.5 * chains));
  EXPECT_FLOAT_EQ(loop->run(10, -0.25f, 4.0f), static_cast<float>(begin + 10 * 3.75 * chains));
}

TEST(Peaks, ReadsEachElementOnce) {
  std::mt19937 generator(7);
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    const auto width = static_cast<std::size_t>(table.peak.multiply_add.operations / 24);
    for (const kernels::Index steps : {1, 3, 16}) {
      std::vector<float> data(static_cast<std::size_t>(steps * kernels::kReadStep));
      for (float& x : data) x = std::bit_cast<float>(static_cast<std::uint32_t>(generator() & 0x7f7fffffu));
      std::uint32_t expected = 0;
      for (std::size_t i = 0; i < data.size(); i += width) expected ^= std::bit_cast<std::uint32_t>(data[i]);
      for (const auto read : table.peak.read)
        EXPECT_EQ(static_cast<std::uint32_t>(read(data.data(), steps * kernels::kReadStep)), expected) << steps;
    }
  });
}

TEST(Peaks, RatesArePositive) {
  const auto is_rate = [](double rate) { return rate > 0 && std::isfinite(rate); };
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    for (const int threads : {1, 2, 5}) {
      EXPECT_TRUE(is_rate(fma_gflops(threads, kSeconds)));
      EXPECT_TRUE(is_rate(read_gigabytes_per_second(100'000, threads, kSeconds)));
      EXPECT_TRUE(is_rate(read_gigabytes_per_second(1, threads, kSeconds)));
      const std::optional<double> dot = bf16_dot_gflops(threads, kSeconds);
      EXPECT_EQ(dot.has_value(), kernels::bf16_dot_loop() != nullptr);
      if (dot) {
        EXPECT_TRUE(is_rate(*dot));
        EXPECT_EQ(std::string(table.name), "avx512_bf16");
      }
    }
  });
}

TEST(Peaks, RejectsInvalidArguments) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const int threads : {0, -1, 4097}) {
    EXPECT_THROW(fma_gflops(threads, kSeconds), std::invalid_argument);
    EXPECT_THROW(bf16_dot_gflops(threads, kSeconds), std::invalid_argument);
    EXPECT_THROW(read_gigabytes_per_second(1, threads, kSeconds), std::invalid_argument);
  }
  for (const double seconds : {0.0, -1.0, kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(fma_gflops(1, seconds), std::invalid_argument);
    EXPECT_THROW(bf16_dot_gflops(1, seconds), std::invalid_argument);
    EXPECT_THROW(read_gigabytes_per_second(1, 1, seconds), std::invalid_argument);
  }
  EXPECT_THROW(read_gigabytes_per_second(0, 1, kSeconds), std::invalid_argument);
  try {
    fma_gflops(0, kSeconds);
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "fma_gflops: num_threads is 0; expected 1 to 4096");
  }
}

// Each would otherwise run for hours.
TEST(Peaks, StopEndsTheMeasurement) {
  constexpr double kLong = 1e5;
  const auto stops = [](const auto& measure) {
    std::stop_source source;
    const std::jthread later([&source] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      source.request_stop();
    });
    EXPECT_THROW(measure(source.get_token()), Cancelled);
  };
  for (const int threads : {1, 3}) {
    stops([&](const std::stop_token& stop) { fma_gflops(threads, kLong, stop); });
    stops([&](const std::stop_token& stop) { read_gigabytes_per_second(1000, threads, kLong, stop); });
    stops([&](const std::stop_token& stop) { read_gigabytes_per_second(100'000'000, threads, kLong, stop); });
    if (kernels::bf16_dot_loop() != nullptr)
      stops([&](const std::stop_token& stop) { bf16_dot_gflops(threads, kLong, stop); });
  }
}

TEST(Peaks, OutOfMemoryIsReported) {
  EXPECT_THROW(read_gigabytes_per_second(std::numeric_limits<std::size_t>::max(), 3, kSeconds), std::bad_alloc);
}

}  // namespace
}  // namespace regard::peaks_test
