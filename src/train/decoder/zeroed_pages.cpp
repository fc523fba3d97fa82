// SPDX-License-Identifier: Apache-2.0
//
// See zeroed_pages.h.
#include "zeroed_pages.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace regard::inline v0::internal {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::byte* mapped(std::size_t count) {
  void* const memory = mmap(nullptr, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(memory);
}

// Memory that starts at a huge page boundary: what is mapped before and after it is released.
std::byte* mapped_huge(std::size_t count) {
  std::byte* const all = mapped(count + kHugePage);
  const std::size_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(all) % kHugePage) % kHugePage;
  if (before > 0) munmap(all, before);
  if (before < kHugePage) munmap(all + before + count, kHugePage - before);
#ifdef MADV_HUGEPAGE
  madvise(all + before, count, MADV_HUGEPAGE);
#endif
  return all + before;
}

}  // namespace

void ReleasePages::operator()(std::byte* memory) const { munmap(memory, size); }

Pages zeroed_pages(std::size_t count) {
  constexpr std::size_t kPage = std::size_t{64} << 10, kMany = 4 * kHugePage;
  if (count == 0) return {};
  if (count > SIZE_MAX / 2) throw std::bad_alloc();
  const std::size_t unit = count < kMany ? kPage : kHugePage;
  const std::size_t size = (count + unit - 1) / unit * unit;
  return Pages(count < kMany ? mapped(size) : mapped_huge(size), ReleasePages{size});
}

}  // namespace regard::inline v0::internal
