// SPDX-License-Identifier: Apache-2.0
//
// Converts the activation of a call to the enumerator of the kernels.
// Read next: activation.cpp.
#pragma once

#include <string>

#include "kernels/table.h"
#include "regard/activation.h"
#include "tensor/checks.h"

namespace regard::inline v0::internal {

// Throws InvalidArgument if the value is not one of the enumerators.
inline kernels::Activation kernel_activation(const char* operator_name, Activation activation) {
  switch (activation) {
    case Activation::none:
      return kernels::Activation::none;
    case Activation::relu:
      return kernels::Activation::relu;
    case Activation::gelu:
      return kernels::Activation::gelu;
    case Activation::gelu_tanh:
      return kernels::Activation::gelu_tanh;
    case Activation::silu:
      return kernels::Activation::silu;
  }
  reject(operator_name, "activation is " + std::to_string(static_cast<int>(activation)) +
                            "; expected none, relu, gelu, gelu_tanh or silu");
}

}  // namespace regard::inline v0::internal
