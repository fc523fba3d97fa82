// SPDX-License-Identifier: Apache-2.0
//
// Where models lie; see model_cache.h. Read next: pull.cpp.
#include "model_cache.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "minilm_files.h"

namespace regard::program {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string cache_folder() {
  if (const std::string folder = variable("REGARD_CACHE"); !folder.empty()) return folder;
  // By the XDG specification a relative path counts as none.
  if (const std::string folder = variable("XDG_CACHE_HOME"); folder.starts_with('/')) return folder + "/regard";
  if (const std::string folder = variable("HOME"); !folder.empty()) return folder + "/.cache/regard";
  throw std::runtime_error("HOME is not set, so models have no place; set REGARD_CACHE to a folder for them");
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

std::string model_folder(const std::string& option) {
  if (!option.empty()) return option;
  if (minilm_is_whole()) return minilm_folder();
  throw std::runtime_error(
      "no model is here yet; fetch one (80 MiB, once) with regard pull minilm, or name the folder of one: "
      "--model FOLDER");
}

}  // namespace regard::program
