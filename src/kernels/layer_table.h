// SPDX-License-Identifier: Apache-2.0
//
// The kernels of layers other than attention and linear ones: rows of norms, activations, rotations and losses. The
// table of an instruction set refers to them (Kernels<T>::layers), so that a new layer does not recompile attention.
// Read next: layer_table.cpp.
#pragma once

#include "table.h"

namespace regard::kernels {

template <class T>
struct LayerKernels {
  // sum[i] = sum[i] + x[i]
  void (*add)(const T* x, T* sum, Index count);
  // The same with a sum in double.
  void (*add_wide)(const T* x, double* sum, Index count);
  // y[i] = x[i], rounded to nearest even.
  void (*round)(const double* x, T* y, Index count);

  // Norms.

  // Activations.

  // Rotary position embedding.

  // Losses.
  // sum = Σ exp(logits[v] − max) and distance = max − logits[target]: the loss is ln sum + distance. Also writes
  // factor · (softmax(logits)[v] − [v = target]) to gradient, which may be logits, or nullptr. count ≥ 1.
  void (*cross_entropy_row)(const T* logits, Index count, Index target, double factor, T* gradient, double* sum,
                            double* distance);
};

}  // namespace regard::kernels
