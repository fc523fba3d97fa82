// SPDX-License-Identifier: Apache-2.0
/// @file
/// The cross-entropy loss for classification and language models, fused with softmax, and its gradient.
///
/// @code{.unparsed}
/// loss(r)           = ln Σ_v exp(logits[r, v]) − logits[r, targets[r]]
/// loss              = Σ_r loss(r) / count                                     without the division for Reduction::sum
/// grad_logits[r, v] = grad_scale · (softmax(logits[r])[v] − [v = targets[r]]) / count
/// @endcode
///
/// - Extents: R rows, for example the positions of all sequences of a batch; V classes, for example the vocabulary.
/// - A row whose target is the ignored target contributes nothing: its loss and its gradient are 0. count is the number
///   of remaining rows.
/// - The gradient may overwrite the logits, which are the largest tensor of a small language model.
///
/// Source: Bishop, "Pattern recognition and machine learning", 2006, equations 4.106 to 4.109.
///
/// Read next: src/layers/cross_entropy.cpp.
#pragma once

#include <type_traits>

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// Reduction of the row losses to one loss.
enum class Reduction {
  /// The sum divided by the number of targets that are not ignored.
  mean,
  /// The sum.
  sum
};

/// Options for cross_entropy_forward().
struct CrossEntropyOptions {
  /// Rows with this target are ignored. A value from 0 to V − 1 excludes rows whose target is that class.
  Index ignored_target = -1;
  /// Reduction of the row losses to one loss. With Reduction::mean, the gradients are also divided by the count.
  Reduction reduction = Reduction::mean;
  /// Factor applied to grad_logits, for example ∂L / ∂loss. It does not change the loss.
  double grad_scale = 1;
  /// The divisor of Reduction::mean, for a batch split into several calls: the number of targets in the whole batch
  /// that are not ignored. If 0, the number of such targets in this call is used.
  Index count = 0;
  /// Number of rows per group; losses are summed separately over each group. If 0, all rows form one group.
  ///
  /// Rows 0 … rows_per_group − 1 are the first group, and so on. The sum of each group is divided by the count, and the
  /// quotients are added in order. The loss of a batch in one call is therefore bit-identical to the sum of the losses
  /// of several calls, one for each group, that set CrossEntropyOptions::count.
  Index rows_per_group = 0;
};

/// Views that cross_entropy_forward() writes. An output whose view is absent is not written.
///
/// An output must not overlap an input or another output, except that grad_logits may be the same view as logits.
///
/// @tparam T  float, double or bfloat16.
template <class T>
struct CrossEntropyOutputs {
  /// Loss of each row, (R), 0 where the target is ignored.
  TensorView<ComputeType<T>, 1> row_loss{};
  /// Gradient of the loss with respect to logits, (R, V).
  TensorView<T, 2> grad_logits{};
};

/// Result of cross_entropy_forward().
struct CrossEntropyResult {
  /// The mean or the sum of the row losses; 0 if every target is ignored, or if R = 0.
  double loss = 0;
  /// The number of targets in the call that are not ignored.
  Index count = 0;
};

/// Computes the cross-entropy loss and, if requested, its gradient.
///
/// The formulas are at the top of this file.
///
/// @tparam T       float, double or bfloat16.
/// @param logits   (R, V), any strides. V is at least 1, unless R is 0.
/// @param targets  (R), any stride: classes from 0 to V − 1, or CrossEntropyOptions::ignored_target.
/// @param outputs  Views to write.
/// @param options  Ignored target, reduction, and scale of the gradient.
/// @param runtime  Threads, scratch memory and cancellation.
/// @return The loss and the number of targets that are not ignored. Both are 0 in a dry run (plan.h).
///
/// Writes every view given in outputs.
///
/// Non-finite values:
/// - A logit of −∞ denotes an impossible class: its softmax and its gradient are 0. If it is the target, the loss is +∞
///   and the gradients follow the formula.
/// - The softmax of a row that contains NaN or +∞, or only −∞, is undefined: the loss and the gradients of the row are
///   NaN. Ignored rows are not read.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid. For a target that is out of range, the
///                          message states its row and its value.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Accuracy and reproducibility
/// The argument of each exponential `exp(logit − max)` is rounded, and the result is within 1 ULP of the exponential of
/// the rounded argument. The exponentials are summed in double, in 16 lanes (class v in lane v mod 16), which are then
/// reduced by repeatedly adding one half of the lanes to the other. Row losses are added in order, in double. Results
/// are bit-identical for any number of threads and every instruction set that has fused multiply-add.
/// @par
/// bfloat16 logits are converted to float, and a bfloat16 gradient is rounded once. Before that rounding, with u = 2⁻²⁴
/// (double: 2⁻⁵³) and p = softmax(logits[r])[v] · |grad_scale| / count, the errors are at most
/// @code{.unparsed}
/// loss(r)            u · (2 + ln V) + 2⁻⁵³ · (V/16 + 12) · (1 + loss(r))
/// grad_logits[r, v]  u · |grad_logits[r, v]| + (u · (6 + ln V + max − logit) + 2⁻⁵³ · (V/16 + 12)) · p
/// @endcode
/// plus an additional `2⁻⁵¹ · |grad_scale| / count` for the gradient of the target's logit.
///
/// @par Example
/// @code{.cpp}
/// const double loss = cross_entropy_forward<float>(logits, targets, {.grad_logits = logits}).loss;  // in place
/// @endcode
template <class T>
REGARD_EXPORT CrossEntropyResult cross_entropy_forward(std::type_identity_t<TensorView<const T, 2>> logits,
                                                       TensorView<const Index, 1> targets,
                                                       const std::type_identity_t<CrossEntropyOutputs<T>>& outputs = {},
                                                       const CrossEntropyOptions& options = {},
                                                       const Runtime& runtime = {});

}  // namespace regard::inline v0
