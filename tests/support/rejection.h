// SPDX-License-Identifier: Apache-2.0
//
// The message with which a call is rejected, for every test of an error text:
//
//     EXPECT_EQ(rejection([&] { encode(model, ids); }), "encode: 41 tokens; this model has places for 40");
#pragma once

#include <concepts>
#include <stdexcept>
#include <string>

namespace regard {

// The message of the Error that the call throws, or "accepted". Errors of other types propagate to the test.
template <class Error = std::invalid_argument, std::invocable Call>
std::string rejection(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace regard
