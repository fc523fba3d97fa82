// SPDX-License-Identifier: Apache-2.0
//
// Runs the computation of a call from Python without the interpreter's lock, so that Ctrl-C can end it.
//
//     short call   lock released ── computed by the calling thread ── lock taken
//     long call    a new thread computes; the calling thread checks for signals every 20 ms and requests a stop of the
//                  operator (Runtime::stop) if a handler raises an exception
//     in a plan    with the plan's Runtime, immediately (regard.plan)
//
// Read next: run.cpp.
#pragma once

#include <Python.h>

#include <functional>

#include "regard/runtime.h"

namespace regard::python {

// operations: the approximate number of floating-point operations of the call, or kUnknownOperations. num_threads as
// in Runtime.
inline constexpr double kUnknownOperations = 1e18;
void run(double operations, int num_threads, const std::function<void(const Runtime&)>& call);

// Throws if this thread is making a plan. Functions that change an object call this, because a plan must not change
// anything.
void reject_in_plan(const char* operator_name);

// During the lifetime of a PlanScope, run() uses its Runtime on this thread.
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
