// SPDX-License-Identifier: Apache-2.0
//
// Tracks the current users of a KvCache: either calls that read all of it, or one call that changes it. Other calls are
// rejected.
// Read next: kv_cache.cpp, attention_decode.cpp.
#pragma once

#include <atomic>
#include <string>

#include "block.h"
#include "regard/error.h"

namespace regard::inline v0::internal {

// One thread changes a cache while no other thread reads all of it.
class CacheWriting {
 public:
  CacheWriting(const char* name, int& users) : users_(users) {
    int found = 0;
    if (!std::atomic_ref(users_).compare_exchange_strong(found, -1, std::memory_order_acquire))
      throw CacheInUse(std::string(name) + ": another thread is " + (found < 0 ? "changing" : "reading") +
                       " this cache");
  }
  ~CacheWriting() { std::atomic_ref(users_).store(0, std::memory_order_release); }
  CacheWriting(const CacheWriting&) = delete;
  CacheWriting& operator=(const CacheWriting&) = delete;

 private:
  int& users_;
};

// Any number of threads read all of a cache while no thread changes it.
template <class T>
class CacheReading {
 public:
  CacheReading(const char* name, const KvCache<T>& cache) : users_(cache.state_->users) {
    const std::atomic_ref users(users_);
    int found = users.load(std::memory_order_relaxed);
    do {
      if (found < 0) throw CacheInUse(std::string(name) + ": another thread is changing this cache");
    } while (!users.compare_exchange_weak(found, found + 1, std::memory_order_acquire, std::memory_order_relaxed));
  }
  ~CacheReading() { std::atomic_ref(users_).fetch_sub(1, std::memory_order_release); }
  CacheReading(const CacheReading&) = delete;
  CacheReading& operator=(const CacheReading&) = delete;

 private:
  int& users_;
};

}  // namespace regard::inline v0::internal
