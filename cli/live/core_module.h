// SPDX-License-Identifier: Apache-2.0
//
// The core of live pages, a WebAssembly module that the build embeds in the program (cmake/live.cmake).
// Read next: core_module.cpp, web/core/core.cpp.
#pragma once

#include <cstddef>
#include <span>

namespace regard::program {

// Empty if the program was built without it.
std::span<const std::byte> core_module();

}  // namespace regard::program
