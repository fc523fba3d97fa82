// SPDX-License-Identifier: Apache-2.0
//
// What the machine grants this process: processors, a share of their time, memory. Everything is read from text files
// under /proc and /sys; `root` stands before their paths, is "" in the library and a folder of examples in the tests.
// Read next: runtime.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace regard::inline v0::internal {

// More threads than any machine has processors; what the pool can hold, and the largest REGARD_THREADS.
inline constexpr int kMaxThreads = 4096;

// The processors that the calling thread may run on, by number; never empty.
std::vector<int> affinity_cpus();
int num_affinity_cpus();

// How many physical cores these processors belong to, at least 1. One whose topology cannot be read counts as a core.
int physical_cores(const std::string& root, const std::vector<int>& cpus);

// Whole processors that the process's cgroup and those above it allow, at least 1; none where nothing limits them.
std::optional<int> cgroup_cpus(const std::string& root);

// Bytes that the process's cgroup and those above it leave, cached files counted as free.
std::optional<std::uint64_t> cgroup_memory_bytes(const std::string& root);

// MemAvailable of /proc/meminfo.
std::optional<std::uint64_t> system_memory_bytes(const std::string& root);

// REGARD_THREADS, if set. Throws std::invalid_argument when it is not a whole number from 1 to kMaxThreads.
std::optional<int> threads_from_environment();

}  // namespace regard::inline v0::internal
