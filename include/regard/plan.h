// SPDX-License-Identifier: Apache-2.0
//
// What operators will do, said before they do it: the instruction set, the way and why, operations, bytes, threads, and
// the scratch memory to the byte.
//
//     const Plan p = plan([&](const Runtime& runtime) {
//       attention_forward(query, key, value, outputs, options, runtime);
//     });
//     p.workspace_bytes;            // Runtime::workspace will hold this much at its fullest, and no byte more
//     p.operators[0].way;           // "8 key heads, packed 8 at a time; …"
//
// A plan is made by the operators themselves, with everything left out that reads or writes a tensor's elements: they
// check their arguments, choose and allocate as they will when they compute. Read next: src/runtime/plan.cpp.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "regard/runtime.h"

namespace regard::inline v0 {

struct PlannedOperator {
  std::string name;       // "attention_forward"
  std::string way;        // which of its ways it takes, and why
  double operations = 0;  // useful floating-point operations: for attention 2·(D + Dv) for each query and key that
                          // causal, window, prefix and lengths let meet (masks, blocks and segments are not counted)
  double bytes = 0;       // of query, key, value, parameters and outputs, each once
  int num_threads = 1;    // at most
};

struct Plan {
  std::string instruction_set;  // "avx512"
  std::string why;              // why this one
  std::vector<PlannedOperator> operators;
  // The most that Runtime::workspace holds at a time, lists of heads, sequences and tasks among it. Nothing else is
  // allocated, but for what the call returns by value and what a Runtime::executor or ::progress needs.
  std::size_t workspace_bytes = 0;
};

// Runs `call`, in which operators that are given the Runtime write nothing, neither outputs nor numbers of progress.
// `runtime` is what the call will run with; its executor and workspace are not used. Throws what the operators throw
// for the same arguments; std::bad_alloc when a workspace exceeds the address space; std::logic_error when a plan is
// made inside another.
REGARD_EXPORT Plan plan(const std::function<void(const Runtime&)>& call, const Runtime& runtime = {});

}  // namespace regard::inline v0
