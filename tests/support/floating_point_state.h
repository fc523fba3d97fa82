// SPDX-License-Identifier: Apache-2.0
//
// The calling thread's floating-point control and status bits, as a caller may have set them: rounding, flushing of
// subnormals, exceptions, flags. On x86-64 the bits of MXCSR; on aarch64 those of FPCR, with FPSR above them.
// Read next: attention_bits_test.cpp.
#pragma once

#include <cstdint>

#if !defined(__aarch64__)
#include <xmmintrin.h>
#endif

namespace regard {

#if defined(__aarch64__)

inline constexpr std::uint64_t kRoundUp = 1u << 22, kRoundDown = 2u << 22, kRoundToZero = 3u << 22;
inline constexpr std::uint64_t kFlushSubnormals = 1u << 24;
inline constexpr std::uint64_t kExceptionsOff = 0, kInvalidOn = 0,
                               kDivideByZeroOn = 0;  // few processors can raise any exception
inline constexpr std::uint64_t kInvalidFlag = std::uint64_t{1} << 32, kOverflowFlag = std::uint64_t{4} << 32,
                               kUnderflowFlag = std::uint64_t{8} << 32;

inline std::uint64_t floating_point_state() {
  std::uint64_t control, status;
  asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(control), "=r"(status));
  return control | status << 32;
}
inline void set_floating_point_state(std::uint64_t state) {
  asm volatile("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(state & 0xffffffffu), "r"(state >> 32) : "memory");
}

#else

inline constexpr std::uint64_t kRoundUp = 0x4000, kRoundDown = 0x2000, kRoundToZero = 0x6000;
inline constexpr std::uint64_t kFlushSubnormals = 0x8040;
inline constexpr std::uint64_t kExceptionsOff = 0x1f80;  // a cleared bit enables an exception
inline constexpr std::uint64_t kInvalidOn = 0x80, kDivideByZeroOn = 0x200;
inline constexpr std::uint64_t kInvalidFlag = 0x01, kOverflowFlag = 0x08, kUnderflowFlag = 0x10;

inline std::uint64_t floating_point_state() { return _mm_getcsr(); }
inline void set_floating_point_state(std::uint64_t state) { _mm_setcsr(static_cast<unsigned>(state)); }

#endif

}  // namespace regard
