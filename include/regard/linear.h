// SPDX-License-Identifier: Apache-2.0
//
// output = activation(input · parameters + bias): projections that make query, key and value, and feed-forward layers.
//
//     parameters (I, O) ── packed at each call, or once: PackedParameters ──▶ panels of 32 columns ── tiles ──▶ output
//
// The documents write X·W with W of shape (I, O), as here; a PyTorch nn.Linear stores (O, I), and is the same
// matrix viewed with its strides exchanged. Read next: multi_head.h, src/linear.cpp.
#pragma once

#include <cstddef>
#include <memory>

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard {
inline namespace v0 {

// output[r, o] = Σ_i input[r, i] · parameters[i, o] + bias[o]
//   input (R, I), parameters (I, O), bias (O) or absent; writes output (R, O). T is float or double; any strides.
// Each element is a chain of fused multiply-adds over i, in segments of 256 that are added in order; bias last. The
// same bits for any threads and any R. I = 0 gives the bias or +0.
// Throws std::invalid_argument before any work; afterwards only std::bad_alloc and regard::cancelled.
template <class T>
REGARD_EXPORT void linear_forward(std::type_identity_t<TensorView<const T, 2>> input,
                                  std::type_identity_t<TensorView<const T, 2>> parameters,
                                  std::type_identity_t<TensorView<const T, 1>> bias, TensorView<T, 2> output,
                                  const Runtime& runtime = {});

// Parameters (I, O) in the order in which linear_forward reads them, packed once for many calls. The original is not
// needed any more. Copies share the panels; any number of threads may read them at once. T is float or double.
template <class T>
class REGARD_EXPORT PackedParameters {
 public:
  PackedParameters() = default;  // (0, 0)
  // Throws std::invalid_argument for parameters that linear_forward would refuse; afterwards only std::bad_alloc and
  // regard::cancelled.
  explicit PackedParameters(TensorView<const T, 2> parameters, const Runtime& runtime = {});

  Index num_inputs() const { return num_inputs_; }    // I
  Index num_outputs() const { return num_outputs_; }  // O
  // Memory of the panels: I · O elements, O rounded up to a multiple of 32.
  std::size_t num_bytes() const;
  const T* panels() const { return panels_.get(); }  // panel ⌊o / 32⌋, then i, then o modulo 32; 0 beyond O

 private:
  Index num_inputs_ = 0;
  Index num_outputs_ = 0;
  std::shared_ptr<const T> panels_;
};

enum class Activation {
  none,
  relu,  // max(x, 0)
  gelu   // x · Φ(x) = ½ x (1 + erf(x / √2)): within 7 ULP for float, 9 for double, for every x
};

struct LinearOptions {
  Activation activation = Activation::none;
};

// output[r, o] = activation(Σ_i input[r, i] · parameters[i, o] + bias[o]), the activation of an element computed while
// it is in cache; before it, the bits of the function above. Shapes, strides and errors likewise.
template <class T>
REGARD_EXPORT void linear_forward(std::type_identity_t<TensorView<const T, 2>> input,
                                  const std::type_identity_t<PackedParameters<T>>& parameters,
                                  std::type_identity_t<TensorView<const T, 1>> bias, TensorView<T, 2> output,
                                  const LinearOptions& options = {}, const Runtime& runtime = {});

}  // namespace v0
}  // namespace regard
