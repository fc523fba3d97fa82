// SPDX-License-Identifier: Apache-2.0
//
// Where models lie: `regard pull` puts them there, everything else asks here.
//
//     $REGARD_CACHE, else $XDG_CACHE_HOME/regard, else ~/.cache/regard ── models/minilm/
//
// Read next: pull.cpp.
#pragma once

#include <string>

namespace regard::program {

// Throws std::runtime_error when none of the three variables (HOME is the third) says where.
std::string cache_folder();
std::string minilm_folder();

// Every pinned file is there with its size.
bool minilm_is_whole();

// The folder of the model to use: option, as --model gave it, or, where that is empty, the pulled one.
// Throws std::runtime_error naming `regard pull minilm` where there is none.
std::string model_folder(const std::string& option);

}  // namespace regard::program
