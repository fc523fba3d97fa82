// SPDX-License-Identifier: Apache-2.0
//
// attention_forward, f32, B = 1, H = 8, L = S: full and causal, by length and head size.
//
//   operations = 4 · D · H · (visible query-key pairs): a multiplication and an addition each in Q·Kᵀ and in P·V. There
//   are S² pairs, or S(S + 1)/2 with a causal mask. Exponentials are not counted.
//
//   attention_bench --benchmark_filter=D:64/causal:0      also reads REGARD_THREADS and REGARD_FORCE_ISA
// Read next: interleaved.h; bench/run_benchmarks measures the performance targets.
#include "regard/attention.h"

#include "interleaved.h"

namespace {

using regard::Index;

constexpr Index kHeads = 8;

void attention_f32(benchmark::State& state) {
  const Index length = state.range(0), depth = state.range(1);
  const bool causal = state.range(2) != 0;
  const regard::Tensor<float, 4>::Shape shape{1, kHeads, length, depth};
  const auto query = regard::bench::normal<float, 4>(shape, 1);
  const auto key = regard::bench::normal<float, 4>(shape, 2);
  const auto value = regard::bench::normal<float, 4>(shape, 3);
  regard::Tensor<float, 4> context(shape);
  const Index pairs = causal ? length * (length + 1) / 2 : length * length;
  regard::bench::run_with_peak(state, 4.0 * static_cast<double>(depth * kHeads * pairs), [&] {
    regard::attention_forward(query.view(), key.view(), value.view(), {.context = context.view()}, {.causal = causal});
  });
}

BENCHMARK(attention_f32)
    ->ArgNames({"S", "D", "causal"})
    ->ArgsProduct({{256, 1024, 4096}, {64, 128}, {0, 1}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
