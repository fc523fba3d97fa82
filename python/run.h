// SPDX-License-Identifier: Apache-2.0
//
// How a call of Python is computed: without the interpreter's lock, and so that Ctrl-C ends it.
//
//     short call   lock released ── computed by the calling thread ── lock taken
//     long call    a thread of its own computes; the calling thread looks for signals every 20 ms, and asks the
//                  operator to stop (Runtime::stop) where a handler raises
//     in a plan    with the plan's Runtime, at once (regard.plan)
//
// Read next: run.cpp.
#pragma once

#include <Python.h>

#include <functional>

#include "regard/runtime.h"

namespace regard::python {

// operations: about as many floating-point operations as the call takes, or kUnknownOperations. num_threads as in
// Runtime.
inline constexpr double kUnknownOperations = 1e18;
void run(double operations, int num_threads, const std::function<void(const Runtime&)>& call);

// Throws where the call would change something that stays and this thread plans: a plan changes nothing.
void reject_in_plan(const char* operator_name);

// While it lives, run() on this thread uses that Runtime.
class PlanScope {
 public:
  explicit PlanScope(const Runtime& runtime);
  ~PlanScope();
  PlanScope(const PlanScope&) = delete;
  PlanScope& operator=(const PlanScope&) = delete;

 private:
  const Runtime* before_;
};

}  // namespace regard::python
