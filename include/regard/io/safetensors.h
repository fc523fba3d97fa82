// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads the files of a pretrained model: tensors (safetensors, one file or shards) and text files (config.json …).
///
/// @verbatim
///     8 bytes: N, little-endian · N bytes: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …}
///     then the data, one tensor after another
/// @endverbatim
///
/// Files are untrusted. The header is read and checked before memory for the data is allocated. Its offsets must cover
/// the data without gaps or overlaps, and the file must end with the last tensor.
///
/// Format: the README of safetensors. This reader is stricter than the original: it accepts no duplicate names and no
/// unknown fields, and requires names of 1 to 512 bytes without control characters, at most 8 axes, extents of at most
/// 2^48, and at most 4096 shards.
///
/// Read next: src/io/safetensors.cpp, src/io/safetensors_file.cpp, src/io/model_folder.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/export.h"
#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// Returns the name of a type in a safetensors header, such as "F64", "BF16" or "BOOL".
///
/// @param type  The type.
/// @return The name.
REGARD_EXPORT std::string_view safetensors_type_name(ElementType type);

/// A tensor as it is stored in a file: contiguous, row-major, little-endian.
struct StoredTensor {
  std::string name;                         ///< Name of the tensor in the header.
  ElementType type = ElementType::float32;  ///< Type of the elements.
  std::vector<Index> shape;                 ///< Extents; empty for a scalar.
  std::span<const std::byte> bytes;         ///< The elements, in memory that the Checkpoint owns.
};

/// A matrix in a file, (rows, columns), whose elements are read as float. Copies share its memory.
///
/// Elements of type I8 are converted to float(element) · (scale of the row) when they are read, rounded to nearest.
struct StoredMatrix {
  std::shared_ptr<const float> values;  ///< The elements, row-major; for a matrix of type I8, one scale per row.
  const std::int8_t* int8 = nullptr;    ///< The elements of a matrix of type I8; nullptr for other types.
  Index columns = 0;                    ///< Number of columns.
  /// Returns an element.
  float operator()(Index row, Index column) const {
    const Index i = row * columns + column;
    return int8 == nullptr ? values.get()[i] : static_cast<float>(int8[i]) * values.get()[row];
  }
};

/// Bytes in memory with shared ownership. Copies share the bytes.
struct SharedBytes {
  std::shared_ptr<const std::byte> first;  ///< The first byte; nullptr if there are no bytes.
  std::size_t count = 0;                   ///< Number of bytes.
  /// Returns the bytes.
  std::span<const std::byte> span() const { return {first.get(), count}; }
};
/// Transfers a byte buffer to shared ownership.
///
/// @param bytes  The bytes.
/// @return The same bytes, without a copy.
REGARD_EXPORT SharedBytes share_bytes(std::vector<std::byte> bytes);

/// Options and limits for reading the files of a model.
struct ModelFileOptions {
  /// Whether to map the file instead of reading it, which takes less memory.
  ///
  /// If another process truncates the file in the meantime, accessing it terminates this process (SIGBUS). If another
  /// process writes to the file, the values change.
  bool map = false;
  /// Whether to accept NaN and ±∞ in floating-point tensors, which are otherwise rejected.
  bool allow_nonfinite = false;
  std::uint64_t max_header_bytes = 100'000'000;  ///< Maximum size of a header, in bytes.
  Index max_tensors = 1 << 20;                   ///< Maximum number of tensors in one file.
  /// Memory that a model may use, in bytes. It is also the limit for reading each JSON text. Defaults to
  /// available_memory_bytes().
  std::optional<std::uint64_t> max_memory_bytes{};
};

