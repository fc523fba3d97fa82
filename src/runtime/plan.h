// SPDX-License-Identifier: Apache-2.0
//
// What operators report to a plan that is being made on their thread. Without a plan, the cost is checking a pointer.
// Read next: plan.cpp.
#pragma once

#include <cstddef>

#include "regard/plan.h"

namespace regard::inline v0::internal {

// True if this thread is making a plan: no element of a tensor may then be read or written.
bool is_planning();

// Reports the operator whose work follows. Only while planning.
void plan_operator(PlannedOperator planned);

// While an object of this type exists, operators are left out of the plan, but their workspace is counted.
class PlanSuspension {
 public:
  PlanSuspension();
  ~PlanSuspension();
  PlanSuspension(const PlanSuspension&) = delete;
  PlanSuspension& operator=(const PlanSuspension&) = delete;

 private:
  std::ptrdiff_t num_operators_;
};

// Reports the number of threads that will work. Only while planning.
void plan_threads(int num_threads);

}  // namespace regard::inline v0::internal
