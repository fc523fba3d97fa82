// SPDX-License-Identifier: Apache-2.0
//
// A child process that is killed at a random moment, for tests of files that must survive it. Such tests are named
// Forked…, and are not run with the thread sanitizer, which does not support forks of multithreaded processes.
// Read next: checkpoint_test.cpp, trainer_test.cpp.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>

namespace regard {

// A process with an address sanitizer takes long to start and to end.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr int kKills = 20;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr int kKills = 20;
#else
inline constexpr int kKills = 100;
#endif
#else
inline constexpr int kKills = 100;
#endif

// Where there is a file system in memory, no time passes while files are forced to disk, and the moments are spread
// over all operations.
inline std::filesystem::path fastest_folder() {
  return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
}

// The time that a function takes in a child process, with its start.
template <class Work>
std::chrono::microseconds time_in_child(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(60);
    work();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
}

// Runs a function, which must not return, in a child process, and kills it after half to twice the given time.
template <class Child>
void kill_at_random_moment(Child child, std::chrono::microseconds time, std::uint32_t& random) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(60);
    try {
      child();
    } catch (...) {
    }
    ::_exit(1);
  }
  ASSERT_GT(pid, 0);
  random = random * 1664525 + 1013904223;
  ::usleep(static_cast<useconds_t>(static_cast<double>(time.count()) * (0.5 + 3.5e-10 * random)));
  ::kill(pid, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the child failed";
}

}  // namespace regard
