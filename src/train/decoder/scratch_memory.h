// SPDX-License-Identifier: Apache-2.0
//
// Scratch memory of a model: blocks that one step has returned are reused by the next, which allocates nothing.
//
//     allocate    a returned block of the size's class, otherwise operator new
//     deallocate  the block joins those of its class
//
// Classes are powers of two. The library's own default (runtime/workspace.cpp) uses operator new for small blocks, and
// while another thread is taking or returning a block. Read next: decoder_training.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory_resource>
#include <mutex>
#include <new>
#include <vector>

#include "regard/runtime.h"

namespace regard::inline v0::internal {

class ScratchMemory final : public std::pmr::memory_resource {
 public:
  ScratchMemory() = default;
  ~ScratchMemory() override {
    for (std::size_t number = 0; number < classes_.size(); ++number)
      for (void* const block : classes_[number].returned) ::operator delete(block, kAlignment);
  }
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct SizeClass {
    std::size_t num_blocks = 0;
    std::vector<void*> returned;  // has room for all blocks
  };

  static std::size_t class_of(std::size_t bytes) {
    return static_cast<std::size_t>(std::bit_width(std::max<std::size_t>(bytes, 64) - 1));
  }

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (bytes > SIZE_MAX / 2 || alignment > static_cast<std::size_t>(kAlignment)) throw std::bad_alloc();
    const std::size_t number = class_of(bytes);
    const std::scoped_lock lock(mutex_);
    SizeClass& of = classes_[number];
    if (!of.returned.empty()) {
      void* const block = of.returned.back();
      of.returned.pop_back();
      return block;
    }
    of.returned.reserve(of.num_blocks + 1);
    void* const block = ::operator new(std::size_t{1} << number, kAlignment);
    ++of.num_blocks;
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t) override {
    const std::scoped_lock lock(mutex_);
    classes_[class_of(bytes)].returned.push_back(block);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  std::mutex mutex_;
  std::array<SizeClass, 64> classes_;
};

// The caller's runtime, with this scratch memory unless the caller has chosen another.
inline Runtime with_scratch(const Runtime& runtime, ScratchMemory& memory) {
  Runtime result = runtime;
  if (result.workspace == nullptr) result.workspace = &memory;
  return result;
}

}  // namespace regard::inline v0::internal
