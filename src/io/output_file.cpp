// SPDX-License-Identifier: Apache-2.0
//
// Files that are flushed to disk and renamed; see regard/io/output_file.h.
// Read next: safetensors_writer.cpp.
#include "regard/io/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "file_bytes.h"
#include "regard/error.h"
#include "regard/io/utf8.h"

namespace regard::inline v0 {
namespace {

using internal::system_reason;

[[noreturn]] void fail_to_write(const std::string& name, const std::string& what) {
  throw DataError(fmt::format("{}: {}", escape_for_terminal(name), what));
}

// Some file systems cannot sync and report EINVAL; then there is nothing to wait for.
bool is_synced(int descriptor) { return ::fsync(descriptor) == 0 || errno == EINVAL; }

}  // namespace

// ---- NewFile

std::optional<NewFile> NewFile::create(const std::string& path, std::string name) {
  if (name.empty()) name = path;
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor >= 0) return NewFile(descriptor, std::move(name));
  if (errno == EEXIST) return std::nullopt;
  fail_to_write(name, "cannot be written: " + system_reason());
}

NewFile::~NewFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

NewFile::NewFile(NewFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), name_(std::move(other.name_)) {}

NewFile& NewFile::operator=(NewFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(name_, other.name_);
  return *this;
}

void NewFile::write(std::span<const std::byte> bytes) {
  constexpr std::size_t kMaxAtOnce = std::size_t{1} << 30;
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kMaxAtOnce));
    if (count >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      fail_to_write(name_, "cannot be written: " + system_reason());
    }
  }
}

void NewFile::set_permissions(unsigned mode) { static_cast<void>(::fchmod(descriptor_, mode)); }

void NewFile::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  std::string reason = is_synced(descriptor) ? "" : system_reason();
  if (::close(descriptor) != 0 && reason.empty()) reason = system_reason();
  if (!reason.empty()) fail_to_write(name_, "cannot be written: " + reason);
}

// ---- AtomicFile

AtomicFile::AtomicFile(const std::string& path) : name_(path), target_(path) {
  struct stat status{};
  const bool replaces = ::stat(path.c_str(), &status) == 0;
  if (replaces) {
    if (!S_ISREG(status.st_mode)) fail_to_write(name_, "is not a regular file; expected the name of a file");
    target_ = std::filesystem::canonical(path).string();
  }
  const std::filesystem::path folder = std::filesystem::path(target_).parent_path();
  for (int attempt = 0; !file_; ++attempt) {
    temporary_ = (folder / fmt::format(".regard-{}-{}", ::getpid(), attempt)).string();
    file_ = NewFile::create(temporary_, name_);
  }
  if (replaces) file_->set_permissions(status.st_mode & 07777);
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::commit() {
  file_->close();
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) {
    fail_to_write(name_, "cannot be moved into place: " + system_reason());
  }
  temporary_.clear();
  sync_folder(std::filesystem::path(target_).parent_path().string());
}

void sync_folder(const std::string& path) {
  const char* const name = path.empty() ? "." : path.c_str();
  const int folder = ::open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::string reason = folder >= 0 && is_synced(folder) ? "" : system_reason();
  if (folder >= 0) ::close(folder);
  if (!reason.empty()) fail_to_write(name, "cannot be written: " + reason);
}

}  // namespace regard::inline v0
