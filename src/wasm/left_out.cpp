// SPDX-License-Identifier: Apache-2.0
//
// What a page's module leaves out of the core: attention over unpacked keys, which is faster for few rows and has the
// same bits. Read next: web/core/left_out.cpp, web/core/CMakeLists.txt.
#include <stdexcept>

#include "attention/unpacked_keys.h"
#include "instantiate.h"

namespace regard::inline v0::internal {

const char* packing_reason(const UntypedAttention&) { return "this module always packs"; }

template <class T>
void attend_unpacked(const char*, const ResolvedAttention<T>&, const TypedOutputs<T>&, double, const Runtime&) {
  throw std::logic_error("this function is not part of the module");
}
REGARD_INSTANTIATE_COMPUTE(attend_unpacked);

}  // namespace regard::inline v0::internal
