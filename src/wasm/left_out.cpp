// SPDX-License-Identifier: Apache-2.0
//
// What a page's module leaves out of the core: attention over unpacked keys, which is faster for few rows and has the
// same bits. Read next: web/core/left_out.cpp, web/core/CMakeLists.txt.
#include <stdexcept>

#include "attention/unpacked_keys.h"

namespace regard::inline v0::internal {

const char* why_packed(const UntypedAttention&) { return "this module always packs"; }

template <class T>
void attend_unpacked(const char*, const ResolvedAttention<T>&, const TypedOutputs<T>&, double, const Runtime&) {
  throw std::logic_error("this function is not part of the module");
}
template decltype(attend_unpacked<float>) attend_unpacked<float>;
template decltype(attend_unpacked<double>) attend_unpacked<double>;

}  // namespace regard::inline v0::internal
