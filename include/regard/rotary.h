// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rotary position embedding: every pair of components of a query or key is rotated by an angle that grows with the
/// position, so that the dot product of a query and a key depends only on their relative position.
///
/// @code{.unparsed}
/// angle(p, d) = p · base^(−2d / size)                                  p: position, d = 0 … size / 2 − 1: pair
///
/// (a, b) ──▶ (a · cos − b · sin,  b · cos + a · sin)                   cos and sin of angle(p, d)
///
///              halves                        interleaved
/// pair d     (x[d], x[d + size / 2])       (x[2d], x[2d + 1])
/// @endcode
///
/// Extents: B batch entries, H heads, L rows per head, D components per row. The first `size` of the D components are
/// rotated, and the others are copied.
///
/// Source: Su et al., arXiv 2104.09864.
///
/// Read next: src/layers/rotary.cpp, src/kernels/rotary_rows.cpp.
#pragma once

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// Assignment of the components to pairs.
enum class RotaryLayout {
  /// Components d and d + size / 2 (Llama, GPT-NeoX).
  halves,
  /// Components 2d and 2d + 1 (RoFormer, GPT-J).
  interleaved
};

/// Options for a rotary position embedding.
struct RotaryOptions {
  /// Base of the frequencies, also called theta; finite and at least 1.
  double base = 10000;
  /// Assignment of the components to pairs.
  RotaryLayout layout = RotaryLayout::halves;
  /// The number of components that are rotated, even and at most D. If 0, all D components are rotated, and D must be
  /// even.
  Index size = 0;
  /// Position of row 0 if `positions` is absent: row l then has position first_position + l.
  Index first_position = 0;
  /// Position of each row, (B, L), any strides; may be absent. If present, first_position must be 0.
  TensorView<const Index, 2> positions{};
};

/// Rotates queries or keys according to their positions.
///
/// @code{.unparsed}
/// output[b, h, l, …] = input[b, h, l, …], pair d rotated by angle(position of (b, l), d)
/// @endcode
///
/// @tparam T       float, double or bfloat16.
/// @param input    (B, H, L, D), any strides.
/// @param output   (B, H, L, D), any strides. It may be the same view as input; any other overlap is rejected.
/// @param options  Base, layout, size and positions. Positions must be in the range −2³¹ to 2³¹.
/// @param runtime  Threads, scratch memory and cancellation.
///
/// Writes output.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Reproducibility
/// Multiply-adds are not fused, so results are bit-identical on every instruction set and for any number of threads and
/// any strides. Rows with equal positions are rotated by the same angles.
///
/// @par Error
/// Angles are computed in double: a frequency has an error of at most 0.51 ULP, and its product with the position is
/// rounded. The cosine and sine of this angle have an absolute error of at most 2⁻⁵³ in double. For float and bfloat16,
/// they are then rounded to float. With u = 2⁻²⁴ (double: 2⁻⁵³), a rotated component a · cos − b · sin has an error of
/// at most `3.01 u (|a| + |b|)`, before it is rounded to bfloat16.
///
/// @par Example
/// @code{.cpp}
/// rotary_forward<float>(query, query, {.base = 500000});               // in place
/// @endcode
template <class T>
REGARD_EXPORT void rotary_forward(std::type_identity_t<TensorView<const T, 4>> input, TensorView<T, 4> output,
                                  const RotaryOptions& options = {}, const Runtime& runtime = {});

/// Computes the gradient of a rotary position embedding: the rotation by the opposite angles.
///
/// @code{.unparsed}
/// grad_input[b, h, l, …] = grad_output[b, h, l, …], pair d rotated by −angle(position of (b, l), d)
/// @endcode
///
/// @tparam T           float, double or bfloat16.
/// @param grad_output  (B, H, L, D), any strides.
/// @param grad_input   (B, H, L, D), any strides. It may be the same view as grad_output.
/// @param options      As in the forward call.
/// @param accumulate   Whether the gradient is added to the contents of grad_input instead of overwriting them. The sum
///                     is computed in float or double and rounded once to the type of the view.
/// @param runtime      Threads, scratch memory and cancellation.
///
/// Writes, or adds to, grad_input.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Accuracy and reproducibility
/// The guarantees are the same as for rotary_forward().
///
/// @par Example
/// @code{.cpp}
/// rotary_backward<float>(grad_query, grad_query, {.base = 500000});    // in place
/// @endcode
template <class T>
REGARD_EXPORT void rotary_backward(std::type_identity_t<TensorView<const T, 4>> grad_output,
                                   TensorView<T, 4> grad_input, const RotaryOptions& options = {},
                                   bool accumulate = false, const Runtime& runtime = {});

}  // namespace regard::inline v0
