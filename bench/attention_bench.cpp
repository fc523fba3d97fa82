// SPDX-License-Identifier: Apache-2.0
//
// attention_forward, f32, B = 1, H = 8, L = S: full and causal, by length and head size.
//
//   operations = 4 · D · H · (visible pairs of a query row and a key): a product and a sum in Q·Kᵀ and in P·V each;
//   pairs are S² in full and S(S + 1)/2 under a causal mask. The exponentials count for nothing.
//
//   attention_bench --benchmark_filter=D:64/causal:0      REGARD_THREADS, REGARD_FORCE_ISA as everywhere
// Read next: interleaved.h; bench/run_benchmarks for the figures that Regard promises.
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
  regard::bench::run_beside_peak(state, 4.0 * static_cast<double>(depth * kHeads * pairs), [&] {
    regard::attention_forward(query.view(), key.view(), value.view(), {.context = context.view()}, {.causal = causal});
  });
}

BENCHMARK(attention_f32)
    ->ArgNames({"S", "D", "causal"})
    ->ArgsProduct({{256, 1024, 4096}, {64, 128}, {0, 1}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
