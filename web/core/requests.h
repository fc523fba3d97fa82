// SPDX-License-Identifier: Apache-2.0
//
// What the exports of a WebAssembly module (exports.cpp) and its answers (core.cpp, tests/wasm/checks.cpp) share.
// Read next: exports.cpp.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "regard/io/safetensors.h"

namespace regard {

// The files that JavaScript has added, by name. A request may take them out.
std::map<std::string, SharedBytes, std::less<>>& added_files();

// The arrays of the latest answer, which its text numbers.
std::vector<std::vector<std::byte>>& answer_arrays();

// The answer to one line of JSON, which a payload may follow.
std::string answer_to(std::string_view request);

}  // namespace regard
