// SPDX-License-Identifier: Apache-2.0
//
// What a call is rejected with, for every test of an error's text:
//
//     EXPECT_EQ(rejection([&] { encode(model, ids); }), "encode: 41 tokens; this model has places for 40");
#pragma once

#include <concepts>
#include <stdexcept>
#include <string>

namespace regard {

// The message of the Error that the call throws, or "accepted". An error of another type goes on to the test.
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
