// SPDX-License-Identifier: Apache-2.0
//
// Selects the kernel table: the one named by REGARD_FORCE_ISA, or the fastest that the processor and operating system
// support.
//
//     -march=x86-64-v3 ("avx2"):   AVX, AVX2, BMI1, BMI2, F16C, FMA, LZCNT, MOVBE and all of SSE
//     -march=x86-64-v4 ("avx512"): the same and AVX-512 F, BW, CD, DQ, VL
//     -mavx512bf16 ("avx512_bf16"): the same and AVX512-BF16
//     -mamx-bf16 ("amx_bf16"):     avx512 and AMX-TILE, AMX-BF16
//     -march=armv8-a ("neon"):     features of every aarch64 processor
//     -msimd128 ("simd128"):       features of every engine that can load the module
//
// A kernel may use any instruction that its -march allows, so each feature is checked. To add an instruction set, add a
// line in candidates() and one in cmake/kernels.cmake.
// Read next: kernels/table.h.
#include "isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>

#include "regard/runtime.h"

namespace regard::kernels {
namespace {

// The result of active(); null until the first call. Concurrent first calls select the same table.
constinit std::atomic<const KernelTable*> active_table{nullptr};

}  // namespace

#if defined(__aarch64__)

std::span<const Candidate> candidates() {
  static const std::array tables{Candidate{&neon::table, true}};
  return tables;
}

#elif defined(__wasm__)

std::span<const Candidate> candidates() {
  static const std::array tables{Candidate{&simd128::table, true}};
  return tables;
}

#elif defined(__x86_64__)

namespace {

// Some compilers do not support these three names in __builtin_cpu_supports.
bool has_f16c_movbe_lzcnt() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kF16c = 1u << 29, kMovbe = 1u << 22, kLzcnt = 1u << 5;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kF16c) == 0 || (c & kMovbe) == 0) return false;
  return __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (c & kLzcnt) != 0;
}

[[maybe_unused]] bool has_avx2() {
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("avx") &&
         __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("fma") && has_f16c_movbe_lzcnt();
}

[[maybe_unused]] bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

// The processor has the tile registers of AMX, and the system grants them to this process, as Linux does on request.
// The request fails if the alternate signal stack of a thread is too small to save them.
[[maybe_unused]] bool has_amx_bf16() {
#if defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return has_avx512() && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

std::span<const Candidate> candidates() {
  __builtin_cpu_init();  // required for callers that run before main
  static const std::array tables{
      Candidate{&generic::table, true},
#if defined(REGARD_HAS_avx2)
      Candidate{&avx2::table, has_avx2()},
#endif
#if defined(REGARD_HAS_avx512)
      Candidate{&avx512::table, has_avx512()},
#endif
#if defined(REGARD_HAS_avx512_bf16)
      // Intel's processors begin a bf16 dot product every second cycle, and two multiply-adds of floats in each, so the
      // instruction halves their rate. (On AMD's processors, it doubles the rate.)
      Candidate{&avx512_bf16::table, has_avx512() && __builtin_cpu_supports("avx512bf16"),
                __builtin_cpu_is("intel") != 0},
#endif
#if defined(REGARD_HAS_amx_bf16)
      Candidate{&amx_bf16::table, has_amx_bf16()},
#endif
  };
  return tables;
}

#endif

const PeakLoop* bf16_dot_loop() {
#if defined(REGARD_HAS_avx512_bf16)
  if (&active() == &avx512_bf16::table) return &avx512_bf16::dot_loop;
#endif
  return nullptr;
}

const KernelTable& choose_table(const char* forced, std::span<const Candidate> tables) {
  const KernelTable* best = tables.front().table;  // generic, which runs on every processor
  std::string available_names;
  bool known = false;
  for (const auto& [table, available, slower] : tables) {
    const bool named = forced != nullptr && std::string_view(forced) == table->name;
    if (named && available) return *table;
    known = known || named;
    if (!available) continue;
    if (!slower) best = table;
    available_names += (available_names.empty() ? "" : ", ") + std::string(table->name);
  }
  if (forced == nullptr) return *best;
  throw InvalidArgument("REGARD_FORCE_ISA is \"" + std::string(forced) + "\", " +
                        (known ? "which this processor cannot run" : "which is not an instruction set of this build") +
                        "; expected one of: " + available_names);
}

const KernelTable& active() {
  const KernelTable* table = active_table.load(std::memory_order_relaxed);
  if (table == nullptr) {
    table = &choose_table(std::getenv("REGARD_FORCE_ISA"), candidates());
    active_table.store(table, std::memory_order_relaxed);
  }
  return *table;
}

int num_available() {
  int count = 0;
  for (const Candidate& candidate : candidates()) count += candidate.available ? 1 : 0;
  return count;
}

const KernelTable& available(int index) {
  for (const auto& [table, available, slower] : candidates()) {
    if (available && index-- == 0) return *table;
  }
  throw InvalidArgument("available: no instruction set has this index");
}

void set_active(const KernelTable* table) { active_table.store(table, std::memory_order_relaxed); }

}  // namespace regard::kernels

namespace regard::inline v0 {

std::vector<InstructionSet> instruction_sets() {
  const kernels::KernelTable& active = kernels::active();
  std::vector<InstructionSet> sets;
  for (const auto& [table, available, slower] : kernels::candidates()) {
    sets.push_back({table->name, available, table == &active, table->fused_multiply_add});
  }
  return sets;
}

std::string active_instruction_set() { return kernels::active().name; }

}  // namespace regard::inline v0
