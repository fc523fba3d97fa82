// SPDX-License-Identifier: Apache-2.0
//
// Identifies a file by its first bytes; see file_kind.h.
// Read next: safetensors.cpp, model_folder.cpp.
#include "file_kind.h"

#include <fmt/format.h>

#include <algorithm>

namespace regard::inline v0::internal {

std::optional<std::string> foreign_kind(std::span<const std::byte> first_bytes, std::string_view expected) {
  std::string_view front(reinterpret_cast<const char*>(first_bytes.data()), std::min(first_bytes.size(), kKindBytes));
  struct Kind {
    std::string_view magic;
    const char* name;
    const char* remedy;
  };
  using namespace std::string_view_literals;
  constexpr const char* kPickle = "a Python pickle, which can run code and is never read";
  constexpr const char* kSave = "; save the model as safetensors";
  const Kind kinds[] = {{"\x1f\x8b"sv, "a gzip archive", "; unpack it first"},
                        {"\xfd\x37zXZ"sv, "an xz archive", "; unpack it first"},
                        {"\x28\xb5\x2f\xfd"sv, "a Zstandard archive", "; unpack it first"},
                        {"BZh"sv, "a bzip2 archive", "; unpack it first"},
                        {"PK\3\4"sv, "a zip archive (such as PyTorch's .bin and .pt files)", kSave},
                        {"\x80\2"sv, kPickle, kSave},
                        {"\x80\3"sv, kPickle, kSave},
                        {"\x80\4"sv, kPickle, kSave},
                        {"\x80\5"sv, kPickle, kSave},
                        {"GGUF"sv, "a GGUF file", ""},
                        {"\x93NUMPY"sv, "an NPY file", ""},
                        {"\x89HDF"sv, "an HDF5 file", ""},
                        {"version https://git-lfs"sv, "a Git LFS pointer", "; run git lfs pull to fetch the file"}};
  const auto text = [expected](const char* name, const char* remedy) {
    return fmt::format("this is {}, not {}{}", name, expected, remedy);
  };
  for (const Kind& kind : kinds) {
    if (front.starts_with(kind.magic)) return text(kind.name, kind.remedy);
  }
  while (!front.empty() && std::string_view(" \t\r\n").find(front[0]) != std::string_view::npos) front.remove_prefix(1);
  std::string lower(front.substr(0, 9));
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (lower.starts_with("<!doctype") || lower.starts_with("<html")) {
    return text("an HTML page", ", perhaps a server error; fetch the file again");
  }
  return std::nullopt;
}

}  // namespace regard::inline v0::internal
