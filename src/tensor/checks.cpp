// SPDX-License-Identifier: Apache-2.0
//
// The checks of checks.h. Overlap is decided in constant time, from byte ranges and strides only.
// Read next: attention/arguments.cpp.
#include "checks.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "regard/error.h"

namespace regard::inline v0::internal {

void reject(const std::string& operator_name, const std::string& what) {
  throw InvalidArgument(operator_name + ": " + what);
}

std::string entries_text(Index count) { return std::to_string(count) + (count == 1 ? " entry" : " entries"); }

std::string shape_text(std::span<const Index> shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

std::string element_type_text(ElementType type) {
  const std::string name = type_name(type);
  return name == "unknown" ? std::to_string(static_cast<std::int32_t>(type)) : name;
}

void expect_type(const char* operator_name, const char* name, ElementType type,
                 std::initializer_list<ElementType> allowed, const char* expected) {
  if (std::ranges::find(allowed, type) != allowed.end()) return;
  reject(operator_name, std::string(name) + " has type " + element_type_text(type) + "; expected " + expected);
}

void expect_integers(const char* operator_name, const char* name, ElementType type) {
  expect_type(operator_name, name, type, {ElementType::int32, ElementType::int64}, "int32 or int64");
}

std::string own_or_query(ElementType own, ElementType query) {
  return type_name(own) + (query == own ? std::string() : std::string(", or ") + type_name(query)) + " as in query";
}

Footprint footprint(const char* operator_name, const char* name, const void* data, std::span<const Index> shape,
                    std::span<const Index> strides, Index element_bytes) {
  Footprint f{};
  f.name = name;
  const auto overflow = [&] {
    reject(operator_name, std::string(f.name) + " has shape " + shape_text(shape) + " and strides " +
                              shape_text(strides) + "; expected a size that fits in 63 bits");
  };
  Index bytes = element_bytes;
  bool empty = false;
  for (Index n : shape) {
    if (n < 0)
      reject(operator_name, std::string(f.name) + " has shape " + shape_text(shape) + "; extents must not be negative");
    empty = empty || n == 0;
  }
  if (empty) return f;
  for (Index n : shape) {
    if (__builtin_mul_overflow(bytes, n, &bytes)) overflow();
  }
  if (data == nullptr) {
    reject(operator_name, std::string(f.name) + " is null; expected memory for shape " + shape_text(shape));
  }
  Index below = 0;
  Index above = element_bytes;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1) continue;
    Index stride = 0;
    Index reach = 0;
    if (__builtin_mul_overflow(strides[axis], element_bytes, &stride) ||
        __builtin_mul_overflow(stride, shape[axis] - 1, &reach)) {
      overflow();
    }
    if (__builtin_add_overflow(reach < 0 ? below : above, reach, reach < 0 ? &below : &above)) overflow();
    const std::pair here{stride < 0 ? -stride : stride, shape[axis]};
    std::size_t at = f.num_axes++;
    for (; at > 0 && std::pair(f.axis_strides[at - 1], f.axis_extents[at - 1]) < here; --at) {
      f.axis_strides[at] = f.axis_strides[at - 1];
      f.axis_extents[at] = f.axis_extents[at - 1];
    }
    std::tie(f.axis_strides[at], f.axis_extents[at]) = here;
  }
  f.begin = reinterpret_cast<std::uintptr_t>(data) + static_cast<std::uintptr_t>(below);
  f.end = reinterpret_cast<std::uintptr_t>(data) + static_cast<std::uintptr_t>(above);
  return f;
}

namespace {

bool overlaps_itself(const Footprint& f) {
  // From the innermost axis outwards, each stride must step over everything inside it.
  Index span = f.end == f.begin ? 0 : static_cast<Index>(f.end - f.begin);
  for (std::size_t axis = 0; axis < f.num_axes; ++axis) {
    const Index inner = span - f.axis_strides[axis] * (f.axis_extents[axis] - 1);
    if (f.axis_strides[axis] < inner) return true;
    span = inner;
  }
  return false;
}

// The bytes of every period that f occupies: axes whose stride is a multiple of the period repeat the bytes that the
// others span.
Index span_in_period(const Footprint& f, Index period) {
  Index span = static_cast<Index>(f.end - f.begin);
  for (std::size_t axis = 0; axis < f.num_axes; ++axis) {
    if (f.axis_strides[axis] % period == 0) span -= f.axis_strides[axis] * (f.axis_extents[axis] - 1);
  }
  return span;
}

// True if some stride of either proves that b fits in the gaps that a leaves in every period, and a in those of b.
bool interleaved(const Footprint& a, const Footprint& b) {
  const auto apart = [&](Index period) {
    if (period == 0) return false;
    // Unsigned differences wrap, so the remainder is computed from the signed distance.
    const Index remainder = static_cast<Index>(b.begin - a.begin) % period;
    const Index distance = remainder < 0 ? remainder + period : remainder;
    return distance >= span_in_period(a, period) && distance + span_in_period(b, period) <= period;
  };
  return std::ranges::any_of(a.strides(), apart) || std::ranges::any_of(b.strides(), apart);
}

}  // namespace

void check_overlap(const char* operator_name, std::span<const Footprint> inputs, std::span<const Footprint> outputs) {
  const auto overlap = [](const Footprint& a, const Footprint& b) {
    return a.begin < b.end && b.begin < a.end && !interleaved(a, b);
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Footprint& out = outputs[i];
    if (out.begin == out.end) continue;
    if (overlaps_itself(out)) {
      reject(operator_name, std::string(out.name) + " overlaps itself (byte strides " + shape_text(out.strides()) +
                                ", extents " + shape_text(out.extents()) + "); expected non-overlapping elements");
    }
    for (const Footprint& in : inputs) {
      if (overlap(out, in))
        reject(operator_name, std::string(out.name) + " overlaps " + in.name + "; expected separate memory");
    }
    for (std::size_t j = i + 1; j < outputs.size(); ++j) {
      if (overlap(out, outputs[j])) {
        reject(operator_name, std::string(out.name) + " overlaps " + outputs[j].name + "; expected separate memory");
      }
    }
  }
}

}  // namespace regard::inline v0::internal
