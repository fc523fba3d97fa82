// SPDX-License-Identifier: Apache-2.0
//
// A lock for many readers or one writer, which serves threads in the order of arrival.
//
//     waiting   [reader] [reader] [writer] [reader]      a thread at the front that may enter leaves the queue
//     inside     reader   reader                         the writer waits for these two; no later reader overtakes it
//
// std::shared_timed_mutex lets new readers overtake a waiting writer, which may then wait indefinitely.
// Read next: cache.cpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace regard::python {

class FairLock {
 public:
  enum class Use { read, write };

  // A position in the queue and, after enter(), ownership of the lock. The destructor gives up either. A Place must not
  // be passed to another thread.
  class Place {
   public:
    Place(FairLock& lock, Use use) : lock_(&lock), use_(use) {
      const std::scoped_lock held(lock.mutex_);
      at_ = lock.waiting_.insert(lock.waiting_.end(), use);
    }
    Place(Place&& other) noexcept
        : lock_(std::exchange(other.lock_, nullptr)), use_(other.use_), at_(other.at_), inside_(other.inside_) {}
    ~Place() {
      if (lock_ == nullptr) return;
      {
        const std::scoped_lock held(lock_->mutex_);
        inside_ ? lock_->leave(use_) : static_cast<void>(lock_->waiting_.erase(at_));
      }
      lock_->changed_.notify_all();
    }

    // Waits for at most the given time. Returns whether the lock was entered.
    bool enter(std::chrono::milliseconds longest) {
      std::unique_lock held(lock_->mutex_);
      if (inside_) return true;
      if (!lock_->changed_.wait_for(held, longest, [&] { return lock_->admits(at_); })) return false;
      lock_->waiting_.erase(at_);
      inside_ = true;
      use_ == Use::write ? static_cast<void>(lock_->writing_ = true)
                         : lock_->readers_.push_back(std::this_thread::get_id());
      held.unlock();
      lock_->changed_.notify_all();  // readers enter one after the other
      return true;
    }

   private:
    FairLock* lock_;
    Use use_;
    std::list<Use>::iterator at_;
    bool inside_ = false;
  };

 private:
  bool admits(std::list<Use>::iterator place) const {
    if (writing_) return false;
    if (*place == Use::write) return readers_.empty() && place == waiting_.begin();
    // A thread that is already reading, and reads again in a signal handler, must not wait for a writer that is waiting
    // for it.
    return place == waiting_.begin() || std::ranges::find(readers_, std::this_thread::get_id()) != readers_.end();
  }
  void leave(Use use) {
    if (use == Use::write) {
      writing_ = false;
    } else {
      readers_.erase(std::ranges::find(readers_, std::this_thread::get_id()));
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Use> waiting_;
  std::vector<std::thread::id> readers_;
  bool writing_ = false;
};

}  // namespace regard::python