/// All tensors of one file, or of all shards in a folder. Copies share the bytes.
///
/// @par Example
/// @code{.cpp}
/// const Checkpoint checkpoint = Checkpoint::read_folder("all-MiniLM-L6-v2");
/// for (const StoredTensor& tensor : checkpoint.tensors()) std::puts(tensor.name.c_str());
/// @endcode
class REGARD_EXPORT Checkpoint {
 public:
  /// Reads one safetensors file.
  ///
  /// @param path     Path of the file.
  /// @param options  Options and limits for reading the file.
  /// @param stop     Stop token, polled while the file is read.
  /// @return The tensors.
  /// @throws DataError  "path: byte N: …" or "path: …" in any of the following cases:
  ///                    - the file cannot be opened, is not a regular file, or changes while it is read
  ///                    - the file violates the format (if it is in fact a zip or gzip archive, a pickle, an HTML page
  ///                      or a Git LFS pointer, the message states this)
  ///                    - an element is NaN or ±∞, and ModelFileOptions::allow_nonfinite is not set
  ///                    - the tensors need more memory than is available (the message states the required and the
  ///                      available size)
  /// @throws Cancelled  if a stop is requested.
  static Checkpoint read_file(const std::string& path, const ModelFileOptions& options = {},
                              const std::stop_token& stop = {});
  /// Reads the tensors of a model folder: model.safetensors or, if there is no such file, the shards that
  /// model.safetensors.index.json names.
  ///
  /// The shards must be in the same folder and contain exactly the tensors that the index assigns to them, each only
  /// once. Symbolic links in the folder are followed.
  ///
  /// @param folder   Path of the folder.
  /// @param options  Options and limits for reading the files.
  /// @param stop     Stop token, polled while the files are read.
  /// @return The tensors of all shards.
  /// @throws DataError  as read_file() does, and if the index does not match the shards.
  /// @throws Cancelled  if a stop is requested.
  static Checkpoint read_folder(const std::string& folder, const ModelFileOptions& options = {},
                                const std::stop_token& stop = {});

  /// Reads a safetensors file that is already in memory. The bytes are not copied, and no file is opened.
  ///
  /// @param bytes    The whole file. The checkpoint and all its copies keep it alive.
  /// @param name     Name of the file for error messages.
  /// @param options  Limits, and whether NaN and ±∞ are accepted.
  /// @param stop     Stop token, polled while the bytes are checked.
  /// @return The tensors.
  /// @throws DataError  as read_file() does for the contents of a file, and if there is not enough memory for the list
  ///                    of tensors.
  /// @throws Cancelled  if a stop is requested.
  static Checkpoint read_memory(SharedBytes bytes, std::string name, const ModelFileOptions& options = {},
                                const std::stop_token& stop = {});

  /// Returns the path of the file or of the index, or the name given to read_memory().
  const std::string& name() const;
  /// Returns all tensors, sorted bytewise by name.
  const std::vector<StoredTensor>& tensors() const;
  /// Finds a tensor by name.
  ///
  /// @param name  The name.
  /// @return The tensor, or nullptr if no tensor has that name. The pointer is valid as long as any copy of the
  ///         checkpoint exists.
  const StoredTensor* find(std::string_view name) const;

  /// Finds the scales of a matrix of type I8: one for each row, in a tensor with the name of the matrix plus ".scale".
  ///
  /// regard/io/rounding.h creates such matrices.
  ///
  /// @param tensor  A tensor of this checkpoint.
  /// @return The scales, of type F32 and shape (rows), or nullptr if the tensor is not a matrix of type I8 or has no
  ///         scales of this type and shape.
  const StoredTensor* find_scales(const StoredTensor& tensor) const;

  /// Converts a tensor to float, row-major: F32 as stored, F16 and BF16 exactly, F64 rounded to nearest, I8 with
  /// scales (find_scales()) as float(element) · scale, rounded to nearest.
  ///
  /// @param tensor  A tensor of this checkpoint.
  /// @param stop    Stop token, polled during the conversion.
  /// @return The elements.
  /// @throws DataError  if the type is neither floating-point nor I8 with scales, if an F64 element is out of range for
  ///                    float, or if a scale is NaN, ±∞ or above 2^120. The message names the file and the tensor.
  /// @throws Cancelled  if a stop is requested.
  std::vector<float> read_float32(const StoredTensor& tensor, const std::stop_token& stop = {}) const;
  /// Same as read_float32(), but an F32 tensor is not copied: the result points into the bytes of the file.
  ///
  /// F32 elements are copied only if their address is not aligned for float. All other types are converted.
  ///
  /// @param tensor  A tensor of this checkpoint.
  /// @param stop    Stop token, polled during the conversion.
  /// @return The first element. The pointer keeps the bytes of the file alive.
  /// @throws DataError  as read_float32() does.
  /// @throws Cancelled  if a stop is requested.
  std::shared_ptr<const float> share_float32(const StoredTensor& tensor, const std::stop_token& stop = {}) const;

