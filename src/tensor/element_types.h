// SPDX-License-Identifier: Apache-2.0
//
// Rows of elements whose type is known at run time: converted when read, rounded once when written, and passed to the
// kernels that pack their type.
//
//     with_rows<T>(r.key, r.key_pairs, b, h, first, [&](const auto& kernel, const auto& rows) {
//       kernel.pack_keys(rows, …);
//     })
//
// Read next: regard/types.h, kernels/attention_pack.cpp.
#pragma once

#include <stdexcept>
#include <string>

#include "kernels/table.h"
#include "regard/tensor.h"
#include "strided_copy.h"

namespace regard::inline v0::internal {

// For a type that no branch handles: a check of arguments, or a branch below, is missing.
[[noreturn]] inline void throw_unhandled(ElementType type) {
  throw std::logic_error("unhandled element type " + std::to_string(static_cast<int>(type)));
}

// Calls use(S{}), where S is the type with this value, one of those that are computed as T.
template <class T, class Use>
void with_element_type(ElementType type, Use use) {
  if (type == kElementType<T>) return use(T{});
  if constexpr (std::same_as<T, float>) {
    if (type == ElementType::bfloat16) return use(bfloat16{});
    if (type == ElementType::float16) return use(float16{});
  }
  throw_unhandled(type);
}

// The value of Stored for this type.
constexpr kernels::Stored stored_type(ElementType type) {
  switch (type) {
    case ElementType::float32:
    case ElementType::float64:
      return kernels::Stored::compute_type;
    case ElementType::bfloat16:
      return kernels::Stored::bfloat16;
    case ElementType::float16:
      return kernels::Stored::float16;
    case ElementType::int8:
      return kernels::Stored::int8;
    default:
      throw_unhandled(type);
  }
}

// Reads an int32 or int64.
inline Index read_index(ElementType type, const void* p) {
  return type == ElementType::int32 ? read_element(static_cast<const std::int32_t*>(p))
                                    : read_element(static_cast<const std::int64_t*>(p));
}

// to[i] = from[i · from_stride], converted to T, for i in 0 … count − 1.
template <class T>
void read_numbers(ElementType type, Index count, const void* from, Index from_stride, T* to) {
  with_element_type<T>(type, [&]<class S>(S) {
    const S* source = static_cast<const S*>(from);
    if constexpr (std::same_as<S, T>) {
      copy_elements(count, source, from_stride, to, 1);
    } else {
      if constexpr (std::same_as<T, float>) {
        if (std::same_as<S, bfloat16> && from_stride == 1)
          return kernels::active().bf16.widen(static_cast<const kernels::Bfloat16*>(from), to, count);
      }
      for (Index i = 0; i < count; ++i) to[i] = static_cast<T>(read_element(source + i * from_stride));
    }
  });
}

// to[i · to_stride] = from[i], rounded to nearest even, for i in 0 … count − 1.
template <class T>
void write_numbers(ElementType type, Index count, const T* from, void* to, Index to_stride) {
  with_element_type<T>(type, [&]<class S>(S) {
    S* target = static_cast<S*>(to);
    if constexpr (std::same_as<S, T>) {
      copy_elements(count, from, 1, target, to_stride);
    } else {
      if constexpr (std::same_as<T, float>) {
        if (std::same_as<S, bfloat16> && to_stride == 1)
          return kernels::active().pairs.narrow(from, static_cast<kernels::Bfloat16*>(to), count);
      }
      for (Index i = 0; i < count; ++i) {
        const S rounded(from[i]);
        copy_elements(1, &rounded, 1, target + i * to_stride, 1);
      }
    }
  });
}

// to[i · to_stride] = to[i · to_stride] + from[i], added in T and rounded once, for i in 0 … count − 1.
template <class T>
void add_numbers(ElementType type, Index count, const T* from, void* to, Index to_stride) {
  with_element_type<T>(type, [&]<class S>(S) {
    S* target = static_cast<S*>(to);
    for (Index i = 0; i < count; ++i) {
      const S sum(static_cast<T>(read_element(target + i * to_stride)) + from[i]);
      copy_elements(1, &sum, 1, target + i * to_stride, 1);
    }
  });
}

// add_numbers if `add`, otherwise write_numbers.
template <class T>
void write_or_add_numbers(bool add, ElementType type, Index count, const T* from, void* to, Index to_stride) {
  add ? add_numbers(type, count, from, to, to_stride) : write_numbers(type, count, from, to, to_stride);
}

// Calls use(kernels, matrix) with the kernels that pack the view's type into panels of T, and with the view's rows of
// (b, h) from `first` on as their source. pairs: pack into panels of pairs; the view has type bfloat16.
template <class T, class Use>
void with_rows(const InputView<4>& view, bool pairs, Index b, Index h, Index first, Use use) {
  const void* corner = view.pointer(b, h, first, 0);
  const auto rows = [&]<class S>(const S* at) { return kernels::Matrix<S>{at, view.strides[2], view.strides[3]}; };
  const kernels::KernelTable& table = kernels::active();
  if (view.type == kElementType<T>) return use(table.template of<T>(), rows(static_cast<const T*>(corner)));
  if constexpr (std::same_as<T, float>) {
    if (pairs) return use(table.pairs, rows(static_cast<const kernels::Bfloat16*>(corner)));
    if (view.type == ElementType::bfloat16) return use(table.bf16, rows(static_cast<const kernels::Bfloat16*>(corner)));
    if (view.type == ElementType::float16) return use(table.f16, rows(static_cast<const kernels::Float16*>(corner)));
  }
  throw_unhandled(view.type);
}

}  // namespace regard::inline v0::internal
