// SPDX-License-Identifier: Apache-2.0
//
// Scratch memory of an operator call: every byte comes from Runtime::workspace and is returned when the call ends.
// Read next: workspace.cpp (the default memory resource).
#pragma once

#include <cstddef>
#include <limits>
#include <memory_resource>
#include <new>
#include <vector>

#include "regard/runtime.h"

namespace regard::inline v0::internal {

inline constexpr std::size_t kWorkspaceAlignment = 64;  // a cache line

// Keeps returned memory for the next call, up to 64 MiB for every eight processors.
std::pmr::memory_resource& default_workspace();

inline std::pmr::memory_resource* workspace_of(const Runtime& runtime) {
  return runtime.workspace ? runtime.workspace : &default_workspace();
}

// A list in workspace memory: sequences, heads, tasks. Created with workspace_of(runtime).
template <class T>
using ScratchVector = std::pmr::vector<T>;

// `count` elements, aligned to a cache line and uninitialized.
template <class T>
class Workspace {
 public:
  Workspace(const Runtime& runtime, Index count) : resource_(workspace_of(runtime)), bytes_(bytes_of(count)) {
    if (bytes_ > 0) data_ = static_cast<T*>(resource_->allocate(bytes_, kWorkspaceAlignment));
  }
  ~Workspace() {
    if (data_) resource_->deallocate(data_, bytes_, kWorkspaceAlignment);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  T* data() const { return data_; }

 private:
  static std::size_t bytes_of(Index count) {
    if (static_cast<std::uint64_t>(count) > std::numeric_limits<std::ptrdiff_t>::max() / sizeof(T)) {
      throw std::bad_alloc();
    }
    return static_cast<std::size_t>(count) * sizeof(T);
  }

  std::pmr::memory_resource* resource_;
  std::size_t bytes_;
  T* data_ = nullptr;
};

}  // namespace regard::inline v0::internal
