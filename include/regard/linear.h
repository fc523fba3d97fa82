// SPDX-License-Identifier: Apache-2.0
/// @file
/// Linear layers, output = activation(input · weight + bias): projections to query, key and value, and feed-forward
/// layers.
///
/// @verbatim
/// weight (I, O) ── packed at each call, or once: PackedLinear ──▶ panels of 32 columns ── tiles ──▶ output
/// @endverbatim
///
/// - Extents: R rows, I input features, O output features.
/// - The documentation writes X·W with W of shape (I, O), as here. The weight of a PyTorch nn.Linear has shape (O, I):
///   it is the same matrix transposed, that is, with its strides swapped; see transposed().
///
/// Source: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008 (packed panels).
///
/// Read next: multi_head.h, src/layers/linear.cpp.
#pragma once

#include <cstddef>
#include <memory>

#include "regard/activation.h"
#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// Computes a linear layer without an activation.
///
/// @code{.unparsed}
/// output[r, o] = Σ_i input[r, i] · weight[i, o] + bias[o]
/// @endcode
///
/// @tparam T       float, double or bfloat16.
/// @param input    (R, I), any strides.
/// @param weight   (I, O), any strides.
/// @param bias     (O), any stride, or absent.
/// @param output   (R, O), any strides. It must not overlap an input.
/// @param runtime  Threads, scratch memory and cancellation.
///
/// Writes output. If I = 0, every row is bias, or +0 without a bias.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Reproducibility
/// Each element is computed by a chain of fused multiply-adds over i, in segments of 256 that are added in order; bias
/// is added last. Results are bit-identical for any number of threads and any R.
/// @par
/// With bfloat16 inputs, results are bit-identical to those for the same inputs converted to float. The exceptions are
/// two instruction sets that multiply bfloat16 natively, within the same error bound: avx512_bf16 sums products in
/// pairs, and amx_bf16 in steps of 32 (docs/numerics.md). Both treat subnormal numbers as zero. A bfloat16 output is
/// the float output rounded once, to nearest even.
///
/// @par Error
/// With u = 2⁻²⁴ (double: 2⁻⁵³), the error of a chain, before a bfloat16 output is rounded, is at most
/// `u · (min(I, 256) + I / 256 + 1) · (Σ_i |input · weight| + |bias|)`.
///
/// @par Example
/// @code{.cpp}
/// linear_forward<float>(input, weight, bias, output);
/// @endcode
template <class T>
REGARD_EXPORT void linear_forward(std::type_identity_t<TensorView<const T, 2>> input,
                                  std::type_identity_t<TensorView<const T, 2>> weight,
                                  std::type_identity_t<TensorView<const T, 1>> bias, TensorView<T, 2> output,
                                  const Runtime& runtime = {});

/// Same as linear_forward<bfloat16>(), but with a float output, which is not rounded to bfloat16.
///
/// @param input    (R, I), any strides.
/// @param weight   (I, O), any strides.
/// @param bias     (O), any stride, or absent.
/// @param output   (R, O), any strides. It must not overlap an input.
/// @param runtime  Threads, scratch memory and cancellation.
/// @throws InvalidArgument  before any work is done, if an argument is invalid.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
REGARD_EXPORT void linear_forward(TensorView<const bfloat16, 2> input, TensorView<const bfloat16, 2> weight,
                                  TensorView<const bfloat16, 1> bias, TensorView<float, 2> output,
                                  const Runtime& runtime = {});

/// A weight (I, O) in the order in which linear_forward() reads it, packed once for many calls.
///
/// The original weight is not needed after packing. Copies share the panels, and any number of threads may read them at
/// the same time.
///
/// @tparam T  float, double or bfloat16.
///
/// @par Example
/// @code{.cpp}
/// const PackedLinear<float> packed(weight);
/// linear_forward<float>(input, packed, bias, output, {.activation = Activation::gelu});
/// @endcode
template <class T>
class REGARD_EXPORT PackedLinear {
 public:
  /// Creates a packed weight of shape (0, 0).
  PackedLinear() = default;

