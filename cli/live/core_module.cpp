// SPDX-License-Identifier: Apache-2.0
//
// Embeds the file REGARD_CORE_MODULE; see core_module.h.
#include "core_module.h"

#if defined(REGARD_CORE_MODULE)
asm(".pushsection .rodata\n"
    ".balign 16\n"
    ".globl regard_core_module, regard_core_module_end\n"
    ".hidden regard_core_module, regard_core_module_end\n"
    "regard_core_module:\n"
    ".incbin \"" REGARD_CORE_MODULE
    "\"\n"
    "regard_core_module_end:\n"
    ".popsection");
extern "C" __attribute__((visibility("hidden"))) const std::byte regard_core_module[], regard_core_module_end[];
#endif

namespace regard::program {

std::span<const std::byte> core_module() {
#if defined(REGARD_CORE_MODULE)
  return {regard_core_module, regard_core_module_end};
#else
  return {};
#endif
}

}  // namespace regard::program
