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
    .cross_entropy_row = cross_entropy_row<T>,
};

template struct LayerTable<float>;
template struct LayerTable<double>;

}  // namespace regard::kernels::REGARD_ISA
