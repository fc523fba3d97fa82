// SPDX-License-Identifier: Apache-2.0
/// @file
/// Quantizes the matrices of a checkpoint to int8, or rounds them to float16, and returns a new safetensors file.
///
/// @verbatim
///     matrix W (R, C) with the name "X"
///         int8      scale[r] = max |W[r, :]| / 127           stored as "X.scale", F32, (R)
///                   Q[r, c]  = round(W[r, c] / scale[r])     stored as "X", I8, (R, C)
///         float16   Q[r, c]  = round(W[r, c])                stored as "X", F16, (R, C)
///     other tensors                                          stored as F32, values unchanged
/// @endverbatim
///
/// All arithmetic is in float; round() rounds to nearest, ties to even. If the scale of a row would be below 2^-126,
/// the row's scale and elements are set to 0. Checkpoint::read_float32() reads an I8 element as
/// float(Q[r, c]) · scale[r], rounded once.
///
/// Read next: src/io/rounding.cpp, safetensors.h.
#pragma once

#include <span>

#include "regard/export.h"
#include "regard/io/safetensors.h"
#include "regard/types.h"

namespace regard::inline v0 {

/// Quantizes or rounds the matrices of a checkpoint, and serializes the result as a safetensors file.
///
/// @param checkpoint  The checkpoint to read.
/// @param tensors     The tensors of the checkpoint that the file will contain, in this order. Each is read with
///                    Checkpoint::read_float32().
/// @param type        Element type of the matrices (tensors with two axes) in the file: `int8`, stored as I8 with one
///                    scale per row, or `float16`, stored as F16.
/// @param stop        Stop token, polled while tensors are rounded.
/// @return The bytes of the file. They depend only on the values, not on the machine or the instruction set.
/// @throws DataError        as Checkpoint::read_float32() does, and if an element of a matrix is NaN or ±∞, or too
///                          large in magnitude: at least 65520 for float16, or at least 127 · 2^120 (1.7e38) for int8.
///                          The message names the file, the tensor and the index.
/// @throws InvalidArgument  if `type` is neither `int8` nor `float16`, or if safetensors_header() rejects a name: for
///                          example, a name with ".scale" appended exceeds 512 bytes or is that of another tensor.
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
