// SPDX-License-Identifier: Apache-2.0
//
// Which rows layer kernels can read and write in place; other rows are copied to buffers of the compute type.
// Read next: cross_entropy.cpp, embedding.cpp.
#pragma once

#include <cstdint>
#include <type_traits>

#include "regard/tensor.h"

namespace regard::inline v0::internal {

// Whether the elements of a row are contiguous, aligned and of the compute type.
template <class T, class View>
bool has_kernel_rows(const View& view) {
  return std::is_same_v<T, ComputeType<T>> && view.strides[1] == 1 &&
         reinterpret_cast<std::uintptr_t>(view.data) % alignof(T) == 0;
}

}  // namespace regard::inline v0::internal
