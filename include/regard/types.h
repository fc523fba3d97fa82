// SPDX-License-Identifier: Apache-2.0
//
// bfloat16 and float16: numbers of two bytes that tensors are stored in. Regard computes with them as float.
//
//             sign   exponent   fraction     largest       smallest normal   smallest
//   bfloat16    1        8          7        3.39 · 10³⁸      2⁻¹²⁶           2⁻¹³³
//   float16     1        5         10        65504            2⁻¹⁴            2⁻²⁴
//
// To float is exact. From float rounds once, to the nearest, ties to the even one, whatever the rounding mode of the
// processor; beyond the largest number lies ±∞, subnormal numbers are kept, a NaN becomes a quiet NaN whose payload is
// outside the promise. There is no conversion from double, which would round twice: convert to float on purpose.
// Read next: tensor.h, attention.h.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "regard/export.h"

namespace regard::inline v0 {

namespace internal {

// The bits of x, a float's magnitude, without its last `count` bits, rounded to the nearest even.
constexpr std::uint32_t round_off(std::uint32_t x, int count) {
  const std::uint32_t half = std::uint32_t{1} << (count - 1);
  return (x + (half - 1) + ((x >> count) & 1)) >> count;
}

inline constexpr std::uint32_t kFloatInfinity = 0x7f800000;

constexpr std::uint16_t bfloat16_bits(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffff) > kFloatInfinity) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits & 0x80000000) >> 16 | round_off(bits & 0x7fffffff, 16));
}

constexpr std::uint16_t float16_bits(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits & 0x80000000) >> 16;
  const std::uint32_t size = bits & 0x7fffffff;
  constexpr std::uint32_t kBeyond = 0x477ff000;          // 65520, half a step beyond the largest number, is even's: ∞
  constexpr std::uint32_t kSmallestNormal = 0x38800000;  // 2⁻¹⁴
  constexpr std::uint32_t kHalfSmallest = 0x33000000;    // 2⁻²⁵ is even's, too: 0
  std::uint32_t result = 0;
  if (size > kFloatInfinity) {
    result = 0x7e00;
  } else if (size >= kBeyond) {
    result = 0x7c00;
  } else if (size >= kSmallestNormal) {
    result = round_off(size - (std::uint32_t{112} << 23), 13);  // 112 = 127 − 15, the exponents' biases
  } else if (size > kHalfSmallest) {
    // Steps of 2⁻²⁴: the fraction with its hidden bit, shifted to where that step is 1.
    const int exponent = static_cast<int>(size >> 23);
    result = round_off((size & 0x7fffff) | 0x800000, 126 - exponent);
  }
  return static_cast<std::uint16_t>(sign | result);
}

constexpr float float_of_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

constexpr float float_of_float16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1f;
  std::uint32_t fraction = bits & 0x3ff;
  std::uint32_t result = 0;
  if (exponent == 0x1f) {
    result = kFloatInfinity | fraction << 13;
  } else if (exponent > 0) {
    result = (exponent + 112) << 23 | fraction << 13;
  } else if (fraction > 0) {
    // A subnormal number is a normal float: its highest bit becomes the hidden one.
    const auto shift = static_cast<std::uint32_t>(std::countl_zero(fraction)) - 21;
    fraction = fraction << shift & 0x3ff;
    result = (113 - shift) << 23 | fraction << 13;
  }
  return std::bit_cast<float>(sign | result);
}

}  // namespace internal

struct REGARD_EXPORT bfloat16 {
  std::uint16_t bits;

  constexpr bfloat16() = default;
  template <std::same_as<float> Float>
  explicit constexpr bfloat16(Float x) : bits(internal::bfloat16_bits(x)) {}
  explicit constexpr operator float() const { return internal::float_of_bfloat16(bits); }
};

struct REGARD_EXPORT float16 {
  std::uint16_t bits;

  constexpr float16() = default;
  template <std::same_as<float> Float>
  explicit constexpr float16(Float x) : bits(internal::float16_bits(x)) {}
  explicit constexpr operator float() const { return internal::float_of_float16(bits); }
};

static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16> && std::is_trivial_v<bfloat16>);
static_assert(sizeof(float16) == 2 && std::is_trivially_copyable_v<float16> && std::is_trivial_v<float16>);

// The types of elements, in memory, in files and in the C interface, whose REGARD_F32 … have the same numbers.
// Operators compute with the first two, bfloat16 and float16; starts and lengths are int32 or int64; masks are boolean
// or uint8.
enum class ElementType : std::int32_t {
  float32 = 1,
  float64 = 2,
  boolean = 3,  // a byte, 0 or not 0
  int32 = 4,
  int64 = 5,
  bfloat16 = 6,
  float16 = 7,
  int8 = 8,
  uint8 = 9,
  int16 = 10,
  uint16 = 11,
  uint32 = 12,
  uint64 = 13
};

// A type that is computed with.
template <class T>
concept Number =
    std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, bfloat16> || std::same_as<T, float16>;

namespace internal {
template <class T>
constexpr ElementType element_type_of() {
  if constexpr (std::same_as<T, float>) return ElementType::float32;
  if constexpr (std::same_as<T, double>) return ElementType::float64;
  if constexpr (std::same_as<T, bool>) return ElementType::boolean;
  if constexpr (std::same_as<T, bfloat16>) return ElementType::bfloat16;
  if constexpr (std::same_as<T, float16>) return ElementType::float16;
  if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    constexpr bool kSigned = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return kSigned ? ElementType::int8 : ElementType::uint8;
    if constexpr (sizeof(T) == 2) return kSigned ? ElementType::int16 : ElementType::uint16;
    if constexpr (sizeof(T) == 4) return kSigned ? ElementType::int32 : ElementType::uint32;
    if constexpr (sizeof(T) == 8) return kSigned ? ElementType::int64 : ElementType::uint64;
  }
}
}  // namespace internal

// A type that views may have: those of ElementType.
template <class T>
concept Element = Number<T> || (std::integral<T> && sizeof(T) <= 8);

template <Element T>
inline constexpr ElementType kElementType = internal::element_type_of<T>();

// 0 for a number that names no type.
constexpr std::int64_t type_bytes(ElementType type) {
  using enum ElementType;
  switch (type) {
    case boolean:
    case int8:
    case uint8:
      return 1;
    case ElementType::bfloat16:
    case ElementType::float16:
    case int16:
    case uint16:
      return 2;
    case float32:
    case int32:
    case uint32:
      return 4;
    case float64:
    case int64:
    case uint64:
      return 8;
  }
  return 0;
}

// Real numbers, not whole ones and not truths.
constexpr bool is_floating(ElementType type) {
  using enum ElementType;
  return type == float32 || type == float64 || type == ElementType::bfloat16 || type == ElementType::float16;
}

// "float32", "float64", "bool", "int32", "int64", "bfloat16", …; "unknown" for a number that names no type.
constexpr const char* type_name(ElementType type) {
  constexpr const char* kNames[] = {"unknown", "float32", "float64", "bool",  "int32",  "int64",  "bfloat16",
                                    "float16", "int8",    "uint8",   "int16", "uint16", "uint32", "uint64"};
  const auto number = static_cast<std::uint32_t>(type);
  return kNames[number < std::size(kNames) ? number : 0];
}

// What T is computed with: double for double, float for all others. A plain trait, whose name every compiler mangles
// alike.
template <class T>
struct ComputeTypeOf {
  using type = float;
};
template <>
struct ComputeTypeOf<double> {
  using type = double;
};
template <class T>
using ComputeType = typename ComputeTypeOf<T>::type;

}  // namespace regard::inline v0
