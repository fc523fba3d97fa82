// SPDX-License-Identifier: Apache-2.0
//
// A step of AdamW in one pass over its four arrays. Nothing is fused: every instruction set gives the same bits.
// Read next: src/layers/adamw.cpp.
#include "layer_table.h"

#include "kernels.h"
#include "simd.h"

namespace regard::kernels::REGARD_ISA {
namespace {

template <class T>
constexpr T kSmallestNormal = static_cast<T>(sizeof(T) == sizeof(float) ? __FLT_MIN__ : __DBL_MIN__);

template <class T>
REGARD_INLINE Vec<T> normal_or_zero(Vec<T> v) {
  return select<T>(absolute<T>(v) < broadcast(kSmallestNormal<T>), Vec<T>{}, v);
}

// Updates the elements from i on that one vector holds, or the first `count` of them.
template <class T>
REGARD_INLINE void update(const AdamwElements<T>& e, Index i, Index count) {
  const Vec<T> g = load_some(e.gradients + i, count) * broadcast(e.gradient_scale);
  const Vec<T> old_m = load_some(e.first_moment + i, count), old_v = load_some(e.second_moment + i, count);
  const Vec<T> m = old_m + broadcast(e.to_gradient) * (g - old_m);
  const Vec<T> v = old_v * broadcast(e.keep_square) + broadcast(e.to_square) * g * g;
  const Vec<T> denominator = square_root(v) * broadcast(e.root_scale) + broadcast(e.epsilon);
  const Vec<T> p = load_some(e.parameters + i, count) * broadcast(e.keep_parameter) +
                   broadcast(e.along_the_moment) * m / denominator;
  store_some(e.parameters + i, p, count);
  store_some(e.first_moment + i, normal_or_zero<T>(m), count);
  store_some(e.second_moment + i, normal_or_zero<T>(v), count);
}

}  // namespace

template <class T>
void adamw_elements(const AdamwElements<T>& elements, Index first, Index count) {
  const AdamwElements<T> e = elements;  // a copy that no store can change
  const Index end = first + count;
  Index i = first;
  for (; i + kWidth<T> <= end; i += kWidth<T>) update(e, i, kWidth<T>);
  if (i < end) update(e, i, end - i);
}

REGARD_INSTANTIATE_COMPUTE(adamw_elements);

}  // namespace regard::kernels::REGARD_ISA
