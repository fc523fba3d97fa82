// SPDX-License-Identifier: Apache-2.0
//
// Where long work on models and texts looks whether it is to stop.
#pragma once

#include <string>
#include <string_view>

#include "regard/runtime.h"

namespace regard {
inline namespace v0 {
namespace internal {

// Throws cancelled, naming the operation, where Runtime::stop was requested.
inline void poll(std::string_view operation, const Runtime& runtime) {
  if (runtime.stop.stop_requested()) throw cancelled(std::string(operation) + " was stopped");
}

}  // namespace internal
}  // namespace v0
}  // namespace regard
