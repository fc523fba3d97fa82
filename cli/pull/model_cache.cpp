// SPDX-License-Identifier: Apache-2.0
//
// The location of models; see model_cache.h. Read next: pull.cpp.
#include "model_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <span>
#include <stdexcept>
#include <system_error>

#include "minilm_files.h"
#include "program.h"
#include "regard/io/sha256.h"

namespace regard::program {
namespace {

// How a file differs from the pinned one, or nothing. Type, size and contents are read from one descriptor, so that the
// file cannot be replaced in between.
std::optional<std::string> difference(const std::string& path, const minilm::PinnedFile& pinned,
                                      const std::function<void(std::size_t)>& took) {
  const auto cannot = [](int error) { return "cannot be read: " + reason(error); };
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (descriptor < 0) return errno == ENOENT || errno == ENOTDIR ? "is missing" : cannot(errno);
  const auto close = [](const int* number) { ::close(*number); };
  const std::unique_ptr<const int, decltype(close)> closed_at_the_end(&descriptor, close);
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return cannot(errno);
  if (!S_ISREG(status.st_mode)) return "is not a file";
  if (status.st_size != pinned.num_bytes)
    return fmt::format("has {} bytes instead of {}", status.st_size, pinned.num_bytes);
  Sha256 sum;
  std::array<std::byte, 1 << 16> piece;
  for (;;) {
    const ssize_t count = ::read(descriptor, piece.data(), piece.size());
    if (count < 0 && errno != EINTR) return cannot(errno);
    if (count == 0) break;
    const auto num_bytes = static_cast<std::size_t>(std::max<ssize_t>(count, 0));
    sum.add(std::span(piece).first(num_bytes));
    took(num_bytes);
  }
  const std::string found = sum.finish();
  if (found == pinned.sha256) return std::nullopt;
  return fmt::format("has changed: its SHA-256 is {} instead of {}", found, pinned.sha256);
}

}  // namespace

std::string cache_folder() {
  if (const std::string folder(environment_variable("REGARD_CACHE")); !folder.empty()) return folder;
  // By the XDG specification a relative path is ignored.
  if (const std::string folder(environment_variable("XDG_CACHE_HOME")); folder.starts_with('/'))
    return folder + "/regard";
  if (const std::string folder(environment_variable("HOME")); !folder.empty()) return folder + "/.cache/regard";
  throw std::runtime_error("HOME is not set; set REGARD_CACHE to the folder in which to store models");
}

std::string minilm_folder() { return cache_folder() + "/models/minilm"; }

bool minilm_is_whole() {
  const std::string folder = minilm_folder();
  return std::all_of(minilm::kFiles.begin(), minilm::kFiles.end(), [&folder](const minilm::PinnedFile& file) {
    struct stat status{};
    const std::string path = folder + "/" + std::string(file.name);
    return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && status.st_size == file.num_bytes;
  });
}

std::optional<std::string> minilm_difference(const std::function<void(std::size_t)>& took) {
  for (const minilm::PinnedFile& file : minilm::kFiles) {
    const std::string path = fmt::format("{}/{}", minilm_folder(), file.name);
    if (const auto found = difference(path, file, took)) return fmt::format("{}: {}", path, *found);
  }
  return std::nullopt;
}

std::string model_folder(const std::string& option) {
  if (!option.empty() && option != kPulledModel) return option;
  if (minilm_is_whole()) return minilm_folder();
  throw std::runtime_error(
      "no model is installed; download one (80 MiB, once) with regard pull minilm, or give the folder of one with "
      "--model FOLDER");
}

}  // namespace regard::program
