// SPDX-License-Identifier: Apache-2.0
//
// The end of a tile of linear_forward: bias and activation, applied to an array of sums in L1, and stored in the
// output.
//
//   output[r][c] = activation(products[r][c] + bias[c])      or output[r][c] + (products[r][c] + bias[c])
//
// Read next: linear_tile.cpp, linear_amx.cpp.
#pragma once

#include "simd_activation.h"
#include "tile.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// output[r][c] = f(products[r][c] + bias[c]), or with Add output[r][c] + f(…).
template <class T, bool Add, class F>
REGARD_INLINE void finish_tile(Index num_rows, Index num_columns, const T* products, const T* bias, T* output,
                               Index output_stride, F f) {
  for (Index c = 0; c < num_columns; c += kWidth<T>) {
    const Index width = num_columns - c;
    const Vec<T> added = bias ? load_some(bias + c, width) : Vec<T>{};
    const auto finished = [&](Index r) {
      const Vec<T> sum = load(products + r * kPanel + c);
      return f(bias ? sum + added : sum);
    };
    T* to = output + c;
    if (width >= kWidth<T>) {
      for (Index r = 0; r < num_rows; ++r, to += output_stride) store(to, Add ? load(to) + finished(r) : finished(r));
    } else {
      for (Index r = 0; r < num_rows; ++r, to += output_stride)
        store_some(to, Add ? load_some(to, width) + finished(r) : finished(r), width);
    }
  }
}

template <class T>
void finish_tile(Activation activation, Index num_rows, Index num_columns, const T* products, const T* bias, T* output,
                 Index output_stride) {
  const auto finish = [&]<bool Add = false>(auto f) {
    finish_tile<T, Add>(num_rows, num_columns, products, bias, output, output_stride, f);
  };
  if (activation == Activation::none) {
    finish([](Vec<T> x) { return x; });
  } else if (activation == Activation::added) {
    finish.template operator()<true>([](Vec<T> x) { return x; });
  } else if (activation == Activation::relu) {
    finish([](Vec<T> x) { return max(Vec<T>{}, x); });
  } else if (activation == Activation::gelu) {
    finish([](Vec<T> x) { return gelu<T>(x); });
  } else if (activation == Activation::gelu_tanh) {
    finish([](Vec<T> x) { return gelu_tanh<T>(x); });
  } else {
    finish([](Vec<T> x) { return silu<T>(x); });
  }
}

}  // namespace
}  // namespace regard::kernels::REGARD_ISA
