// SPDX-License-Identifier: Apache-2.0
//
// The library as a plugin: loaded at run time, used with threads, and unloaded. Nothing remains: its threads are
// joined, its file is unmapped, its fork handlers are removed, and it can be loaded again.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "regard/c_api.h"

namespace regard::unload_test {
namespace {

int threads_of_this_process() {
  int count = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

bool is_mapped(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(path) != std::string::npos) return true;
  }
  return false;
}

// (256, 256) · (256, 256), large enough for threads; every element is 256 · 3.
bool multiply(void* library) {
  const auto linear = reinterpret_cast<decltype(&regard_linear_forward)>(dlsym(library, "regard_linear_forward"));
  if (linear == nullptr) return false;
  const std::vector<float> ones(256 * 256, 1.0f), threes(256 * 256, 3.0f);
  std::vector<float> product(256 * 256);
  const int64_t shape[2] = {256, 256};
  const regard_input a{ones.data(), REGARD_F32, 2, shape, nullptr}, b{threes.data(), REGARD_F32, 2, shape, nullptr};
  const regard_output c{product.data(), REGARD_F32, 2, shape, nullptr};
  regard_runtime runtime{};
  runtime.struct_size = sizeof runtime;
  runtime.num_threads = 3;
  return linear(&a, &b, nullptr, &c, &runtime) == REGARD_OK && product == std::vector<float>(256 * 256, 768.0f);
}

TEST(Unload, JoinsThreadsAndUnmapsTheLibrary) {
  const int before = threads_of_this_process();
  for (int round = 0; round < 3; ++round) {
    void* library = dlopen(REGARD_MODULE, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    EXPECT_EQ(threads_of_this_process(), before);
    EXPECT_TRUE(multiply(library));
    EXPECT_EQ(threads_of_this_process(), before + 2);
    ASSERT_EQ(dlclose(library), 0) << dlerror();
    EXPECT_EQ(threads_of_this_process(), before);
    EXPECT_FALSE(is_mapped(REGARD_MODULE));
  }
  const pid_t child = fork();
  if (child == 0) _exit(3);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

}  // namespace
}  // namespace regard::unload_test
