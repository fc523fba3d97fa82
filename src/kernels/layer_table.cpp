// SPDX-License-Identifier: Apache-2.0
//
// The layer kernels of this instruction set.
#include "layer_table.h"

#include "kernels.h"

namespace regard::kernels::REGARD_ISA {

template <class T>
constinit const LayerKernels<T> LayerTable<T>::table = {
    .add = ElementwiseKernels<T>::add_elements,
    .add_wide = ElementwiseKernels<T>::add_wide_elements,
    .round = ElementwiseKernels<T>::round_elements,
    .copy_rows = copy_rows,
    .norm_forward = NormKernels<T>::forward,
    .norm_backward = NormKernels<T>::backward,
    .activate = ActivationKernels<T>::activate,
    .activate_backward = ActivationKernels<T>::activate_backward,
    .swiglu = ActivationKernels<T>::swiglu,
    .swiglu_backward = ActivationKernels<T>::swiglu_backward,
    .rotary_factors = RotaryKernels<T>::factors,
    .rotate_halves = RotaryKernels<T>::rotate_halves,
    .rotate_neighbors = RotaryKernels<T>::rotate_neighbors,
    .cross_entropy_row = cross_entropy_row<T>,
    .adamw_elements = adamw_elements<T>,
};

REGARD_INSTANTIATE_COMPUTE_CLASS(struct, LayerTable);

}  // namespace regard::kernels::REGARD_ISA
