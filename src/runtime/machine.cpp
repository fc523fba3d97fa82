// SPDX-License-Identifier: Apache-2.0
//
// The machine's resources; see machine.h. A cgroup's files are in its own folder below the mount point of its
// hierarchy; the limits of every ancestor apply. Version 2 has one hierarchy (cpu.max, memory.max), version 1 has one
// per controller; both may be mounted simultaneously.
// Read next: runtime.cpp.
#include "machine.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "regard/error.h"

namespace regard::inline v0::internal {
namespace {

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// The whole text as a number; no value for "max" and anything else.
std::optional<std::int64_t> parse_number(std::string_view text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || text.empty()) return std::nullopt;
  return number;
}

std::optional<std::int64_t> read_number(const std::string& path) {
  const std::optional<std::string> line = first_line(path);
  return line ? parse_number(*line) : std::nullopt;
}

// The number after `key` in a file of lines "key number …".
std::optional<std::int64_t> read_entry(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name, number;
    if (words >> name >> number && name == key) return parse_number(number);
  }
  return std::nullopt;
}

bool contains(const std::string& list, std::string_view name) {
  std::istringstream names(list);
  std::string entry;
  while (std::getline(names, entry, ',')) {
    if (entry == name) return true;
  }
  return false;
}

// The process's folder in one hierarchy, such as "/a/b". The controller "" means version 2.
std::optional<std::string> cgroup_path(const std::string& root, std::string_view controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {  // "4:memory:/a/b" or "0::/a/b"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? controllers.empty() : contains(controllers, controller)) return line.substr(second + 1);
  }
  return std::nullopt;
}

// The folders of the process's cgroup in one hierarchy, innermost first, up to its mount point.
std::vector<std::string> cgroup_folders(const std::string& root, std::string_view controller) {
  const std::optional<std::string> path = cgroup_path(root, controller);
  if (!path) return {};
  std::ifstream file(root + "/proc/self/mountinfo");
  std::string line;
  while (std::getline(file, line)) {  // "35 31 0:32 MOUNTED_FOLDER MOUNT_POINT options … - type source options"
    std::istringstream words(line);
    std::string word, mounted_folder, mount_point, type, options;
    words >> word >> word >> word >> mounted_folder >> mount_point;
    while (words >> word && word != "-") {
    }
    words >> type >> word >> options;
    if (controller.empty() ? type != "cgroup2" : type != "cgroup" || !contains(options, controller)) continue;

    // In a container, the mounted folder is often the process's own. For a path outside it, only the mount point is
    // visible.
    std::string below = *path;
    if (mounted_folder != "/") {
      const bool inside = below.starts_with(mounted_folder) &&
                          (below.size() == mounted_folder.size() || below[mounted_folder.size()] == '/');
      below = inside ? below.substr(mounted_folder.size()) : "";
    }
    if (below.find("/..") != std::string::npos) below.clear();
    while (below.ends_with('/')) below.pop_back();

    std::vector<std::string> folders;
    while (!below.empty()) {
      folders.push_back(root + mount_point + below);
      below.resize(below.rfind('/') == std::string::npos ? 0 : below.rfind('/'));
    }
    folders.push_back(root + mount_point);
    return folders;
  }
  return {};
}

// Calls use(number) for each processor that the calling thread may run on, at least one.
template <class Use>
void for_each_cpu(const Use& use) {
  constexpr std::size_t kMaxCpus = 8192;  // the maximum that Linux supports
  std::array<std::uint64_t, kMaxCpus / 64> mask{};
  const bool read = sched_getaffinity(0, sizeof mask, reinterpret_cast<cpu_set_t*>(mask.data())) == 0;
  std::size_t count = 0;
  for (std::size_t word = 0; read && word < mask.size(); ++word) {
    for (std::uint64_t bits = mask[word]; bits != 0; bits &= bits - 1, ++count)
      use(static_cast<int>(word * 64) + std::countr_zero(bits));
  }
  if (count == 0) use(0);
}

}  // namespace

