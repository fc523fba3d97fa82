// SPDX-License-Identifier: Apache-2.0
//
// The number of threads and the memory that this process may use, and the library's version.
//
//     threads = REGARD_THREADS, or min(physical cores in the affinity mask, cgroup quota)
//     memory  = min(MemAvailable, the rest available in each cgroup from the process's own up to the root)
//
// Read next: machine.cpp, parallel.cpp.
#include "regard/runtime.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "machine.h"

namespace regard::inline v0 {

void throw_if_stopped(const std::stop_token& stop, std::string_view operation) {
  if (stop.stop_requested()) throw Cancelled(std::string(operation) + " was stopped");
}

int default_num_threads() {
  if (const std::optional<int> threads = internal::threads_from_environment()) return *threads;
  // Reading /sys takes longer than a small call, so the last result is cached with a fingerprint of its mask, both in
  // one word: this avoids a lock that a fork could leave held.
  static constinit std::atomic<std::uint64_t> last{0};
  constexpr std::uint64_t kCount = 0xffff;
  const std::uint64_t fingerprint = internal::affinity_hash() & ~kCount;
  const std::uint64_t known = last.load(std::memory_order_relaxed);
  if ((known & kCount) != 0 && (known & ~kCount) == fingerprint) return static_cast<int>(known & kCount);

  int threads = std::min(internal::physical_cores("", internal::affinity_cpus()), internal::kMaxThreads);
  threads = std::min(threads, internal::cgroup_cpus("").value_or(threads));
  last.store(fingerprint | static_cast<std::uint64_t>(threads), std::memory_order_relaxed);
  return threads;
}

std::size_t available_memory_bytes() {
  constexpr std::uint64_t kNoLimit = std::numeric_limits<std::size_t>::max();
  std::uint64_t bytes = internal::system_memory_bytes("").value_or(kNoLimit);
  if (bytes == kNoLimit) {
    const long pages = sysconf(_SC_AVPHYS_PAGES);
    const long page_bytes = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page_bytes > 0) bytes = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes);
  }
  return static_cast<std::size_t>(std::min(bytes, internal::cgroup_memory_bytes("").value_or(kNoLimit)));
}

std::string_view version() { return REGARD_VERSION; }

}  // namespace regard::inline v0
