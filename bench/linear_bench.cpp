// SPDX-License-Identifier: Apache-2.0
//
// linear_forward, f32: (R, I) · (I, O), without a bias, as for the projections of attention.
//
//   operations = 2 · R · I · O
//
//   linear_bench --benchmark_filter=R:2048               REGARD_THREADS, REGARD_FORCE_ISA as everywhere
// Read next: interleaved.h; bench/compare.py sets it beside NumPy's product.
#include "regard/linear.h"

#include "interleaved.h"

namespace {

using regard::Index;

void linear_f32(benchmark::State& state) {
  const Index rows = state.range(0), inputs = state.range(1), outputs = state.range(2);
  const auto input = regard::bench::normal<float, 2>({rows, inputs}, 1);
  const auto parameters = regard::bench::normal<float, 2>({inputs, outputs}, 2);
  regard::Tensor<float, 2> output({rows, outputs});
  regard::bench::run_beside_peak(state, 2.0 * static_cast<double>(rows * inputs * outputs), [&] {
    regard::linear_forward<float>(input.view(), parameters.view(), {}, output.view());
  });
}

BENCHMARK(linear_f32)
    ->ArgNames({"R", "I", "O"})
    ->Args({64, 768, 768})
    ->Args({512, 768, 3072})
    ->Args({2048, 2048, 2048})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
