// SPDX-License-Identifier: Apache-2.0
//
// Where the explanation, and the writing of it as a page, JSON or text, looks whether it is to stop.
// Read next: json_text.h, table.h.
#pragma once

#include <stop_token>

#include "regard/runtime.h"

namespace regard {
inline namespace v0 {

// Throws cancelled where a stop was requested.
inline void poll(const std::stop_token& stop) {
  if (stop.stop_requested()) throw cancelled("the explanation was stopped");
}

}  // namespace v0
}  // namespace regard
