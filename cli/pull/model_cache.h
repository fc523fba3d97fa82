// SPDX-License-Identifier: Apache-2.0
//
// The location of models: `regard pull` stores them there, and all other commands find them with these functions.
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

// Throws std::runtime_error if none of the three variables (the third is HOME) is set.
std::string cache_folder();
std::string minilm_folder();

// Whether every pinned file exists with its size. The contents are not read, which would take part of a second.
bool minilm_is_whole();
// Reads every pinned file. Returns the first one that is missing or has a different size or SHA-256, as
// "PATH: how it differs". Calls took(number of bytes) after each piece.
std::optional<std::string> minilm_difference(const std::function<void(std::size_t)>& took);

inline constexpr const char* kPulledModel = "minilm";
// The folder of the model to use: the value of --model, or, if that is empty or kPulledModel, the pulled model.
// Throws std::runtime_error naming `regard pull minilm` if there is none.
std::string model_folder(const std::string& option);

}  // namespace regard::program
