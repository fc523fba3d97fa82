// SPDX-License-Identifier: Apache-2.0
//
// Answers the requests of checks.cpp natively: each argument adds a file, each line of standard input is a request, and
// each line of standard output is its answer.
// Read next: checks.cpp.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "requests.h"

std::map<std::string, regard::SharedBytes, std::less<>>& regard::added_files() {
  static std::map<std::string, SharedBytes, std::less<>> files;
  return files;
}

int main(int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    const std::filesystem::path path = arguments[i];
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
    const auto* const first = reinterpret_cast<const std::byte*>(bytes.data());
    regard::added_files()[path.filename().string()] = regard::share_bytes({first, first + bytes.size()});
  }
  for (std::string request; std::getline(std::cin, request);) std::cout << regard::answer_to(request) << std::endl;
}
