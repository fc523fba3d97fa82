// SPDX-License-Identifier: Apache-2.0
//
// The committed files that tests read.
//
//     std::ifstream file(data_path("golden_hashes.txt"));
//
// Read next: data_path.cpp.
#pragma once

#include <string>

namespace regard {

// The path of a file or folder, given relative to tests/.
std::string data_path(const std::string& name);

}  // namespace regard
