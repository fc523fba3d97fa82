// SPDX-License-Identifier: Apache-2.0
//
// What operators tell a plan that is being made on their thread. Without one all of this costs a look at a pointer.
// Read next: plan.cpp.
#pragma once

#include <cstddef>

#include "regard/plan.h"

namespace regard::inline v0::internal {

// Whether this thread makes a plan: then no element of a tensor may be read or written.
bool is_planning();

// The operator whose work follows. Only while planning.
void plan_operator(PlannedOperator planned);

// While one lives, operators are left out of the plan and their workspace is not.
class PlanSuspension {
 public:
  PlanSuspension();
  ~PlanSuspension();
  PlanSuspension(const PlanSuspension&) = delete;
  PlanSuspension& operator=(const PlanSuspension&) = delete;

 private:
  std::ptrdiff_t num_operators_;
};

// So many threads will work. Only while planning.
void plan_threads(int num_threads);

}  // namespace regard::inline v0::internal