  /// Packs a weight.
  ///
  /// @param weight   (I, O), any strides.
  /// @param runtime  Threads and cancellation.
  /// @throws InvalidArgument   if linear_forward() would reject this weight.
  /// @throws std::logic_error  if the constructor is called inside plan().
  /// @throws std::bad_alloc    if memory cannot be allocated.
  /// @throws Cancelled         if a stop is requested.
  explicit PackedLinear(TensorView<const T, 2> weight, const Runtime& runtime = {});

  /// Returns the number of inputs.
  ///
  /// @return I, the number of rows of weight.
  Index num_inputs() const { return num_inputs_; }

  /// Returns the number of outputs.
  ///
  /// @return O, the number of columns of weight.
  Index num_outputs() const { return num_outputs_; }

  /// Returns the size of the panels in memory.
  ///
  /// @return Size in bytes of I · O elements, where O is rounded up to a multiple of 32, an I of 0 is treated as 1 and,
  ///         for bfloat16, I is rounded up to a multiple of 2.
  std::size_t num_bytes() const;

  /// Returns the panels, which have the same layout on every instruction set.
  ///
  /// Element (i, o) of the weight has the index
  /// @code{.unparsed}
  /// (panel ⌊o / 32⌋, i, o modulo 32)                            float and double
  /// (panel ⌊o / 32⌋, ⌊i / 2⌋, o modulo 32, i modulo 2)          bfloat16
  /// @endcode
  /// Elements beyond O and I are 0.
  ///
  /// @return The first element, or nullptr if O is 0.
  const T* panels() const { return panels_.get(); }

 private:
  Index num_inputs_ = 0;
  Index num_outputs_ = 0;
  std::shared_ptr<const T> panels_;
};

/// Options for a linear layer with a packed weight.
struct LinearOptions {
  /// Function applied to every element of the output.
  Activation activation = Activation::none;
};

/// Computes a linear layer with a packed weight and an activation.
///
/// @code{.unparsed}
/// output[r, o] = activation(Σ_i input[r, i] · weight[i, o] + bias[o])
/// @endcode
///
/// The activation of an element is computed while the element is in cache and, for bfloat16, before it is rounded from
/// float. The argument of the activation is bit-identical to the output of linear_forward() with an unpacked weight,
/// and the requirements on shapes, types and strides are the same.
///
/// @tparam T       float, double or bfloat16.
/// @param input    (R, I), any strides.
/// @param weight   Packed weight (I, O).
/// @param bias     (O), any stride, or absent.
/// @param output   (R, O), any strides. It must not overlap an input.
/// @param options  Activation.
/// @param runtime  Threads, scratch memory and cancellation.
///
/// Writes output.
///
/// @throws InvalidArgument  as linear_forward() with an unpacked weight does, and if the activation is unknown.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
template <class T>
REGARD_EXPORT void linear_forward(std::type_identity_t<TensorView<const T, 2>> input,
                                  const std::type_identity_t<PackedLinear<T>>& weight,
                                  std::type_identity_t<TensorView<const T, 1>> bias, TensorView<T, 2> output,
                                  const LinearOptions& options = {}, const Runtime& runtime = {});

/// Same as linear_forward<bfloat16>() with a packed weight, but with a float output, which is not rounded to bfloat16.
///
/// @param input    (R, I), any strides.
/// @param weight   Packed weight (I, O).
/// @param bias     (O), any stride, or absent.
/// @param output   (R, O), any strides. It must not overlap an input.
/// @param options  Activation.
/// @param runtime  Threads, scratch memory and cancellation.
/// @throws InvalidArgument  before any work is done, if an argument is invalid.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
REGARD_EXPORT void linear_forward(TensorView<const bfloat16, 2> input, const PackedLinear<bfloat16>& weight,
                                  TensorView<const bfloat16, 1> bias, TensorView<float, 2> output,
                                  const LinearOptions& options = {}, const Runtime& runtime = {});

}  // namespace regard::inline v0
