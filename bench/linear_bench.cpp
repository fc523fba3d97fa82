// SPDX-License-Identifier: Apache-2.0
//
// linear_forward, f32 and bf16: (R, I) · (I, O), without a bias, as for the projections of attention.
//
//   operations = 2 · R · I · O; both are compared with the peak of f32
//
//   linear_bench --benchmark_filter=R:2048               also reads REGARD_THREADS and REGARD_FORCE_ISA
// Read next: interleaved.h; bench/compare.py compares it with NumPy's product.
#include "regard/linear.h"

#include <algorithm>

#include "interleaved.h"

namespace {

using regard::Index;

template <class T>
regard::Tensor<T, 2> numbers(Index rows, Index columns, unsigned seed) {
  const auto wide = regard::bench::normal<float, 2>({rows, columns}, seed);
  regard::Tensor<T, 2> result({rows, columns});
  std::transform(wide.data(), wide.data() + wide.size(), result.data(), [](float x) { return static_cast<T>(x); });
  return result;
}

template <class T>
void linear(benchmark::State& state) {
  const Index rows = state.range(0), inputs = state.range(1), outputs = state.range(2);
  const auto input = numbers<T>(rows, inputs, 1), weight = numbers<T>(inputs, outputs, 2);
  regard::Tensor<T, 2> output({rows, outputs});
  regard::bench::run_with_peak(state, 2.0 * static_cast<double>(rows * inputs * outputs),
                               [&] { regard::linear_forward<T>(input.view(), weight.view(), {}, output.view()); });
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"R", "I", "O"})->Args({64, 768, 768})->Args({512, 768, 3072})->Args({2048, 2048, 2048});
  benchmark->UseManualTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK(linear<float>)->Apply(shapes);
BENCHMARK(linear<regard::bfloat16>)->Apply(shapes);

}  // namespace
