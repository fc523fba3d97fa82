// SPDX-License-Identifier: Apache-2.0
//
// The threads and memory that the machine grants: simulated /proc and /sys trees, and the environment.
#include "regard/runtime.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "regard/c_api.h"
#include "runtime/machine.h"
#include "support/rejection.h"

namespace regard::runtime_test {
namespace {

using internal::cgroup_cpus;
using internal::cgroup_memory_bytes;
using internal::physical_cores;
using internal::system_memory_bytes;

// A folder that serves as /.
class FakeMachine : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/regard-machine-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root = name;
  }
  void TearDown() override { std::filesystem::remove_all(root); }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  void siblings(int cpu, const std::string& list, const std::string& file = "thread_siblings_list") const {
    write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + file, list + "\n");
  }
  void version_2(const std::string& path) const {
    write("/proc/self/cgroup", "0::" + path + "\n");
    write("/proc/self/mountinfo",
          "22 1 0:20 / /proc rw - proc proc rw\n"
          "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  void version_1(const std::string& path, const std::string& mounted_folder) const {
    write("/proc/self/cgroup", "9:name=systemd:/x\n4:memory:" + path + "\n2:cpu,cpuacct:" + path + "\n0::/\n");
    write("/proc/self/mountinfo", "32 31 0:29 " + mounted_folder + " /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n" +
                                      "35 31 0:32 " + mounted_folder + " /cg/memory rw - cgroup cgroup rw,memory\n");
  }

  std::string root;
};

TEST_F(FakeMachine, CountsAPhysicalCoreOnce) {
  siblings(0, "0,2");
  siblings(2, "0,2");
  siblings(1, "1,3");
  siblings(3, "1,3", "core_cpus_list");
  siblings(1, "1,3", "core_cpus_list");
  EXPECT_EQ(physical_cores(root, {0, 1, 2, 3}), 2);
  EXPECT_EQ(physical_cores(root, {0, 2}), 1);
  EXPECT_EQ(physical_cores(root, {3}), 1);
}

TEST_F(FakeMachine, ProcessorWithoutTopologyCountsAsACore) {
  siblings(0, "0-1");
  siblings(1, "0-1");
  EXPECT_EQ(physical_cores(root, {0, 1, 7, 9}), 3);
  EXPECT_EQ(physical_cores(root + "/nothing", {4, 5}), 2);
}

TEST_F(FakeMachine, NoCgroupMeansNoLimit) {
  EXPECT_EQ(cgroup_cpus(root), std::nullopt);
  EXPECT_EQ(cgroup_memory_bytes(root), std::nullopt);
  EXPECT_EQ(system_memory_bytes(root), std::nullopt);
}

TEST_F(FakeMachine, Version2UsesTheLowestQuotaOfAllAncestors) {
  version_2("/a/b");
  write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpus(root), std::nullopt);
  write("/sys/fs/cgroup/a/cpu.max", "350000 100000\n");
  EXPECT_EQ(cgroup_cpus(root), 3);
  write("/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(cgroup_cpus(root), 1);
  write("/sys/fs/cgroup/a/b/cpu.max", "800000 100000\n");
  EXPECT_EQ(cgroup_cpus(root), 3);
  write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(cgroup_cpus(root), 2);
  write("/sys/fs/cgroup/a/b/c/cpu.max", "100000 100000\n");  // not above the process
  EXPECT_EQ(cgroup_cpus(root), 2);
}

