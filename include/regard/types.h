// SPDX-License-Identifier: Apache-2.0
/// @file
/// The 16-bit element types `bfloat16` and `float16`, and ElementType, which names every type that a tensor can store.
///
/// @verbatim
///              sign   exponent   fraction   largest        smallest normal   smallest subnormal
///   bfloat16   1      8          7          3.39 · 10³⁸    2⁻¹²⁶             2⁻¹³³
///   float16    1      5          10         65504          2⁻¹⁴              2⁻²⁴
/// @endverbatim
///
/// The 16-bit types are for storage: operators convert their elements to float (avx512_bf16 and amx_bf16 are
/// exceptions; see section 4 of the contract). The conversion to float is exact. The conversion from float rounds once,
/// to nearest even, in every rounding mode of the processor. Subnormal numbers are kept, values that round beyond the
/// largest finite value become ±∞, and a NaN becomes a quiet NaN with an unspecified payload.
///
/// Contract: docs/reference/semantics.md, sections 1 (types) and 4 (precision).
///
/// Read next: tensor.h, attention.h.
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

// The magnitude bits x of a float without the last `count` bits, rounded to nearest even.
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
  constexpr std::uint32_t kBeyond = 0x477ff000;          // 65520, halfway between 65504 and 65536: rounds to 65536 (∞)
  constexpr std::uint32_t kSmallestNormal = 0x38800000;  // 2⁻¹⁴
  constexpr std::uint32_t kHalfSmallest = 0x33000000;    // 2⁻²⁵, halfway between 0 and 2⁻²⁴: rounds to 0
  std::uint32_t result = 0;
  if (size > kFloatInfinity) {
    result = 0x7e00;
  } else if (size >= kBeyond) {
    result = 0x7c00;
  } else if (size >= kSmallestNormal) {
    result = round_off(size - (std::uint32_t{112} << 23), 13);  // 112 = 127 − 15, the difference of the exponent biases
  } else if (size > kHalfSmallest) {
    // The result is a multiple of 2⁻²⁴: the fraction with its hidden bit is shifted so that its last bit is worth 2⁻²⁴.
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
    // A subnormal float16 is a normal float: its highest set bit becomes the hidden bit.
    const auto shift = static_cast<std::uint32_t>(std::countl_zero(fraction)) - 21;
    fraction = fraction << shift & 0x3ff;
    result = (113 - shift) << 23 | fraction << 13;
  }
  return std::bit_cast<float>(sign | result);
}

}  // namespace internal

/// A bfloat16 number: the upper half of a float.
///
/// A trivial two-byte type without arithmetic operators.
///
/// @par Example
/// @code{.cpp}
/// const bfloat16 stored(3.14159f);                // 3.140625
/// const float exact = static_cast<float>(stored);
/// @endcode
struct REGARD_EXPORT bfloat16 {
  /// Sign (1 bit), exponent (8 bits, bias 127) and fraction (7 bits), from the most significant bit down.
  std::uint16_t bits;

  /// Leaves `bits` uninitialized. `bfloat16{}` is +0.
  constexpr bfloat16() = default;
  /// Rounds a float to the nearest bfloat16, ties to even.
  ///
  /// A double is not accepted: converting it to float first would round twice. If this is acceptable, convert it to
  /// float explicitly.
  ///
  /// @tparam Float  float; no other type is accepted.
  /// @param x       Number to round. Values that round beyond the largest finite value become ±∞; NaN becomes a quiet
  ///                NaN.
  template <std::same_as<float> Float>
  explicit constexpr bfloat16(Float x) : bits(internal::bfloat16_bits(x)) {}
  /// Converts the number to float, exactly.
  explicit constexpr operator float() const { return internal::float_of_bfloat16(bits); }
};

/// An IEEE 754 binary16 number.
///
/// A trivial two-byte type without arithmetic operators.
///
/// @par Example
/// @code{.cpp}
/// const float16 stored(3.14159f);                 // 3.140625
/// const float exact = static_cast<float>(stored);
/// @endcode
struct REGARD_EXPORT float16 {
  /// Sign (1 bit), exponent (5 bits, bias 15) and fraction (10 bits), from the most significant bit down.
  std::uint16_t bits;

