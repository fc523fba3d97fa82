// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts elements between float and the 16-bit types.
///
/// Read next: types.h, src/layers/convert.cpp.
#pragma once

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// Converts every element to the type of the output.
///
/// @code{.unparsed}
/// output[r, e] = round(input[r, e])                                    to nearest even; exact for a wider type
/// @endcode
///
/// @param input    (R, E), any strides; float, bfloat16 or float16.
/// @param output   (R, E), any strides; float, bfloat16 or float16. It must not overlap input.
/// @param runtime  Threads, scratch memory and cancellation.
///
/// Writes output.
///
/// @throws InvalidArgument  before any work is done, if an argument is invalid.
/// @throws std::bad_alloc   if memory cannot be allocated.
/// @throws Cancelled        if a stop is requested.
///
/// @par Special values
/// Subnormal values are preserved, and values that round beyond the largest finite value of the output type become ±∞.
/// NaN stays NaN. 16-bit inputs are converted to float exactly.
///
/// @par Example
/// @code{.cpp}
/// Tensor<bfloat16, 2> rounded(weight.shape());
/// convert(weight, rounded);
/// @endcode
REGARD_EXPORT void convert(const InputView<2>& input, const OutputView<2>& output, const Runtime& runtime = {});

}  // namespace regard::inline v0
