// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rounds the matrices of a checkpoint to 8 or 16 bits. The result is a new safetensors file.
///
/// @verbatim
///     matrix X (R, C)   int8      X.scale[r] = max |X[r, :]| / 127             F32, (R)
///                                 X[r, c]    = round(X[r, c] / X.scale[r])     I8,  (R, C)
///                       float16   X[r, c]    = round(X[r, c])                  F16, (R, C)
///     all others        F32, unchanged
/// @endverbatim
///
/// All arithmetic is in float; round() rounds to nearest, ties to even. If the scale of a row would be below 2^-126,
/// the row's scale and elements are 0. Checkpoint::read_float32() reads an I8 element as float(X[r, c]) · X.scale[r],
/// rounded once.
///
/// Read next: src/io/rounding.cpp, safetensors.h.
#pragma once

#include <span>

#include "regard/export.h"
#include "regard/io/safetensors.h"
#include "regard/types.h"

namespace regard::inline v0 {

/// Rounds matrices, and formats the result as a safetensors file.
///
/// @param checkpoint  The checkpoint.
/// @param tensors     The tensors of the checkpoint that the file will contain, in this order. Each is read with
///                    Checkpoint::read_float32().
/// @param type        Type of the elements of matrices, that is, tensors with two axes: `int8`, which is I8 with one
///                    scale per row, or `float16`, which is F16.
/// @param stop        Stop token, polled while tensors are rounded.
/// @return The bytes of the file. They depend only on the values, not on the machine or the instruction set.
/// @throws DataError        as Checkpoint::read_float32() does, and if an element of a matrix is NaN or ±∞, or too
///                          large: 65520 or more for float16, 127 · 2^120 (1.7e38) or more for int8. The message names
///                          the file, the tensor and the index.
/// @throws InvalidArgument  if `type` is neither `int8` nor `float16`, and as safetensors_header() does: a name with
///                          ".scale" appended is longer than 512 bytes or is the name of another tensor.
/// @throws Cancelled        if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const Checkpoint checkpoint = Checkpoint::read_folder("all-MiniLM-L6-v2");
/// const StoredTensor* table = checkpoint.find("embeddings.word_embeddings.weight");
/// const SharedBytes file = round_tensors(checkpoint, {&table, 1}, ElementType::int8);
/// const Checkpoint rounded = Checkpoint::read_memory(file, "word embeddings");
/// @endcode
REGARD_EXPORT SharedBytes round_tensors(const Checkpoint& checkpoint, std::span<const StoredTensor* const> tensors,
                                        ElementType type, const std::stop_token& stop = {});

}  // namespace regard::inline v0
