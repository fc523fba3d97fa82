// SPDX-License-Identifier: Apache-2.0
//
// The runtime of a WebAssembly module: one thread, no files, no environment. Replaces the sources of src/runtime/ that
// need an operating system: parallel.cpp, plan.cpp and runtime.cpp.
// Read next: web/core/CMakeLists.txt.
#include "regard/runtime.h"

#include "regard/parallel.h"
#include "runtime/machine.h"
#include "runtime/parallel.h"
#include "runtime/plan.h"

namespace regard::inline v0 {
namespace internal {

FloatingPointScope::FloatingPointScope() : previous_(0) {}
FloatingPointScope::~FloatingPointScope() = default;

int num_workers(const Runtime& runtime, Index) {
  if (runtime.num_threads < 0) throw InvalidArgument("num_threads is negative; expected 0 or more");
  return 1;
}
int num_workers(const Runtime& runtime, Index num_items, double) { return num_workers(runtime, num_items); }

void for_each_item(const Runtime&, int, Index num_items, const ItemBody& body, ItemOrder) {
  for (Index item = 0; item < num_items; ++item) body(item, 0);
}

void let_others_run() {}
int num_affinity_cpus() { return 1; }

// No plans are made here.
bool is_planning() { return false; }
void plan_operator(PlannedOperator) {}
void plan_threads(int) {}
PlanSuspension::PlanSuspension() : num_operators_(0) {}
PlanSuspension::~PlanSuspension() = default;

}  // namespace internal

void parallel_for(Index n, const std::function<void(Index, const Runtime&)>& task, const Runtime& runtime) {
  for (Index i = 0; i < n; ++i) task(i, runtime);
}

void throw_if_stopped(const std::stop_token&, std::string_view) {}

int default_num_threads() { return 1; }

std::size_t available_memory_bytes() {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 31, kPageBytes = std::size_t{1} << 16;
  return kMaxBytes - __builtin_wasm_memory_size(0) * kPageBytes;
}

std::string_view version() { return REGARD_VERSION; }

}  // namespace regard::inline v0
