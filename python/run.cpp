// SPDX-License-Identifier: Apache-2.0
//
// run(): see run.h. If a thread requests the interpreter's lock while the interpreter shuts down, the interpreter
// unwinds the thread (pthread_exit). Unwinding the frames of this file and of nanobind would end the process with an
// error. Such a thread therefore stops its operator and waits for the end of the process, as in Python 3.14 and later.
// Read next: attention.cpp.
#include "run.h"

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>

namespace regard::python {
namespace {

// Calls with at least this number of operations run on a separate thread. They take 0.5 ms at 200 GFLOP/s, of which
// starting the thread is a twentieth, and 0.1 s at 1 GFLOP/s.
constexpr double kLongOperations = 1e8;
constexpr std::chrono::milliseconds kLook{20};

thread_local const Runtime* planning = nullptr;

// State that a long call shares with its thread.
struct Work {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
};

// Takes the lock again. A thread that is unwound by the interpreter's shutdown calls `leave`.
template <class Leave>
void take_lock(PyThreadState* state, const Leave& leave) {
  try {
    PyEval_RestoreThread(state);
  } catch (abi::__forced_unwind&) {
    leave();
    for (;;) pause();
  }
}

void run_here(const Runtime& runtime, const std::function<void(const Runtime&)>& call) {
  std::exception_ptr error;
  PyThreadState* const state = PyEval_SaveThread();
  try {
    call(runtime);
  } catch (...) {
    error = std::current_exception();
  }
  take_lock(state, [] {});
  if (error) std::rethrow_exception(error);
}

}  // namespace

PlanScope::PlanScope(const Runtime& runtime) : before_(planning) { planning = &runtime; }
PlanScope::~PlanScope() { planning = before_; }

void reject_in_plan(const char* operator_name) {
  if (planning == nullptr) return;
  throw std::invalid_argument(
      std::string(operator_name) +
      ": called inside a plan, which must not change anything; expected a call before the plan");
}

void run(double operations, int num_threads, const std::function<void(const Runtime&)>& call) {
  if (planning != nullptr) return call(*planning);
  Runtime runtime;
  runtime.num_threads = num_threads;
  if (operations < kLongOperations) return run_here(runtime, call);

  std::stop_source stop;
  runtime.stop = stop.get_token();
  Work work;
  std::thread worker;
  try {
    worker = std::thread([&work, &runtime, &call] {
      std::exception_ptr error;
      try {
        call(runtime);
      } catch (...) {
        error = std::current_exception();
      }
      const std::lock_guard lock(work.mutex);
      work.error = error;
      work.done = true;
      work.changed.notify_one();
    });
  } catch (const std::system_error&) {
    return run_here(runtime, call);  // no thread can be started
  }
  const auto finished = [&work](std::chrono::milliseconds longest) {
    std::unique_lock lock(work.mutex);
    return work.changed.wait_for(lock, longest, [&work] { return work.done; });
  };
  const auto leave = [&stop, &worker] {
    stop.request_stop();
    worker.join();
  };
  PyThreadState* state = PyEval_SaveThread();
  bool interrupted = false;
  while (!finished(kLook)) {
    take_lock(state, leave);
    interrupted = PyErr_CheckSignals() != 0;
    if (interrupted) stop.request_stop();
    state = PyEval_SaveThread();
    if (interrupted) break;
  }
  worker.join();
  take_lock(state, [] {});
  if (interrupted) throw nanobind::python_error();
  if (work.error) std::rethrow_exception(work.error);
}

}  // namespace regard::python
