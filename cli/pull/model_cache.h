// SPDX-License-Identifier: Apache-2.0
//
// Where models lie: `regard pull` puts them there, everything else asks here.
//
//     $REGARD_CACHE, else $XDG_CACHE_HOME/regard, else ~/.cache/regard ── models/minilm/
//
// Read next: pull.cpp.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace regard::program {

// Throws std::runtime_error when none of the three variables (HOME is the third) says where.
std::string cache_folder();
std::string minilm_folder();

// Every pinned file is there with its size. The contents are not read: that takes part of a second.
bool minilm_is_whole();
// Reads every pinned file: the first that is missing or has another size or SHA-256, as "PATH: what is wrong with it".
// Calls took(number of bytes) after each piece.
std::optional<std::string> minilm_difference(const std::function<void(std::size_t)>& took);

// The folder of the model to use: option, as --model gave it, or, where that is empty, the pulled one.
// Throws std::runtime_error naming `regard pull minilm` where there is none.
std::string model_folder(const std::string& option);

}  // namespace regard::program
