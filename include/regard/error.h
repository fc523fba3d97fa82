// SPDX-License-Identifier: Apache-2.0
/// @file
/// The exceptions that Regard throws. Each also derives from the matching standard exception, so code that catches
/// `std::invalid_argument` or `std::exception` does not need to know these types.
///
/// @verbatim
/// thrown             code()              standard type            when
/// InvalidArgument    invalid_argument    std::invalid_argument    an argument is invalid; nothing was written
/// Cancelled          cancelled           std::runtime_error       a stop was requested
/// OutOfPages         out_of_pages        std::runtime_error       a KvCache has too few free pages; it is unchanged
/// CacheInUse         cache_in_use        std::logic_error         another thread is using the KvCache; it is unchanged
/// DataError          data                std::runtime_error       a file or a block of memory cannot be read, or its
///                                                                 content is invalid; the message states the position
/// RankError          rank_failed         std::runtime_error       another rank of a distributed call has failed
/// std::bad_alloc     out_of_memory       -                        out of memory
/// @endverbatim
///
/// The C interface returns the same codes (enum `regard_status`). Contract: docs/reference/semantics.md, section 6.
///
/// Read next: runtime.h.
#pragma once

#include <cstdint>
#include <exception>
#include <stdexcept>

#include "regard/export.h"

namespace regard::inline v0 {

/// The kind of an error. The values never change; `regard_status` in the C interface has the same values.
enum class ErrorCode : std::int32_t {
  invalid_argument = 1,  ///< An argument is invalid. Nothing was written.
  out_of_memory = 2,     ///< Memory could not be allocated.
  cancelled = 3,         ///< A stop was requested.
  internal = 4,          ///< Any other error: an operating system failure, a bug in Regard, or a caller's exception.
  out_of_pages = 5,      ///< A KvCache has too few free pages. The cache has not changed.
  cache_in_use = 6,      ///< Another thread is using the KvCache. The cache has not changed.
  data = 7,              ///< A file or a block of memory cannot be read, or its content is not valid.
  rank_failed = 8        ///< Another rank of a distributed call has failed.
};

/// The common base of all exceptions listed above, for code that needs the ErrorCode of a caught exception.
///
/// It does not derive from `std::exception`; every class derived from it does.
///
/// @par Example
/// @code{.cpp}
/// try {
///   attention_forward(query, key, value, {.context = context});
/// } catch (const Error& error) {
///   std::puts(error.what());
///   return static_cast<int>(error.code());
/// }
/// @endcode
class REGARD_EXPORT Error {
 public:
  /// Destroys the exception.
  virtual ~Error();
  /// Returns the code of this type of exception.
  virtual ErrorCode code() const noexcept = 0;
  /// Describes the error: the operator or the position in the data, the value found, and the requirement.
  ///
  /// @return A string that is valid as long as the exception exists.
  virtual const char* what() const noexcept = 0;

 protected:
  /// For derived classes only.
  Error() = default;
  /// For derived classes only.
  Error(const Error&) = default;
  /// For derived classes only.
  Error& operator=(const Error&) = default;
};

/// An argument is invalid: for example, a wrong shape, a wrong type or an option out of range. Nothing was written.
class REGARD_EXPORT InvalidArgument : public std::invalid_argument, public Error {
 public:
  /// Creates the exception from its message, as `std::invalid_argument` does.
  using std::invalid_argument::invalid_argument;
  /// Destroys the exception.
  ~InvalidArgument() override;
  /// @copydoc Error::code
  ErrorCode code() const noexcept override { return ErrorCode::invalid_argument; }
  /// @copydoc Error::what
  const char* what() const noexcept override { return std::invalid_argument::what(); }
};

/// A stop was requested. The outputs of the call are unspecified; its inputs are untouched.
class REGARD_EXPORT Cancelled : public std::runtime_error, public Error {
 public:
  /// Creates the exception from its message, as `std::runtime_error` does.
  using std::runtime_error::runtime_error;
  /// Destroys the exception.
  ~Cancelled() override;
  /// @copydoc Error::code
  ErrorCode code() const noexcept override { return ErrorCode::cancelled; }
  /// @copydoc Error::what
  const char* what() const noexcept override { return std::runtime_error::what(); }
};

/// A KvCache has too few free pages. The cache has not changed.
class REGARD_EXPORT OutOfPages : public std::runtime_error, public Error {
 public:
  /// Creates the exception from its message, as `std::runtime_error` does.
  using std::runtime_error::runtime_error;
  /// Destroys the exception.
  ~OutOfPages() override;
  /// @copydoc Error::code
  ErrorCode code() const noexcept override { return ErrorCode::out_of_pages; }
  /// @copydoc Error::what
  const char* what() const noexcept override { return std::runtime_error::what(); }
};

/// Another thread is using the KvCache. The cache has not changed.
class REGARD_EXPORT CacheInUse : public std::logic_error, public Error {
 public:
  /// Creates the exception from its message, as `std::logic_error` does.
  using std::logic_error::logic_error;
  /// Destroys the exception.
  ~CacheInUse() override;
  /// @copydoc Error::code
  ErrorCode code() const noexcept override { return ErrorCode::cache_in_use; }
  /// @copydoc Error::what
  const char* what() const noexcept override { return std::logic_error::what(); }
};

/// A file or a block of memory cannot be read, or its content is not valid. The message states the position.
class REGARD_EXPORT DataError : public std::runtime_error, public Error {
 public:
  /// Creates the exception from its message, as `std::runtime_error` does.
  using std::runtime_error::runtime_error;
  /// Destroys the exception.
  ~DataError() override;
  /// @copydoc Error::code
  ErrorCode code() const noexcept override { return ErrorCode::data; }
  /// @copydoc Error::what
  const char* what() const noexcept override { return std::runtime_error::what(); }
};

/// Returns the code of a caught exception, whether or not it is one of Regard's.
///
/// @param error  The exception.
/// @return The exception's own code if it is an Error. Otherwise `out_of_memory` for `std::bad_alloc` and
///         `std::length_error`, `invalid_argument` for `std::invalid_argument`, and `internal` for everything else.
REGARD_EXPORT ErrorCode error_code(const std::exception& error) noexcept;

}  // namespace regard::inline v0
