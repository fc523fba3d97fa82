// SPDX-License-Identifier: Apache-2.0
//
// Runs a test once for every instruction set of this processor, as every operator test does (with the thread sanitizer,
// for the best only):
//
//     on_every_instruction_set([&](const kernels::KernelTable& table) { … });
//
// A failure names the set.
// Read next: src/kernels/table.h.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/table.h"

namespace regard {

// Operators use this table until the end of the scope.
class ActiveTable {
 public:
  explicit ActiveTable(const kernels::KernelTable& table) { kernels::set_active(&table); }
  ~ActiveTable() { kernels::set_active(nullptr); }
  ActiveTable(const ActiveTable&) = delete;
  ActiveTable& operator=(const ActiveTable&) = delete;
};

// Kernels use no threads: the thread sanitizer finds in one set what it finds in all, and runs the best.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kOnlyBestSet = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kOnlyBestSet = true;
#else
inline constexpr bool kOnlyBestSet = false;
#endif
#else
inline constexpr bool kOnlyBestSet = false;
#endif

template <class F>
void on_every_instruction_set(F f) {
  ASSERT_GE(kernels::num_available(), 1);
  for (int i = kOnlyBestSet ? kernels::num_available() - 1 : 0; i < kernels::num_available(); ++i) {
    const kernels::KernelTable& table = kernels::available(i);
    SCOPED_TRACE(table.name);
    const ActiveTable active(table);
    f(table);
  }
}

// All tables, changed by f: with the emulation of an instruction that the processor lacks, so that packing, tiles and
// remainders are tested on every host.
template <class F>
std::vector<kernels::KernelTable> changed_tables(F f) {
  std::vector<kernels::KernelTable> all;
  for (int i = 0; i < kernels::num_available(); ++i) {
    all.push_back(kernels::available(i));
    f(all.back());
  }
  return all;
}

// The tables that multiply pairs of bf16 values.
inline const std::vector<kernels::KernelTable>& dot_tables() {
  static const std::vector<kernels::KernelTable> tables = changed_tables([](kernels::KernelTable& table) {
    table.bf16_dot = true;
    table.bf16_amx = false;
  });
  return tables;
}

// The tables whose linear layers use AMX.
inline const std::vector<kernels::KernelTable>& amx_tables() {
  static const std::vector<kernels::KernelTable> tables =
      changed_tables([](kernels::KernelTable& table) { table.bf16_amx = true; });
  return tables;
}

template <class F>
void on_every_table_of(const std::vector<kernels::KernelTable>& tables, const std::string& what, F f) {
  for (const kernels::KernelTable& table : tables) {
    SCOPED_TRACE(table.name + (", " + what));
    const ActiveTable active(table);
    f(table);
  }
}
template <class F>
void on_every_dot_table(F f) {
  on_every_table_of(dot_tables(), "pairs", f);
}
template <class F>
void on_every_amx_table(F f) {
  on_every_table_of(amx_tables(), "AMX", f);
}

// The sets that guarantee the same bits as each other.
inline std::vector<const kernels::KernelTable*> fused_instruction_sets() {
  std::vector<const kernels::KernelTable*> tables;
  for (int i = 0; i < kernels::num_available(); ++i) {
    if (kernels::available(i).fused_multiply_add) tables.push_back(&kernels::available(i));
  }
  return tables;
}

}  // namespace regard
