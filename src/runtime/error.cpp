// SPDX-License-Identifier: Apache-2.0
//
// The error types' destructors, which anchor their type information in this library, and error_code.
#include "regard/error.h"

#include <new>

namespace regard::inline v0 {

Error::~Error() = default;
InvalidArgument::~InvalidArgument() = default;
Cancelled::~Cancelled() = default;
OutOfPages::~OutOfPages() = default;
CacheInUse::~CacheInUse() = default;
DataError::~DataError() = default;

ErrorCode error_code(const std::exception& error) noexcept {
  if (const auto* const ours = dynamic_cast<const Error*>(&error)) return ours->code();
  // A vector that exceeds the address space throws std::length_error.
  if (dynamic_cast<const std::bad_alloc*>(&error) || dynamic_cast<const std::length_error*>(&error))
    return ErrorCode::out_of_memory;
  if (dynamic_cast<const std::invalid_argument*>(&error)) return ErrorCode::invalid_argument;
  return ErrorCode::internal;
}

}  // namespace regard::inline v0
