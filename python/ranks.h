// SPDX-License-Identifier: Apache-2.0
//
// Calls that are divided among ranks: regard.distributed.
//
//     RankGroup.call("attention_forward", regard.attention, query, …)
//       └─ regard.attention ──▶ attention_forward_of() ──▶ run_call(…, alone, divided)
//                                                            └─ divided(ranks, runtime): distributed/attention.h
//
// The communication thread of Ranks waits for the interpreter's lock while it holds the mutex of its messages.
// Therefore, no thread may wait for that mutex while it holds the interpreter's lock: every call to Ranks releases the
// lock first. Read next: ranks.cpp, python/regard/distributed.py.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "arrays.h"
#include "regard/distributed/ranks.h"
#include "run.h"

namespace regard::python {

class RankGroup {
 public:
  // transport: an object from regard/distributed_transports.py. A collective call.
  RankGroup(nb::object transport, double timeout);
  // Leaks ranks that close() has not destroyed, because Python may run this destructor on the communication thread.
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // Calls function(*args, **kwargs), in which run_call() divides the operator `name` among the ranks. An error that is
  // found before the operator begins is reported to the other ranks.
  nb::object call(const std::string& name, const nb::callable& function, const nb::args& args,
                  const nb::kwargs& kwargs);
  // at_once: do not wait for the other ranks, because this rank ends with an exception.
  void close(bool at_once);
  Index num_ranks() const { return num_ranks_; }

  // The group whose call() is running on this thread, or nullptr.
  static RankGroup* current();
  void run(double operations, int num_threads, const std::function<void(Ranks&, const Runtime&)>& divided);
  // The sum of a number over all ranks, computed before the operator `name`.
  Index total(const std::string& name, Index number);

 private:
  class Scope;
  bool is_open() const;
  // Reports an error of this rank to the other ranks. Throws the exception that all ranks throw, unless this rank keeps
  // its own error.
  void tell(const std::string& name, const nb::python_error& error);

  nb::object transport_;
  std::unique_ptr<Ranks> ranks_;
  Index num_ranks_ = 1;
  bool may_use_thread_ = false;
  bool busy_ = false;
  bool failed_ = false;   // a call did not complete because a rank has failed
  bool started_ = false;  // the operator has begun: it reports errors to the other ranks itself
  pid_t process_;
};

// Runs `divided`, the operator divided among the ranks, within RankGroup::call(), and otherwise `alone`.
template <class Alone, class Divided>
void run_call(double operations, int num_threads, const Alone& alone, const Divided& divided) {
  if (RankGroup* const group = RankGroup::current()) return group->run(operations, num_threads, divided);
  run(operations, num_threads, alone);
}

}  // namespace regard::python
