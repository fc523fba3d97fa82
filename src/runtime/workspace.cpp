// SPDX-License-Identifier: Apache-2.0
//
// Scratch memory that is kept between calls: fresh pages cost a tenth of a call that computes for ten milliseconds.
//
//     allocate    the newest kept block of the size's class, otherwise operator new
//     deallocate  kept as long as all kept blocks fit within most_kept_bytes(); otherwise operator delete
//
// Classes are powers of two and the midpoints between them, so that a block fits every request of its class. A caller
// that finds the list locked uses operator new: no thread waits, and a child of fork() can continue if its parent held
// the lock.
#include "workspace.h"

#include <array>
#include <bit>
#include <mutex>

#include "machine.h"

namespace regard::inline v0::internal {
namespace {

// Enough for the packed keys and values of a medium-sized call or its partial sums, and the scratch of its threads.
std::size_t most_kept_bytes() {
  static const std::size_t bytes = (std::size_t{64} << 20) * static_cast<std::size_t>((num_affinity_cpus() + 7) / 8);
  return bytes;
}
// For smaller blocks, operator new is cheap.
constexpr std::size_t kSmallestKept = std::size_t{1} << 14;

// With memory checkers, every block must really be freed.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeeps = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kKeeps = false;
#else
constexpr bool kKeeps = true;
#endif
#else
constexpr bool kKeeps = true;
#endif

std::size_t class_bytes(std::size_t bytes) {
  const std::size_t power = std::bit_ceil(bytes);
  return bytes <= power / 4 * 3 ? power / 4 * 3 : power;
}

class KeptMemory final : public std::pmr::memory_resource {
 public:
  ~KeptMemory() override {
    while (num_blocks_ > 0) release(blocks_[--num_blocks_]);
    closed_ = true;
  }

 private:
  struct Block {
    void* data;
    std::size_t bytes;
  };

  static bool is_kept(std::size_t bytes, std::size_t alignment) {
    return kKeeps && bytes >= kSmallestKept && bytes <= most_kept_bytes() && alignment == kWorkspaceAlignment;
  }
  static void release(const Block& block) {
    ::operator delete(block.data, block.bytes, std::align_val_t{kWorkspaceAlignment});
  }

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (!is_kept(bytes, alignment)) return ::operator new(bytes, std::align_val_t{alignment});
    bytes = class_bytes(bytes);
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) {
      for (std::size_t i = num_blocks_; i-- > 0;) {
        if (blocks_[i].bytes != bytes) continue;
        void* const data = blocks_[i].data;
        for (--num_blocks_; i < num_blocks_; ++i) blocks_[i] = blocks_[i + 1];
        kept_bytes_ -= bytes;
        return data;
      }
    }
    return ::operator new(bytes, std::align_val_t{alignment});
  }
  void do_deallocate(void* data, std::size_t bytes, std::size_t alignment) override {
    if (!is_kept(bytes, alignment)) return ::operator delete(data, bytes, std::align_val_t{alignment});
    const Block block{data, class_bytes(bytes)};
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock && !closed_) {
      // The oldest blocks are released first.
      while (num_blocks_ == blocks_.size() || (num_blocks_ > 0 && kept_bytes_ + block.bytes > most_kept_bytes())) {
        release(blocks_[0]);
        kept_bytes_ -= blocks_[0].bytes;
        for (std::size_t i = 0; i + 1 < num_blocks_; ++i) blocks_[i] = blocks_[i + 1];
        --num_blocks_;
      }
      blocks_[num_blocks_++] = block;
      kept_bytes_ += block.bytes;
      return;
    }
    release(block);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  std::mutex mutex_;
  std::array<Block, 32> blocks_{};  // oldest first
  std::size_t num_blocks_ = 0;
  std::size_t kept_bytes_ = 0;
  bool closed_ = false;
};

}  // namespace

std::pmr::memory_resource& default_workspace() {
  static KeptMemory memory;
  return memory;
}

}  // namespace regard::inline v0::internal
