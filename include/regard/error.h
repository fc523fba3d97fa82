// SPDX-License-Identifier: Apache-2.0
//
// What Regard throws. Each type is also the standard one that suits it, so that who catches std::invalid_argument or
// std::exception need not know these.
//
//   thrown             code()              standard type            when
//   InvalidArgument    invalid_argument    std::invalid_argument    the caller's mistake; nothing was written
//   Cancelled          cancelled           std::runtime_error       a stop was requested
//   OutOfPages         out_of_pages        std::runtime_error       a KvCache has no page left; it has not changed
//   CacheInUse         cache_in_use        std::logic_error         another thread uses the KvCache; it has not changed
//   DataError          data                std::runtime_error       a file or a block of memory cannot be read, or does
//                                                                   not hold what it should; names the place
//   std::bad_alloc     out_of_memory                                memory cannot be had
//
// The C interface returns the same codes (enum regard_status). Read next: runtime.h.
#pragma once

#include <cstdint>
#include <exception>
#include <stdexcept>

#include "regard/export.h"

namespace regard::inline v0 {

// Numbers never change.
enum class ErrorCode : std::int32_t {
  invalid_argument = 1,
  out_of_memory = 2,
  cancelled = 3,
  internal = 4,  // none of the others: a mistake in Regard, or an exception of the caller's own
  out_of_pages = 5,
  cache_in_use = 6,
  data = 7
};

class REGARD_EXPORT Error {
 public:
  virtual ~Error();
  virtual ErrorCode code() const noexcept = 0;
  // What happened: operator or place, what is there, what is expected.
  virtual const char* what() const noexcept = 0;

 protected:
  Error() = default;
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;
};

class REGARD_EXPORT InvalidArgument : public std::invalid_argument, public Error {
 public:
  using std::invalid_argument::invalid_argument;
  ~InvalidArgument() override;
  ErrorCode code() const noexcept override { return ErrorCode::invalid_argument; }
  const char* what() const noexcept override { return std::invalid_argument::what(); }
};

// The outputs of the call are unspecified, its inputs untouched.
class REGARD_EXPORT Cancelled : public std::runtime_error, public Error {
 public:
  using std::runtime_error::runtime_error;
  ~Cancelled() override;
  ErrorCode code() const noexcept override { return ErrorCode::cancelled; }
  const char* what() const noexcept override { return std::runtime_error::what(); }
};

class REGARD_EXPORT OutOfPages : public std::runtime_error, public Error {
 public:
  using std::runtime_error::runtime_error;
  ~OutOfPages() override;
  ErrorCode code() const noexcept override { return ErrorCode::out_of_pages; }
  const char* what() const noexcept override { return std::runtime_error::what(); }
};

class REGARD_EXPORT CacheInUse : public std::logic_error, public Error {
 public:
  using std::logic_error::logic_error;
  ~CacheInUse() override;
  ErrorCode code() const noexcept override { return ErrorCode::cache_in_use; }
  const char* what() const noexcept override { return std::logic_error::what(); }
};

class REGARD_EXPORT DataError : public std::runtime_error, public Error {
 public:
  using std::runtime_error::runtime_error;
  ~DataError() override;
  ErrorCode code() const noexcept override { return ErrorCode::data; }
  const char* what() const noexcept override { return std::runtime_error::what(); }
};

// The code of anything that was caught.
REGARD_EXPORT ErrorCode error_code(const std::exception& error) noexcept;

}  // namespace regard::inline v0