  /// Returns a view of a matrix, without converting the matrix as a whole if it is stored as F32 or as I8 with scales.
  ///
  /// Elements of other types are converted, as by share_float32().
  ///
  /// @param tensor  A tensor of this checkpoint with two axes.
  /// @param stop    Stop token, polled during a conversion.
  /// @return The matrix. It keeps the bytes of the file alive.
  /// @throws DataError  as read_float32() does.
  /// @throws Cancelled  if a stop is requested.
  StoredMatrix share_matrix(const StoredTensor& tensor, const std::stop_token& stop = {}) const;

  /// Computes the SHA-256 of the checkpoint.
  ///
  /// @code{.unparsed}
  /// one file   SHA-256 of the file
  /// shards     SHA-256 of the lines "<SHA-256>  <file name>\n" in the order of the names, as printed by
  ///            sha256sum model-*.safetensors | sha256sum
  /// @endcode
  ///
  /// The first call that is not stopped reads every byte, which takes about 0.3 s for 100 MB. Later calls return the
  /// same result.
  ///
  /// @param stop  Stop token, polled while the bytes are read.
  /// @return 64 hex digits.
  /// @throws Cancelled  if a stop is requested.
  std::string sha256(const std::stop_token& stop = {}) const;

 private:
  struct Contents;
  explicit Checkpoint(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}
  std::shared_ptr<const Contents> contents_;
};

/// An entry of a shard index: a tensor and the file that holds it.
struct ShardedTensor {
  std::string tensor;  ///< Name of the tensor.
  std::string file;    ///< Name of the shard, without a path.
};
/// Reads `weight_map` from the text of a model.safetensors.index.json: the shard that holds each tensor.
///
/// @param text              The JSON text.
/// @param source            Name of the text for error messages.
/// @param stop              Stop token, polled while the text is read.
/// @param max_memory_bytes  Memory that reading may use, in bytes; defaults to available_memory_bytes().
/// @return One entry per tensor, in the order of the text.
/// @throws DataError  "source: byte N: …" if the text is not valid JSON, has no weight_map, or names a shard by
///                    anything other than the plain name of a .safetensors file.
///                    "source: needs N bytes of memory; M are available" if there is not enough memory, before any
///                    memory is allocated.
/// @throws Cancelled  if a stop is requested.
REGARD_EXPORT std::vector<ShardedTensor> read_shard_index(std::string_view text, const std::string& source,
                                                          const std::stop_token& stop = {},
                                                          std::optional<std::uint64_t> max_memory_bytes = std::nullopt);

/// Reads a text file from a model folder, such as config.json.
///
/// The file must be a regular file in UTF-8. Opening it never blocks.
///
/// @param folder     Path of the folder.
/// @param file       Name of the file.
/// @param max_bytes  Maximum allowed size of the file, in bytes.
/// @param stop       Stop token, polled while the file is read.
/// @return The text.
/// @throws DataError  if the file cannot be read, is larger than `max_bytes` or is not valid UTF-8. The message states
///                    the path. If the file is in fact a Git LFS pointer or an HTML page, the message states this.
/// @throws Cancelled  if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const std::string config = read_model_text("all-MiniLM-L6-v2", "config.json", std::uint64_t{1} << 20);
/// @endcode
REGARD_EXPORT std::string read_model_text(const std::string& folder, std::string_view file, std::uint64_t max_bytes,
                                          const std::stop_token& stop = {});

}  // namespace regard::inline v0