  /// Leaves `bits` uninitialized. `float16{}` is +0.
  constexpr float16() = default;
  /// Rounds a float to the nearest float16, ties to even.
  ///
  /// A double is not accepted: converting it to float first would round twice. If this is acceptable, convert it to
  /// float explicitly.
  ///
  /// @tparam Float  float; no other type is accepted.
  /// @param x       Number to round. Values that round beyond the largest finite value become ±∞; NaN becomes a quiet
  ///                NaN.
  template <std::same_as<float> Float>
  explicit constexpr float16(Float x) : bits(internal::float16_bits(x)) {}
  /// Converts the number to float, exactly.
  explicit constexpr operator float() const { return internal::float_of_float16(bits); }
};

static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16> && std::is_trivial_v<bfloat16>);
static_assert(sizeof(float16) == 2 && std::is_trivially_copyable_v<float16> && std::is_trivial_v<float16>);

/// The types that the elements of a tensor can have, in memory, in files and in the C interface.
///
/// The numeric values of the enumerators never change. The C interface defines the first nine as `REGARD_F32` …
/// `REGARD_U8`, with the same values.
///
/// - Operators compute with `float32`, `float64`, `bfloat16` and `float16`.
/// - Starts, lengths, offsets and segments are `int32` or `int64`.
/// - Masks are `boolean` or `uint8`.
/// - A KvCache can also store `int8`.
enum class ElementType : std::int32_t {
  float32 = 1,   ///< float
  float64 = 2,   ///< double
  boolean = 3,   ///< bool, one byte: 0 is false, any other value is true.
  int32 = 4,     ///< std::int32_t
  int64 = 5,     ///< std::int64_t
  bfloat16 = 6,  ///< regard::bfloat16
  float16 = 7,   ///< regard::float16
  int8 = 8,      ///< std::int8_t
  uint8 = 9,     ///< std::uint8_t
  int16 = 10,    ///< std::int16_t
  uint16 = 11,   ///< std::uint16_t
  uint32 = 12,   ///< std::uint32_t
  uint64 = 13    ///< std::uint64_t
};

/// A type that operators compute with: float, double, bfloat16 or float16.
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

/// A type that the elements of a view can have: any type that ElementType names.
///
/// Integral types of at most 8 bytes map to the ElementType of their size and signedness, and `bool` to
/// `ElementType::boolean`.
template <class T>
concept Element = Number<T> || (std::integral<T> && sizeof(T) <= 8);

/// The ElementType that names the type T.
///
/// @tparam T  An Element.
template <Element T>
inline constexpr ElementType kElementType = internal::element_type_of<T>();

/// Returns the size of an element.
///
/// @param type  The element type.
/// @return The size in bytes, or 0 if `type` is not one of the enumerators.
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

/// Returns whether a type is a floating-point type.
///
/// @param type  The element type.
/// @return True for `float32`, `float64`, `bfloat16` and `float16`; false for integers, `boolean` and unknown values.
constexpr bool is_floating(ElementType type) {
  using enum ElementType;
  return type == float32 || type == float64 || type == ElementType::bfloat16 || type == ElementType::float16;
}

/// Returns the name of an element type.
///
/// @param type  The element type.
/// @return `"float32"`, `"float64"`, `"bool"`, `"int32"`, `"int64"`, `"bfloat16"`, and so on, as a static string, or
///         `"unknown"` if `type` is not one of the enumerators.
constexpr const char* type_name(ElementType type) {
  constexpr const char* kNames[] = {"unknown", "float32", "float64", "bool",  "int32",  "int64",  "bfloat16",
                                    "float16", "int8",    "uint8",   "int16", "uint16", "uint32", "uint64"};
  const auto number = static_cast<std::uint32_t>(type);
  return kNames[number < std::size(kNames) ? number : 0];
}

/// The type in which operators compute with elements of type T: double for double, float for all others.
///
/// It is a plain class template so that all compilers mangle names that contain it in the same way.
///
/// @tparam T  The element type.
template <class T>
struct ComputeTypeOf {
  using type = float;  ///< float
};
/// The type in which operators compute with elements of type double: double.
template <>
struct ComputeTypeOf<double> {
  using type = double;  ///< double
};
/// The type in which operators compute with elements of type T: `ComputeTypeOf<T>::type`.
///
/// @tparam T  The element type.
template <class T>
using ComputeType = typename ComputeTypeOf<T>::type;

}  // namespace regard::inline v0
