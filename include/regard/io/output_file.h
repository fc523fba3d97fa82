// SPDX-License-Identifier: Apache-2.0
/// @file
/// Crash-safe files: written under a temporary name, flushed to disk, and then renamed.
///
/// @verbatim
///     create NAME.temporary ── write ── fsync ── close ── rename to NAME ── fsync of the folder
/// @endverbatim
///
/// Even if the process is interrupted at any moment, NAME is either the previous file or the complete new one.
///
/// Read next: src/io/output_file.cpp.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "regard/export.h"

namespace regard::inline v0 {

/// A newly created file that is written sequentially.
///
/// Every failure throws DataError with the message "NAME: cannot be written: REASON". The file is left in place:
/// removing an incomplete file is up to the caller; see AtomicFile.
class REGARD_EXPORT NewFile {
 public:
  /// Creates an empty file.
  ///
  /// @param path  Path of the file.
  /// @param name  Name of the file for error messages; if empty, the path is used.
  /// @return The file, or std::nullopt if a file with that name already exists.
  /// @throws DataError  if the file cannot be created.
  static std::optional<NewFile> create(const std::string& path, std::string name = {});
  ~NewFile();                                    ///< Closes the file without flushing it to disk.
  NewFile(NewFile&&) noexcept;                   ///< Moves the file. The moved-from object can only be destroyed.
  NewFile& operator=(NewFile&& other) noexcept;  ///< Moves the file. The moved-from object can only be destroyed.

  /// Appends bytes.
  ///
  /// @param bytes  The bytes; may be empty.
  /// @throws DataError  if the bytes cannot be written, for example because the disk is full.
  void write(std::span<const std::byte> bytes);
  /// Appends text.
  ///
  /// @param text  The text.
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Sets the permissions of the file.
  ///
  /// @param mode  The permission bits, as for chmod(). Failure is ignored, because some file systems do not support
  ///              permissions.
  void set_permissions(unsigned mode);
  /// Flushes the file to disk and closes it.
  ///
  /// @throws DataError  if this fails.
  void close();

 private:
  NewFile(int descriptor, std::string name) : descriptor_(descriptor), name_(std::move(name)) {}

  int descriptor_ = -1;
  std::string name_;
};

/// A file that is written atomically.
///
/// Its contents are written to a temporary file in the same folder. If a file with that name already exists, it is
/// replaced and its permissions are kept. If the name is a symbolic link, its target is replaced.
///
/// Every failure throws DataError with the path and the reason.
///
/// @par Example
/// @code{.cpp}
/// AtomicFile file("loss.csv");
/// file.write("step,loss\n");
/// file.commit();
/// @endcode
class REGARD_EXPORT AtomicFile {
 public:
  /// Creates the temporary file.
  ///
  /// @param path  Path of the final file.
  /// @throws DataError  if the path exists and is not a regular file, or if the temporary file cannot be created.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();  ///< Removes the temporary file, unless commit() has renamed it.
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends bytes.
  ///
  /// @param bytes  The bytes; may be empty.
  /// @throws DataError  if the bytes cannot be written.
  void write(std::span<const std::byte> bytes) { file_->write(bytes); }
  /// Appends text.
  ///
  /// @param text  The text.
  void write(std::string_view text) { file_->write(text); }
  /// Flushes the file to disk, renames it, and flushes the folder to disk. This function may be called only once.
  ///
  /// @throws DataError  if this fails.
  void commit();

 private:
  std::string name_;       // as given
  std::string target_;     // with symbolic links followed
  std::string temporary_;  // empty once it has been renamed
  std::optional<NewFile> file_;
};

/// Flushes the entries of a folder to disk, that is, the names of the files that it contains.
///
/// The function does nothing on file systems that do not support this.
///
/// @param path  Path of the folder, or empty for the current folder.
/// @throws DataError  if the folder cannot be opened, or if writing fails.
REGARD_EXPORT void sync_folder(const std::string& path);

}  // namespace regard::inline v0
