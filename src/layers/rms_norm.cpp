// SPDX-License-Identifier: Apache-2.0
//
// The public functions of rms_norm.h.
// Read next: norm.h.
#include "regard/rms_norm.h"

#include "instantiate.h"
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

REGARD_INSTANTIATE_LAYER(rms_norm_forward);
REGARD_INSTANTIATE_LAYER(rms_norm_backward);

}  // namespace regard::inline v0
