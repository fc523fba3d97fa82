// SPDX-License-Identifier: Apache-2.0
//
// Activations, SwiGLU and their gradients over contiguous elements: the functions of simd_gelu.h and simd_activation.h,
// a vector at a time. Every vector is read before it is written, so that an output may be one of the inputs.
//
//   activate            output       = f(x)
//   activate_backward   grad_input   = grad_output · f′(x)
//   swiglu              output       = silu(gate) · up
//   swiglu_backward     grad_gate    = grad_output · up · silu′(gate),   grad_up = grad_output · silu(gate)
//
// Read next: src/layers/activation.cpp.
#include "kernels.h"
#include "layer_table.h"
#include "simd_activation.h"

namespace regard::kernels::REGARD_ISA {
namespace {

// Calls body(i, width) for each vector of `count` elements; the width of a whole one is a constant.
template <class T, class Body>
REGARD_INLINE void for_each_vector(Index count, const Body& body) {
  Index i = 0;
  for (; i + kWidth<T> <= count; i += kWidth<T>) body(i, kWidth<T>);
  if (i < count) body(i, count - i);
}

// Gradients are added to what `to` contains if Adds.
template <bool Adds, class T>
REGARD_INLINE void write(T* to, Vec<T> gradient, Index width) {
  store_some<T>(to, Adds ? load_some(to, width) + gradient : gradient, width);
}

template <class T>
REGARD_INLINE Vec<T> relu(Vec<T> x) {
  return max(Vec<T>{}, x);
}

template <class T, class F>
void apply(const T* x, Index count, T* y, F f) {
  for_each_vector<T>(count, [&](Index i, Index width) { store_some<T>(y + i, f(load_some(x + i, width)), width); });
}

// gradient(x, grad_output) is the gradient of x.
template <bool Adds, class T, class F>
void apply_backward(const T* x, const T* grad_output, Index count, T* grad_input, F gradient) {
  for_each_vector<T>(count, [&](Index i, Index width) {
    write<Adds>(grad_input + i, gradient(load_some(x + i, width), load_some(grad_output + i, width)), width);
  });
}

template <bool Adds, class T>
void activation_gradient(Activation activation, const T* x, const T* grad_output, Index count, T* grad_input) {
  const auto run = [&](auto gradient) { apply_backward<Adds>(x, grad_output, count, grad_input, gradient); };
  switch (activation) {
    case Activation::none:
    case Activation::added:
      return run([](Vec<T>, Vec<T> g) { return g; });
    case Activation::relu:
      // 0 for x ≤ 0 whatever g is, and NaN for NaN.
      return run([](Vec<T> v, Vec<T> g) { return select<T>(v > Vec<T>{}, g, select<T>(v == v, Vec<T>{}, v)); });
    case Activation::gelu:
      return run([](Vec<T> v, Vec<T> g) { return g * gelu_derivative<T>(v); });
    case Activation::gelu_tanh:
      return run([](Vec<T> v, Vec<T> g) { return g * gelu_tanh_derivative<T>(v); });
    case Activation::silu:
      return run([](Vec<T> v, Vec<T> g) { return g * silu_derivative<T>(v); });
  }
}

template <bool AddsGate, bool AddsUp, class T>
void swiglu_gradients(const SwigluBackward<T>& s) {
  for_each_vector<T>(s.count, [&](Index i, Index width) {
    const Vec<T> gate = load_some(s.gate + i, width);
    const Vec<T> g = load_some(s.grad_output + i, width);
    const Silu<T> at = silu_and_derivative<T>(gate);
    const Vec<T> of_gate = g * load_some(s.up + i, width) * at.derivative;
    write<AddsGate>(s.grad_gate + i, of_gate, width);
    write<AddsUp>(s.grad_up + i, g * at.value, width);
  });
}

}  // namespace

template <class T>
void ActivationKernels<T>::activate(Activation activation, const T* x, Index count, T* y) {
  const auto run = [&](auto f) { apply<T>(x, count, y, f); };
  switch (activation) {
    case Activation::none:
    case Activation::added:
      return run([](Vec<T> v) { return v; });
    case Activation::relu:
      return run([](Vec<T> v) { return relu<T>(v); });
    case Activation::gelu:
      return run([](Vec<T> v) { return gelu<T>(v); });
    case Activation::gelu_tanh:
      return run([](Vec<T> v) { return gelu_tanh<T>(v); });
    case Activation::silu:
      return run([](Vec<T> v) { return silu<T>(v); });
  }
}

template <class T>
void ActivationKernels<T>::activate_backward(Activation activation, const T* x, const T* grad_output, Index count,
                                             bool accumulate, T* grad_input) {
  accumulate ? activation_gradient<true>(activation, x, grad_output, count, grad_input)
             : activation_gradient<false>(activation, x, grad_output, count, grad_input);
}

template <class T>
void ActivationKernels<T>::swiglu(const T* gate, const T* up, Index count, T* output) {
  for_each_vector<T>(count, [&](Index i, Index width) {
    store_some<T>(output + i, silu<T>(load_some(gate + i, width)) * load_some(up + i, width), width);
  });
}

template <class T>
void ActivationKernels<T>::swiglu_backward(const SwigluBackward<T>& s) {
  if (s.accumulate_gate) {
    s.accumulate_up ? swiglu_gradients<true, true>(s) : swiglu_gradients<true, false>(s);
  } else {
    s.accumulate_up ? swiglu_gradients<false, true>(s) : swiglu_gradients<false, false>(s);
  }
}

REGARD_INSTANTIATE_COMPUTE_CLASS(struct, ActivationKernels);

}  // namespace regard::kernels::REGARD_ISA
