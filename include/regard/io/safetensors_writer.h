// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes tensors in the safetensors format, to a file or to memory. safetensors.h reads such files and describes the
/// format.
///
/// Read next: src/io/safetensors_writer.cpp, output_file.h.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "regard/export.h"
#include "regard/io/output_file.h"
#include "regard/io/safetensors.h"

namespace regard::inline v0 {

/// A metadata entry of a safetensors file: its key and its value.
using SafetensorsMetadata = std::pair<std::string, std::string>;

/// Formats the beginning of a safetensors file: the header length, followed by the header itself.
///
/// The header is padded with spaces to a multiple of 8 bytes. The data follow it in the order of the header: tensors
/// with larger elements come first, so that every element is aligned, and tensors with elements of the same size keep
/// their order.
///
/// @param tensors   Names, types, shapes and bytes. Only the number of bytes is used, not their values.
/// @param metadata  Entries of `__metadata__`; may be empty.
/// @return The bytes.
/// @throws InvalidArgument  if Checkpoint::read_file() would reject the file: a name that occurs twice, is empty, is
///                          longer than 512 bytes, is not valid UTF-8 or contains a control character; more than 8
///                          axes; a number of bytes that does not match type and shape.
REGARD_EXPORT std::string safetensors_header(std::span<const StoredTensor> tensors,
                                             std::span<const SafetensorsMetadata> metadata = {});

/// Formats a safetensors file in memory.
///
/// @param tensors   The tensors.
/// @param metadata  Entries of `__metadata__`; may be empty.
/// @param stop      Stop token, polled while the data are copied.
/// @return The bytes of the file.
/// @throws InvalidArgument  as safetensors_header() does.
/// @throws Cancelled        if a stop is requested.
REGARD_EXPORT std::vector<std::byte> format_safetensors(std::span<const StoredTensor> tensors,
                                                        std::span<const SafetensorsMetadata> metadata = {},
                                                        const std::stop_token& stop = {});

/// Writes the contents of a safetensors file directly from the tensors, without copying them.
///
/// @param file      The file.
/// @param tensors   The tensors.
/// @param metadata  Entries of `__metadata__`; may be empty.
/// @param stop      Stop token, polled while the data are written.
/// @throws InvalidArgument  as safetensors_header() does, before anything is written.
/// @throws DataError        if the file cannot be written. The message states the path and the reason.
/// @throws Cancelled        if a stop is requested.
REGARD_EXPORT void write_safetensors(NewFile& file, std::span<const StoredTensor> tensors,
                                     std::span<const SafetensorsMetadata> metadata = {},
                                     const std::stop_token& stop = {});

/// Writes a safetensors file atomically (AtomicFile), without copying the tensors.
///
/// @param path      Path of the file.
/// @param tensors   The tensors.
/// @param metadata  Entries of `__metadata__`; may be empty.
/// @param stop      Stop token, polled while the data are written.
/// @throws InvalidArgument  as safetensors_header() does, before the file is created.
/// @throws DataError        if the file cannot be written. The message states the path and the reason.
/// @throws Cancelled        if a stop is requested. No file is left behind.
///
/// @par Example
/// @code{.cpp}
/// const StoredTensor tensor{"weight", ElementType::float32, {2, 3}, std::as_bytes(std::span(weight))};
/// write_safetensors("model.safetensors", {&tensor, 1}, {});
/// @endcode
REGARD_EXPORT void write_safetensors(const std::string& path, std::span<const StoredTensor> tensors,
                                     std::span<const SafetensorsMetadata> metadata = {},
                                     const std::stop_token& stop = {});

}  // namespace regard::inline v0
