// SPDX-License-Identifier: Apache-2.0
//
// Reads and copies elements of views. They may be misaligned for their type, so they are always accessed as bytes.
#pragma once

#include <cstring>

#include "regard/tensor.h"

namespace regard::inline v0::internal {

template <class T>
T read_element(const T* p) {
  T x;
  std::memcpy(&x, static_cast<const void*>(p), sizeof x);
  return x;
}

// Neither NaN nor infinite.
template <class T>
bool is_finite(T x) {
  return x - x == 0;
}

// to[i · to_stride] = from[i · from_stride] for i in 0 … count − 1.
template <class T>
void copy_elements(Index count, const T* from, Index from_stride, T* to, Index to_stride) {
  if (from_stride == 1 && to_stride == 1) {
    // Rows of a head are a few cache lines: calls to memcpy would take longer than the copies.
    constexpr Index kLine = 64 / static_cast<Index>(sizeof(T));
    for (; count >= kLine && count <= 8 * kLine; count -= kLine, from += kLine, to += kLine)
      std::memcpy(static_cast<void*>(to), static_cast<const void*>(from), 64);
    if (count > 0) {
      std::memcpy(static_cast<void*>(to), static_cast<const void*>(from), static_cast<std::size_t>(count) * sizeof(T));
    }
    return;
  }
  for (Index i = 0; i < count; ++i) {
    std::memcpy(static_cast<void*>(to + i * to_stride), static_cast<const void*>(from + i * from_stride), sizeof(T));
  }
}

}  // namespace regard::inline v0::internal
