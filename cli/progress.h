// SPDX-License-Identifier: Apache-2.0
//
// How far long work has come, on one line of standard error:
//
//     attention [################------------------------]  41 %  12 s to go
//
// Nothing is shown unless standard error is a terminal and the work takes longer than a second; when it ends, whatever
// the way, the line is gone. Read next: progress.cpp, attend.cpp.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>

#include "regard/tensor.h"

namespace regard::program {

// One at a time.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // What Runtime::progress takes; empty where nothing would be shown. It must not be called after the end of this.
  std::function<void(Index, Index)> report();
  // From any thread, also by several at once.
  void update(Index done, Index total) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  void draw(std::chrono::milliseconds elapsed) noexcept;

  const std::string label_;
  const bool shown_;
  const Clock::time_point begin_ = Clock::now();
  std::atomic<Index> done_{0};
  std::atomic<Index> total_{0};
  std::atomic<std::chrono::milliseconds> next_draw_;
  std::mutex drawing_;
};

// For signal handlers: the line disappears, and none is drawn any more.
void end_progress() noexcept;

}  // namespace regard::program
