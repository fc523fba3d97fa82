// SPDX-License-Identifier: Apache-2.0
//
// Locks temporary files and removes those that are not locked; see remains.h.
//
// The file is opened for writing, because NFS has no exclusive lock of a file that is only read.
// Read next: program.cpp.
#include "remains.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>

namespace regard::program {
namespace {

int open_to_lock(const std::string& path) { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW); }

}  // namespace

TemporaryFileLock::TemporaryFileLock(const std::string& path) : descriptor_(open_to_lock(path)) {
  if (descriptor_ < 0) {
    lost_ = errno == ENOENT;
  } else if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    lost_ = errno == EWOULDBLOCK;
  } else {
    lost_ = ::access(path.c_str(), F_OK) != 0;
  }
}

TemporaryFileLock::~TemporaryFileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string temporary_prefix(const std::string& file_name) { return "." + file_name + "-"; }

void remove_remains(const std::filesystem::path& folder, const std::string& prefix) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix) || name.find_first_not_of("0123456789-", prefix.size()) != std::string::npos)
      continue;
    const int descriptor = open_to_lock(entry->path().string());
    if (descriptor < 0) continue;
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) ::unlink(entry->path().c_str());
    ::close(descriptor);
  }
}

}  // namespace regard::program
