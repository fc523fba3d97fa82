// SPDX-License-Identifier: Apache-2.0
//
// The path of the clone is compiled into this file only, so that the compiler cache finds the tests that another clone
// has compiled.
// Read next: data_path.h.
#include "data_path.h"

namespace regard {

std::string data_path(const std::string& name) { return REGARD_TESTS_FOLDER "/" + name; }

}  // namespace regard
