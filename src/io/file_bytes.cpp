// SPDX-License-Identifier: Apache-2.0
//
// Opens and reads files of models; see file_bytes.h. The bytes are read once, so that they cannot change after a check;
// the length and time of the file, compared before and after, reveal a file that was written to in the meantime.
// Read next: safetensors.cpp.
#include "file_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "regard/error.h"
#include "regard/io/utf8.h"

namespace regard::inline v0::internal {
namespace {

std::string_view kind_of(unsigned mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR:
      return "a folder";
    case S_IFIFO:
      return "a named pipe";
    case S_IFSOCK:
      return "a socket";
    default:
      return "a device";
  }
}

}  // namespace

std::string system_reason() { return std::strerror(errno); }

void check_is_folder(const std::string& path) {
  struct stat status{};
  const auto fail = [&path](const std::string& what) {
    throw DataError(fmt::format("{}: {}; expected a model folder", escape_for_terminal(path), what));
  };
  if (::stat(path.c_str(), &status) != 0) fail("cannot be opened: " + system_reason());
  if (!S_ISDIR(status.st_mode)) fail("is not a folder");
}

void ModelFile::fail(const std::string& what) const {
  throw DataError(fmt::format("{}: {}", escape_for_terminal(path_), what));
}

bool ModelFile::stands(const std::string& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0;
}

ModelFile::ModelFile(std::string path) : path_(std::move(path)) {
  if (path_.find('\0') != std::string::npos) fail("the path contains a NUL character");
  const auto reject_unless_regular = [this](unsigned mode) {
    if (!S_ISREG(mode)) fail(fmt::format("is {}; expected a file", kind_of(mode)));
  };
  // Checked before opening, because opening a device can have side effects; and after, because the file may have been
  // replaced.
  struct stat status{};
  if (::stat(path_.c_str(), &status) != 0) fail("cannot be opened: " + system_reason());
  reject_unless_regular(status.st_mode);
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (descriptor_ < 0) fail("cannot be opened: " + system_reason());
  try {
    if (::fstat(descriptor_, &status) != 0) fail("cannot be opened: " + system_reason());
    reject_unless_regular(status.st_mode);
    opened_ = stamp();
    num_bytes_ = opened_.num_bytes;
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

ModelFile::~ModelFile() { ::close(descriptor_); }

ModelFile::Stamp ModelFile::stamp() const {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) fail("cannot be read: " + system_reason());
  return {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size), status.st_mtim.tv_sec,
          status.st_mtim.tv_nsec};
}

void ModelFile::check_unchanged() const {
  if (!(stamp() == opened_)) fail("changed while it was being read; try again once it is complete");
}

void ModelFile::read(std::uint64_t offset, std::span<std::byte> to, const std::stop_token& stop) const {
  constexpr std::size_t kMaxAtOnce = 1 << 20;  // a tenth of a second from a slow disk
  while (!to.empty()) {
    throw_if_stopped(stop, "reading a model");
    const std::size_t wanted = std::min(to.size(), kMaxAtOnce);
    const ssize_t came = ::pread(descriptor_, to.data(), wanted, static_cast<off_t>(offset));
    if (came < 0 && errno == EINTR) continue;
    if (came < 0) fail(fmt::format("byte {}: cannot be read: {}", offset, system_reason()));
    if (came == 0) fail(fmt::format("byte {}: the file was truncated while it was being read", offset));
    offset += static_cast<std::uint64_t>(came);
    to = to.subspan(static_cast<std::size_t>(came));
  }
}

SharedBytes ModelFile::read(std::uint64_t offset, std::uint64_t count, const std::stop_token& stop) const {
  constexpr std::size_t kAlignment = 64;  // a cache line and the widest vector
  std::size_t rounded = 0;
  if (__builtin_add_overflow(count, kAlignment - 1, &rounded)) throw std::bad_alloc();
  rounded = std::max(rounded / kAlignment * kAlignment, kAlignment);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
  if (memory == nullptr) throw std::bad_alloc();
  SharedBytes bytes{{memory, [](const std::byte* p) { std::free(const_cast<std::byte*>(p)); }}, count};
  read(offset, std::span(memory, count), stop);
  return bytes;
}

SharedBytes ModelFile::map() const {
  const std::size_t count = num_bytes_;
  if (count == 0) return {};
  void* address = ::mmap(nullptr, count, PROT_READ, MAP_PRIVATE, descriptor_, 0);
  if (address == MAP_FAILED) fail("cannot be mapped: " + system_reason());
  return {{static_cast<const std::byte*>(address),
           [count](const std::byte* p) { ::munmap(const_cast<std::byte*>(p), count); }},
          count};
}

}  // namespace regard::inline v0::internal