TEST_F(FakeMachine, MalformedQuotasAreNoLimit) {
  version_2("/");
  for (const char* text : {"", "max", "-1 100000", "100000", "100000 0", "abc def", "100000 max", "1e5 1e4"}) {
    write("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(cgroup_cpus(root), std::nullopt) << text;
  }
  write("/sys/fs/cgroup/cpu.max", "9223372036854775807 1\n");
  EXPECT_EQ(cgroup_cpus(root), internal::kMaxThreads);
}

TEST_F(FakeMachine, Version1ReadsEachControllerInItsOwnHierarchy) {
  version_1("/job/7", "/");
  write("/cg/cpu/job/7/cpu.cfs_quota_us", "-1\n");
  write("/cg/cpu/job/7/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpus(root), std::nullopt);
  write("/cg/cpu/job/cpu.cfs_quota_us", "250000\n");
  write("/cg/cpu/job/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(cgroup_cpus(root), 5);

  write("/cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/cg/memory/memory.usage_in_bytes", "5000\n");
  write("/cg/memory/job/7/memory.limit_in_bytes", "4000\n");
  write("/cg/memory/job/7/memory.usage_in_bytes", "3000\n");
  EXPECT_EQ(cgroup_memory_bytes(root), 1000u);
  write("/cg/memory/job/7/memory.stat", "inactive_file 1\ntotal_inactive_file 600\n");
  EXPECT_EQ(cgroup_memory_bytes(root), 1600u);
}

TEST_F(FakeMachine, ContainerFindsItsFolderAtTheMountPoint) {
  version_1("/docker/abc", "/docker/abc");
  write("/cg/cpu/cpu.cfs_quota_us", "400000\n");
  write("/cg/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpus(root), 4);
  version_1("/docker/abcdef", "/docker/abc");  // another container's name: only the mount point is known
  EXPECT_EQ(cgroup_cpus(root), 4);
  version_1("/../../other", "/");
  EXPECT_EQ(cgroup_cpus(root), 4);
  version_1("/docker/abc/inner", "/docker/abc");
  write("/cg/cpu/inner/cpu.cfs_quota_us", "100000\n");
  write("/cg/cpu/inner/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpus(root), 1);
}

TEST_F(FakeMachine, Version2MemoryIsTheLowestRemainder) {
  version_2("/a/b");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  write("/sys/fs/cgroup/a/b/memory.current", "100\n");
  EXPECT_EQ(cgroup_memory_bytes(root), std::nullopt);
  write("/sys/fs/cgroup/a/memory.max", "10000\n");
  write("/sys/fs/cgroup/a/memory.current", "9000\n");
  EXPECT_EQ(cgroup_memory_bytes(root), 1000u);
  write("/sys/fs/cgroup/a/memory.stat", "anon 9000\ninactive_file 500\n");
  EXPECT_EQ(cgroup_memory_bytes(root), 1500u);
  write("/sys/fs/cgroup/a/memory.current", "20000\n");
  EXPECT_EQ(cgroup_memory_bytes(root), 0u);
}

TEST_F(FakeMachine, ReadsMemAvailable) {
  write("/proc/meminfo", "MemTotal:       16384 kB\nMemFree:  7 kB\nMemAvailable:    4096 kB\n");
  EXPECT_EQ(system_memory_bytes(root), 4096u * 1024u);
}

TEST(Memory, IsPositiveAndAtMostMemAvailable) {
  const std::size_t bytes = available_memory_bytes();
  EXPECT_GT(bytes, 0u);
  const auto system = system_memory_bytes("");
  ASSERT_TRUE(system.has_value());
  EXPECT_LE(bytes, 2 * *system);  // twice: other processes change it between the two readings
}

// Restores REGARD_THREADS.
class Threads : public testing::Test {
 protected:
  void SetUp() override {
    const char* text = std::getenv("REGARD_THREADS");
    if (text != nullptr) before_ = text;
    unsetenv("REGARD_THREADS");
  }
  void TearDown() override {
    before_.empty() ? unsetenv("REGARD_THREADS") : setenv("REGARD_THREADS", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

TEST_F(Threads, ComeFromTheEnvironment) {
  setenv("REGARD_THREADS", "1", 1);
  EXPECT_EQ(default_num_threads(), 1);
  setenv("REGARD_THREADS", "4096", 1);
  EXPECT_EQ(default_num_threads(), 4096);
  setenv("REGARD_THREADS", "007", 1);
  EXPECT_EQ(default_num_threads(), 7);
}

TEST_F(Threads, MalformedVariableIsReportedWithItsValue) {
  for (const std::string text :
       {"", "0", "-1", "4097", "2.5", "two", "2 ", " 2", "+2", "0x2", "99999999999999999999"}) {
    setenv("REGARD_THREADS", text.c_str(), 1);
    EXPECT_EQ(rejection([] { default_num_threads(); }),
              "REGARD_THREADS is \"" + text + "\"; expected an integer from 1 to 4096");
  }
}

TEST_F(Threads, FollowTheAffinityMaskOfTheCaller) {
  const std::vector<int> cpus = internal::affinity_cpus();
  EXPECT_LE(default_num_threads(), static_cast<int>(cpus.size()));
  EXPECT_EQ(default_num_threads(), default_num_threads());
  int pinned = 0, unpinned = 0;
  std::vector<int> seen;
  std::thread([&] {
    unpinned = default_num_threads();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(cpus.back()), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    seen = internal::affinity_cpus();
    pinned = default_num_threads();
  }).join();
  EXPECT_EQ(unpinned, default_num_threads());
  EXPECT_EQ(seen, std::vector<int>{cpus.back()});
  EXPECT_EQ(pinned, 1);
}

TEST(Version, HasThreeNumbers) {
  int major = -1, minor = -1, patch = -1, end = 0;
  const std::string text(version());
  ASSERT_EQ(std::sscanf(text.c_str(), "%d.%d.%d%n", &major, &minor, &patch, &end), 3);
  EXPECT_EQ(static_cast<std::size_t>(end), text.size());
  EXPECT_TRUE(major >= 0 && minor >= 0 && patch >= 0);
}

// Thrown as itself, caught as the standard type and as Error, with its text and the code shared with C.
template <class Thrown, class Standard>
void expect_error_type(ErrorCode code, std::int32_t status) {
  const auto expect = [&](const auto& error) { EXPECT_STREQ(error.what(), "what is wrong"); };
  try {
    throw Thrown("what is wrong");
  } catch (const Standard& error) {
    expect(error);
    EXPECT_EQ(error_code(error), code);
  }
  try {
    throw Thrown("what is wrong");
  } catch (const Error& error) {
    expect(error);
    EXPECT_EQ(error.code(), code);
  }
  EXPECT_EQ(static_cast<std::int32_t>(code), status);
}

TEST(Errors, AreStandardTypesWithCodesOfTheCInterface) {
  expect_error_type<InvalidArgument, std::invalid_argument>(ErrorCode::invalid_argument, REGARD_INVALID_ARGUMENT);
  expect_error_type<Cancelled, std::runtime_error>(ErrorCode::cancelled, REGARD_CANCELLED);
  expect_error_type<OutOfPages, std::runtime_error>(ErrorCode::out_of_pages, REGARD_OUT_OF_PAGES);
  expect_error_type<CacheInUse, std::logic_error>(ErrorCode::cache_in_use, REGARD_CACHE_IN_USE);
  expect_error_type<DataError, std::runtime_error>(ErrorCode::data, REGARD_DATA_ERROR);
  EXPECT_EQ(static_cast<std::int32_t>(ErrorCode::rank_failed), REGARD_RANK_FAILED);
  EXPECT_EQ(error_code(std::bad_alloc()), ErrorCode::out_of_memory);
  EXPECT_EQ(static_cast<std::int32_t>(ErrorCode::out_of_memory), REGARD_OUT_OF_MEMORY);
  EXPECT_EQ(error_code(std::out_of_range("of the caller's own")), ErrorCode::internal);
  EXPECT_EQ(static_cast<std::int32_t>(ErrorCode::internal), REGARD_INTERNAL);
}

}  // namespace
}  // namespace regard::runtime_test
