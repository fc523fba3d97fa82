// SPDX-License-Identifier: Apache-2.0
//
// Which of several plans of the same call is chosen: balanced ones by bytes, others by imbalance first.
// Read next: plans.cpp.
#pragma once

#include <vector>

#include "regard/distributed/shards.h"

namespace regard::inline v0::internal {

// There is at least one plan.
DistributedPlan cheapest_plan(const std::vector<DistributedPlan>& plans);

}  // namespace regard::inline v0::internal
