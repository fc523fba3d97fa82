// SPDX-License-Identifier: Apache-2.0
//
// The kernels of layers other than attention and linear ones: rows of norms, activations, rotations and losses; and
// optimizers. The table of an instruction set refers to them (Kernels<T>::layers), so that a new layer does not
// recompile attention.
// Read next: layer_table.cpp.
#pragma once

#include "table.h"

namespace regard::kernels {

// Elements that a step of AdamW updates, and the numbers that they share (regard/adamw.h).
template <class T>
struct AdamwElements {
  T* parameters;
  const T* gradients;
  T *first_moment, *second_moment;
  T gradient_scale;
  T to_gradient;       // 1 − beta1
  T keep_square;       // beta2
  T to_square;         // 1 − beta2
  T root_scale;        // 1 / √(1 − beta2^step)
  T epsilon;           //
  T keep_parameter;    // 1 − learning_rate · weight_decay
  T along_the_moment;  // −learning_rate / (1 − beta1^step)
};

template <class T>
struct LayerKernels {
  // sum[i] = sum[i] + x[i]
  void (*add)(const T* x, T* sum, Index count);

  // Norms.

  // Activations.

  // Rotary position embedding.

  // Losses.

  // Optimizers.
  void (*adamw_elements)(const AdamwElements<T>& elements, Index first, Index count);
};

}  // namespace regard::kernels
