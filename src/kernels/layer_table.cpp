// SPDX-License-Identifier: Apache-2.0
//
// The layer kernels of this instruction set.
#include "layer_table.h"

#include "kernels.h"

namespace regard::kernels::REGARD_ISA {

template <class T>
constinit const LayerKernels<T> LayerTable<T>::table = {.add = ElementwiseKernels<T>::add_elements,
                                                        .adamw_elements = adamw_elements<T>};

template struct LayerTable<float>;
template struct LayerTable<double>;

}  // namespace regard::kernels::REGARD_ISA
