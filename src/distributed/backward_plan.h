// SPDX-License-Identifier: Apache-2.0
//
// How attention_backward is divided over ranks: by key/value heads, or by rows, at boundaries between blocks of
// kBackwardRows rows.
//
//     rows held       0 … 511        512 … 1023
//     rows computed   0 … 539        540 … 1023          the sums over a block of rows are never divided
//
// Read next: backward_plan.cpp, attention_backward.cpp.
#pragma once

#include "distributed/arguments/whole_call.h"

namespace regard::inline v0::internal {

// The scheme is heads or rows. With rows, each rank has one range, in the order of ranks. The options are those of the
// whole call.
DistributedPlan backward_plan(const WholeCall& call, const AttentionOptions& options);

// Whether each rank computes the rows that it holds.
bool keeps_rows(const DistributedProblem& problem, const DistributedPlan& plan);

}  // namespace regard::inline v0::internal
