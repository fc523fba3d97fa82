// SPDX-License-Identifier: Apache-2.0
//
// The public functions of rms_norm.h.
// Read next: norm.h.
#include "regard/rms_norm.h"

#include "norm.h"

namespace regard::inline v0 {

template <class T>
void rms_norm_forward(std::type_identity_t<TensorView<const T, 2>> input,
                      std::type_identity_t<TensorView<const T, 2>> addend,
                      std::type_identity_t<TensorView<const T, 1>> gain, TensorView<T, 2> output, double epsilon,
                      const Runtime& runtime) {
  internal::norm_forward<T>({"rms_norm_forward", false, input, addend, gain, epsilon}, {}, output, runtime);
}

template <class T>
void rms_norm_backward(std::type_identity_t<TensorView<const T, 2>> input,
                       std::type_identity_t<TensorView<const T, 2>> addend,
                       std::type_identity_t<TensorView<const T, 1>> gain, TensorView<const T, 2> grad_output,
                       const std::type_identity_t<RmsNormGradients<T>>& gradients, double epsilon,
                       const Runtime& runtime) {
  internal::norm_backward<T>({"rms_norm_backward", false, input, addend, gain, epsilon}, grad_output,
                             {.grad_input = gradients.grad_input,
                              .grad_gain = gradients.grad_gain,
                              .accumulate = {gradients.accumulate.grad_input, gradients.accumulate.grad_gain},
                              .rows_per_group = gradients.rows_per_group},
                             runtime);
}

template decltype(rms_norm_forward<float>) rms_norm_forward<float>;
template decltype(rms_norm_forward<double>) rms_norm_forward<double>;
template decltype(rms_norm_forward<bfloat16>) rms_norm_forward<bfloat16>;
template decltype(rms_norm_backward<float>) rms_norm_backward<float>;
template decltype(rms_norm_backward<double>) rms_norm_backward<double>;
template decltype(rms_norm_backward<bfloat16>) rms_norm_backward<bfloat16>;

}  // namespace regard::inline v0
