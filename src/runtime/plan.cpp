// SPDX-License-Identifier: Apache-2.0
//
// A plan is a call whose parallel loops are skipped (for_each_item returns immediately), with a workspace that counts
// bytes. Its allocations are address space that is never touched, so a plan of any size is cheap.
// Read next: parallel.cpp.
#include "plan.h"

#include <sys/mman.h>
#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace regard::inline v0 {
namespace internal {
namespace {

constinit thread_local Plan* current = nullptr;

// Pages are only committed when they are touched; bytes in use are counted as Workspace requests them.
class AddressSpace final : public std::pmr::memory_resource {
 public:
  std::size_t largest = 0;

 private:
  void* do_allocate(std::size_t bytes, std::size_t) override {
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    in_use_ += bytes;
    largest = std::max(largest, in_use_);
    return memory;
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t) override {
    munmap(memory, bytes);
    in_use_ -= bytes;
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  std::size_t in_use_ = 0;
};

class PlanScope {
 public:
  explicit PlanScope(Plan& made) { current = &made; }
  ~PlanScope() { current = nullptr; }
  PlanScope(const PlanScope&) = delete;
  PlanScope& operator=(const PlanScope&) = delete;
};

}  // namespace

bool is_planning() { return current != nullptr; }

void plan_operator(PlannedOperator planned) { current->operators.push_back(std::move(planned)); }

PlanSuspension::PlanSuspension()
    : num_operators_(current ? static_cast<std::ptrdiff_t>(current->operators.size()) : 0) {}
PlanSuspension::~PlanSuspension() {
  if (current) current->operators.erase(current->operators.begin() + num_operators_, current->operators.end());
}

void plan_threads(int num_threads) {
  if (current->operators.empty()) return;
  int& largest = current->operators.back().num_threads;
  largest = std::max(largest, num_threads);
}

}  // namespace internal

Plan plan(const std::function<void(const Runtime&)>& call, const Runtime& runtime) {
  if (internal::is_planning()) throw InvalidArgument("plan: called inside a plan");
  Plan made;
  made.instruction_set = active_instruction_set();
  made.why = std::getenv("REGARD_FORCE_ISA") ? "set by REGARD_FORCE_ISA" : "the best that this processor supports";
  internal::AddressSpace workspace;
  Runtime planned = runtime;
  planned.executor = {};
  planned.workspace = &workspace;
  const internal::PlanScope planning(made);
  call(planned);
  made.workspace_bytes = workspace.largest;
  return made;
}

}  // namespace regard::inline v0
