// SPDX-License-Identifier: Apache-2.0
//
// output = activation(input · weight + bias): projections that make query, key and value, and feed-forward layers.
//
//     weight (I, O) ── packed at each call, or once: PackedLinear ──▶ panels of 32 columns ── tiles ──▶ output
//
// The documents write X·W with W of shape (I, O), as here; a PyTorch nn.Linear stores (O, I), and is the same
// matrix viewed with its strides exchanged. Read next: multi_head.h, src/layers/linear.cpp.
#pragma once

#include <cstddef>
#include <memory>

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

// output[r, o] = Σ_i input[r, i] · weight[i, o] + bias[o]
//   input (R, I), weight (I, O), bias (O) or absent; writes output (R, O). Any strides.
//   T is float, double or bfloat16, whose output may also be of float.
// Each element is a chain of fused multiply-adds over i, in segments of 256 that are added in order; bias last. The
// same bits for any threads and any R. I = 0 gives the bias or +0.
// bfloat16 is computed with as float: the bits of the same numbers widened, but for the instruction set avx512_bf16,
// which sums products in pairs, as exactly, and takes subnormal numbers as zero. An output of bfloat16 is that of float
// rounded once, to nearest even. Error, u = 2⁻²⁴ or 2⁻⁵³: that of such a chain in T's place, at most
// u · (min(I, 256) + I / 256 + 1) · (Σ_i |input · weight| + |bias|).
// Throws std::invalid_argument before any work; afterwards only std::bad_alloc and regard::Cancelled.
template <class T>
REGARD_EXPORT void linear_forward(std::type_identity_t<TensorView<const T, 2>> input,
                                  std::type_identity_t<TensorView<const T, 2>> weight,
                                  std::type_identity_t<TensorView<const T, 1>> bias, TensorView<T, 2> output,
                                  const Runtime& runtime = {});
REGARD_EXPORT void linear_forward(TensorView<const bfloat16, 2> input, TensorView<const bfloat16, 2> weight,
                                  TensorView<const bfloat16, 1> bias, TensorView<float, 2> output,
                                  const Runtime& runtime = {});

// The weight (I, O) in the order in which linear_forward reads it, packed once for many calls. The original is not
// needed any more. Copies share the panels; any number of threads may read them at once. T as above.
template <class T>
class REGARD_EXPORT PackedLinear {
 public:
  PackedLinear() = default;  // (0, 0)
  // Throws std::invalid_argument for weight that linear_forward would reject; afterwards only std::bad_alloc and
  // regard::Cancelled.
  explicit PackedLinear(TensorView<const T, 2> weight, const Runtime& runtime = {});

  Index num_inputs() const { return num_inputs_; }    // I
  Index num_outputs() const { return num_outputs_; }  // O
  // Memory of the panels: I · O elements, O rounded up to a multiple of 32, and I to one of 2 for bfloat16.
  std::size_t num_bytes() const;
  // Panel ⌊o / 32⌋, then i, then o modulo 32; for bfloat16 panel, ⌊i / 2⌋, o modulo 32, i modulo 2. 0 beyond O and I.
  // The same on every instruction set.
  const T* panels() const { return panels_.get(); }

 private:
  Index num_inputs_ = 0;
  Index num_outputs_ = 0;
  std::shared_ptr<const T> panels_;
};

enum class Activation {
  none,
  relu,      // max(x, 0)
  gelu,      // x · Φ(x) = ½ x (1 + erf(x / √2)): within 7 ULP for float, 9 for double, for every x
  gelu_tanh  // ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))): within 7 ULP, for every x
};

struct LinearOptions {
  Activation activation = Activation::none;
};

// output[r, o] = activation(Σ_i input[r, i] · weight[i, o] + bias[o]), the activation of an element computed while
// it is in cache and, for bfloat16, still a float; before it, the bits of the function above. Shapes, types, strides
// and errors likewise.
template <class T>
REGARD_EXPORT void linear_forward(std::type_identity_t<TensorView<const T, 2>> input,
                                  const std::type_identity_t<PackedLinear<T>>& weight,
                                  std::type_identity_t<TensorView<const T, 1>> bias, TensorView<T, 2> output,
                                  const LinearOptions& options = {}, const Runtime& runtime = {});
REGARD_EXPORT void linear_forward(TensorView<const bfloat16, 2> input, const PackedLinear<bfloat16>& weight,
                                  TensorView<const bfloat16, 1> bias, TensorView<float, 2> output,
                                  const LinearOptions& options = {}, const Runtime& runtime = {});

}  // namespace regard::inline v0
