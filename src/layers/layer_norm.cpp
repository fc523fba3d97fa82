// SPDX-License-Identifier: Apache-2.0
//
// The public functions of layer_norm.h.
// Read next: norm.h.
#include "regard/layer_norm.h"

#include "instantiate.h"
#include "norm.h"

namespace regard::inline v0 {

template <class T>
void layer_norm_forward(std::type_identity_t<TensorView<const T, 2>> input,
                        std::type_identity_t<TensorView<const T, 2>> addend,
                        std::type_identity_t<TensorView<const T, 1>> gain,
                        std::type_identity_t<TensorView<const T, 1>> bias, TensorView<T, 2> output, double epsilon,
                        const Runtime& runtime) {
  internal::norm_forward<T>({"layer_norm_forward", true, input, addend, gain, epsilon}, bias, output, runtime);
}

template <class T>
void layer_norm_backward(std::type_identity_t<TensorView<const T, 2>> input,
                         std::type_identity_t<TensorView<const T, 2>> addend,
                         std::type_identity_t<TensorView<const T, 1>> gain, TensorView<const T, 2> grad_output,
                         const std::type_identity_t<LayerNormGradients<T>>& gradients, double epsilon,
                         const Runtime& runtime) {
  internal::norm_backward<T>({"layer_norm_backward", true, input, addend, gain, epsilon}, grad_output, gradients,
                             runtime);
}

REGARD_INSTANTIATE_LAYER(layer_norm_forward);
REGARD_INSTANTIATE_LAYER(layer_norm_backward);

}  // namespace regard::inline v0
