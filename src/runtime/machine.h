// SPDX-License-Identifier: Apache-2.0
//
// The resources that the machine grants this process: processors, a share of their time, and memory. Everything is read
// from text files under /proc and /sys. `root` is prepended to their paths: "" in the library, a folder of samples in
// tests.
// Read next: machine.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace regard::inline v0::internal {

// More threads than any machine has processors: the capacity of the pool and the largest REGARD_THREADS.
inline constexpr int kMaxThreads = 4096;

// The processors on which the calling thread may run, by number; never empty.
std::vector<int> affinity_cpus();
int num_affinity_cpus();
// A hash of their numbers, without allocating memory.
std::uint64_t affinity_hash();

// The number of physical cores of these processors, at least 1. A processor whose topology cannot be read counts as a
// core.
int physical_cores(const std::string& root, const std::vector<int>& cpus);

// The whole processors allowed by the process's cgroup and its ancestors, at least 1; no value if there is no limit.
std::optional<int> cgroup_cpus(const std::string& root);

// The bytes still available in the process's cgroup and its ancestors; cached files count as free.
std::optional<std::uint64_t> cgroup_memory_bytes(const std::string& root);

// MemAvailable of /proc/meminfo.
std::optional<std::uint64_t> system_memory_bytes(const std::string& root);

// REGARD_THREADS, if set. Throws std::invalid_argument if it is not an integer from 1 to kMaxThreads.
std::optional<int> threads_from_environment();

}  // namespace regard::inline v0::internal
