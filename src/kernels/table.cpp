// SPDX-License-Identifier: Apache-2.0
//
// The kernel table of this instruction set, and the floating-point state in which kernels run.
#include "table.h"

#include "kernels.h"
#include "tile.h"

#define REGARD_TEXT_(x) #x
#define REGARD_TEXT(x) REGARD_TEXT_(x)

namespace regard::kernels::REGARD_ISA {
namespace {

// All exceptions masked, round to nearest, no flush-to-zero, no flags: the state after processor reset.
#if defined(__aarch64__)
std::uint64_t enter_floating_point() {
  std::uint64_t control, status;
  asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(control), "=r"(status));
  asm volatile("msr fpcr, %0\n\tmsr fpsr, %0" : : "r"(std::uint64_t{0}));
  return control | status << 32;
}

void leave_floating_point(std::uint64_t previous) {
  asm volatile("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(previous & 0xffffffffu), "r"(previous >> 32));
}
#elif defined(__wasm__)
// WebAssembly has no other state.
std::uint64_t enter_floating_point() { return 0; }

void leave_floating_point(std::uint64_t) {}
#elif defined(__x86_64__)
constexpr unsigned kDefaultState = 0x1f80;

std::uint64_t enter_floating_point() {
  const unsigned previous = _mm_getcsr();
  _mm_setcsr(kDefaultState);
  return previous;
}

void leave_floating_point(std::uint64_t previous) { _mm_setcsr(static_cast<unsigned>(previous)); }
#endif

template <class T>
constexpr Kernels<T> kernels() {
  return {kTileRows,
          PackKernels<T>::pack_query,
          PackKernels<T>::pack_keys,
          PackKernels<T>::pack_values,
          TileKernels<T>::score_block,
          TileKernels<T>::attention_block,
          FinishKernels<T>::finish_chunk,
          FinishKernels<T>::finish_rows,
          WeightsKernels<T>::weights_block,
          BackwardKernels<T>::grad_scores_block,
          BackwardKernels<T>::backward_block,
          WeightsKernels<T>::add_rows,
          linear_tile<T>,
          dropout_row<T>,
          ElementwiseKernels<T>::exp_elements,
          ElementwiseKernels<T>::tanh_elements,
          ElementwiseKernels<T>::log_elements,
          ElementwiseKernels<T>::gelu_elements,
          ElementwiseKernels<T>::gelu_tanh_elements,
          &LayerTable<T>::table};
}

template <class S>
constexpr WideningKernels<S> widening_kernels() {
  using Pack = PackKernels<float, S>;
  return {Pack::pack_query, Pack::pack_keys, Pack::pack_values, Pack::widen};
}

}  // namespace

constinit const KernelTable table = {
    REGARD_TEXT(REGARD_ISA),
    kFused,
    enter_floating_point,
    leave_floating_point,
    kernels<float>(),
    kernels<double>(),
    widening_kernels<Bfloat16>(),
    widening_kernels<Float16>(),
    kDotPairs,
    {pack_query_pairs, pack_key_pairs, pack_value_pairs, pair_lines, widen_pairs, score_pairs, attention_pairs,
     attention_pairs_wide, grad_scores_pairs, backward_pairs, linear_pairs, narrow},
    kAmx,
    {enter_amx, leave_amx, pack_amx_rows, linear_amx},
    {{2 * kPeakChains * kWidth<float>, multiply_add_loop}, {read_loop<1>, read_loop<2>, read_loop<4>}}};

}  // namespace regard::kernels::REGARD_ISA
