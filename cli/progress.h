// SPDX-License-Identifier: Apache-2.0
//
// A progress line on standard error for long work:
//
//     attention [################------------------------]  41 %  12 s to go
//
// Nothing is shown unless standard error is a terminal and the work takes longer than a second. The line is erased when
// the work ends, also after an error or a signal. Read next: progress.cpp, attend.cpp.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "regard/tensor.h"

namespace regard::program {

// At most one at a time.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // A callback for Runtime::progress; empty if nothing would be shown. It must not be called after destruction.
  std::function<void(Index, Index)> report();
  // Text after the remaining time, from the next update on. Must not be called during an update.
  void note(std::string text) { note_ = std::move(text); }
  // Can be called from any thread, and from several at the same time.
  void update(Index done, Index total) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  void draw(std::chrono::milliseconds elapsed) noexcept;

  const std::string label_;
  std::string note_;
  const bool shown_;
  const Clock::time_point begin_ = Clock::now();
  std::atomic<Index> done_{0};
  std::atomic<Index> total_{0};
  std::atomic<std::chrono::milliseconds> next_draw_;
  std::mutex drawing_;
};

// For signal handlers: erases the line and prevents further ones.
void end_progress() noexcept;

}  // namespace regard::program