std::vector<int> affinity_cpus() {
  std::vector<int> cpus;
  for_each_cpu([&](int cpu) { cpus.push_back(cpu); });
  return cpus;
}

int num_affinity_cpus() {
  int count = 0;
  for_each_cpu([&](int) { ++count; });
  return count;
}

std::uint64_t affinity_hash() {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for_each_cpu([&](int cpu) { hash = (hash ^ static_cast<std::uint64_t>(cpu)) * 0x100000001b3; });
  return hash;
}

int physical_cores(const std::string& root, const std::vector<int>& cpus) {
  std::set<std::string> cores;  // processors of one core have the same list of siblings
  for (int cpu : cpus) {
    const std::string topology = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    std::optional<std::string> siblings = first_line(topology + "core_cpus_list");
    if (!siblings) siblings = first_line(topology + "thread_siblings_list");
    cores.insert(siblings.value_or(std::to_string(cpu)));
  }
  return std::max(1, static_cast<int>(cores.size()));
}

std::optional<int> cgroup_cpus(const std::string& root) {
  std::optional<int> lowest;
  const auto limit = [&lowest](std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
    if (!quota || !period || *quota <= 0 || *period <= 0) return;
    const int cpus = static_cast<int>(std::clamp<std::int64_t>(*quota / *period, 1, kMaxThreads));
    lowest = std::min(lowest.value_or(cpus), cpus);
  };
  for (const std::string& folder : cgroup_folders(root, "")) {
    std::istringstream words(first_line(folder + "/cpu.max").value_or(""));  // "150000 100000" or "max 100000"
    std::string quota, period;
    words >> quota >> period;
    limit(parse_number(quota), parse_number(period));
  }
  for (const std::string& folder : cgroup_folders(root, "cpu")) {
    limit(read_number(folder + "/cpu.cfs_quota_us"), read_number(folder + "/cpu.cfs_period_us"));
  }
  return lowest;
}

std::optional<std::uint64_t> cgroup_memory_bytes(const std::string& root) {
  std::optional<std::uint64_t> lowest;
  // Files in the page cache count as used, but the kernel reclaims inactive ones before it denies memory.
  const auto limit = [&lowest](std::optional<std::int64_t> maximum, std::optional<std::int64_t> used,
                               std::optional<std::int64_t> cached) {
    if (!maximum || !used || *maximum < 0 || *used < 0) return;
    const std::int64_t kept = std::max<std::int64_t>(0, *used - std::max<std::int64_t>(0, cached.value_or(0)));
    const auto left = static_cast<std::uint64_t>(std::max<std::int64_t>(0, *maximum - kept));
    lowest = std::min(lowest.value_or(left), left);
  };
  for (const std::string& folder : cgroup_folders(root, "")) {
    limit(read_number(folder + "/memory.max"), read_number(folder + "/memory.current"),
          read_entry(folder + "/memory.stat", "inactive_file"));
  }
  for (const std::string& folder : cgroup_folders(root, "memory")) {
    limit(read_number(folder + "/memory.limit_in_bytes"), read_number(folder + "/memory.usage_in_bytes"),
          read_entry(folder + "/memory.stat", "total_inactive_file"));
  }
  return lowest;
}

std::optional<std::uint64_t> system_memory_bytes(const std::string& root) {
  const std::optional<std::int64_t> kibibytes = read_entry(root + "/proc/meminfo", "MemAvailable:");
  if (!kibibytes || *kibibytes < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*kibibytes) * 1024;
}

std::optional<int> threads_from_environment() {
  const char* text = std::getenv("REGARD_THREADS");
  if (text == nullptr) return std::nullopt;
  const std::optional<std::int64_t> threads = parse_number(text);
  if (!threads || *threads < 1 || *threads > kMaxThreads) {
    throw InvalidArgument("REGARD_THREADS is \"" + std::string(text) + "\"; expected an integer from 1 to " +
                          std::to_string(kMaxThreads));
  }
  return static_cast<int>(*threads);
}

}  // namespace regard::inline v0::internal
