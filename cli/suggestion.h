// SPDX-License-Identifier: Apache-2.0
//
// What a misspelled option or subcommand was probably meant to be. Read next: cli/main.cpp.
#pragma once

#include <string>
#include <vector>

namespace regard::program {

// " (did you mean X?)" for the name that the word resembles most, or "" if it resembles none.
std::string suggestion(const std::string& word, const std::vector<std::string>& names);

}  // namespace regard::program
