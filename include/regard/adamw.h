// SPDX-License-Identifier: Apache-2.0
/// @file
/// AdamW, the optimizer with adaptive step sizes and decoupled weight decay, as a plain function on arrays.
///
/// @verbatim
/// gradients ──▶ first moment, second moment ──▶ parameters          one pass, 28 bytes of memory traffic per float
/// @endverbatim
///
/// Read next: src/layers/adamw.cpp, train/optimizer.h.
#pragma once

#include <span>
#include <type_traits>

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// Options for an AdamW step.
struct AdamwOptions {
  double learning_rate = 1e-3;  ///< Learning rate of this step, at least 0.
  double beta1 = 0.9;           ///< Decay rate of the first moment, in [0, 1).
  double beta2 = 0.999;         ///< Decay rate of the second moment, in [0, 1).
  double epsilon = 1e-8;        ///< Added to the square root of the second moment; above 0.
  double weight_decay = 0.01;   ///< Decoupled decay, at least 0: a step subtracts learning_rate · weight_decay · p.
  double gradient_scale = 1;    ///< Factor applied to the gradients, for example the result of clip_factor().
  Index step = 0;               ///< Step number for the bias correction, starting at 1. Required.
};

/// Performs an AdamW step.
///
/// @code{.unparsed}
/// g = gradient_scale · gradient
/// m = m + (1 − beta1) · (g − m)                                                 first moment
/// v = beta2 · v + (1 − beta2) · g²                                              second moment
/// p = (1 − learning_rate · weight_decay) · p
///     − learning_rate / (1 − beta1^step) · m / (√v / √(1 − beta2^step) + epsilon)
/// @endcode
///
/// @tparam T             float or double.
/// @param parameters     p, (n).
/// @param gradients      Gradients, (n).
/// @param first_moment   m, (n).
/// @param second_moment  v, (n).
/// @param options        Learning rate, decay rates and step number.
/// @param runtime        Threads and cancellation.
///
/// Updates parameters and both moments in one pass. A moment whose magnitude falls below the smallest normal number is
/// stored as 0, because arithmetic on subnormal numbers is several times slower.
///
/// @throws InvalidArgument  before any work is done, if sizes differ, arrays overlap or an option is out of range.
/// @throws Cancelled        if a stop is requested. Parts of the arrays may already have been updated.
///
/// @par Reproducibility
/// The factors are computed in double and rounded once to T. Each element is computed by a fixed sequence of operations
/// in T (additions, multiplications, one division and one square root), none of them fused. Results are therefore
/// bit-identical for any number of threads and every instruction set.
///
/// @par Example
/// @code{.cpp}
/// adamw_step<float>(parameters, gradients, first_moment, second_moment, {.learning_rate = 1e-3, .step = step});
/// @endcode
///
/// Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019; the order of operations follows
/// torch.optim.AdamW.
template <class T>
REGARD_EXPORT void adamw_step(std::span<T> parameters, std::type_identity_t<std::span<const T>> gradients,
                              std::type_identity_t<std::span<T>> first_moment,
                              std::type_identity_t<std::span<T>> second_moment, const AdamwOptions& options,
                              const Runtime& runtime = {});

}  // namespace regard::inline v0
