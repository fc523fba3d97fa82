// SPDX-License-Identifier: Apache-2.0
//
// A workspace that counts what is allocated and returned, and can fail. It takes nothing from operator new. Threads may
// share it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory_resource>
#include <mutex>
#include <new>

namespace regard {

class CountingMemory : public std::pmr::memory_resource {
 public:
  std::size_t in_use = 0, largest = 0;  // bytes now, and at most
  int calls = 0;
  std::size_t reject_above = std::numeric_limits<std::size_t>::max();  // bytes in use
  int failing_call = -1;                                               // counted from 0

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    const std::scoped_lock lock(mutex_);
    if (calls++ == failing_call || in_use + bytes > reject_above) throw std::bad_alloc();
    in_use += bytes;
    largest = std::max(largest, in_use);
    if (void* const memory = std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment)) return memory;
    throw std::bad_alloc();
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t) override {
    const std::scoped_lock lock(mutex_);
    in_use -= bytes;
    std::free(memory);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  std::mutex mutex_;
};

}  // namespace regard
