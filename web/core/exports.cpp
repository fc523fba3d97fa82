// SPDX-License-Identifier: Apache-2.0
//
// The functions that a WebAssembly module exports: memory, files and requests.
// Read next: web/live/core.js, which calls them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "requests.h"

#define REGARD_WASM_EXPORT(name) extern "C" __attribute__((export_name(#name)))

std::map<std::string, regard::SharedBytes, std::less<>>& regard::added_files() {
  static std::map<std::string, SharedBytes, std::less<>> files;
  return files;
}

std::vector<std::vector<std::byte>>& regard::answer_arrays() {
  static std::vector<std::vector<std::byte>> arrays;
  return arrays;
}

REGARD_WASM_EXPORT(regard_allocate) void* regard_allocate(std::size_t num_bytes) {
  return std::aligned_alloc(64, (num_bytes + 63) / 64 * 64);
}

REGARD_WASM_EXPORT(regard_free) void regard_free(void* memory) { std::free(memory); }

// Takes over memory of regard_allocate.
REGARD_WASM_EXPORT(regard_add_file)
void regard_add_file(const char* name, std::size_t name_size, std::byte* data, std::size_t num_bytes) {
  regard::added_files()[std::string(name, name_size)] = {
      {data, [](const std::byte* bytes) { std::free(const_cast<std::byte*>(bytes)); }}, num_bytes};
}

// Returns the address of the answer, valid until the next request: the number of its parts, then the address and the
// length of each; the text comes first, then the arrays.
REGARD_WASM_EXPORT(regard_request) const std::uint32_t* regard_request(const char* text, std::size_t size) {
  static std::vector<std::uint32_t> result;
  static std::string answer;
  answer = {};  // its memory is free for the next one
  regard::answer_arrays() = {};
  answer = regard::answer_to({text, size});
  result = {1 + static_cast<std::uint32_t>(regard::answer_arrays().size())};
  const auto add = [](const void* data, std::size_t count) {
    result.push_back(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(data)));
    result.push_back(static_cast<std::uint32_t>(count));
  };
  add(answer.data(), answer.size());
  for (const std::vector<std::byte>& array : regard::answer_arrays()) add(array.data(), array.size());
  return result.data();
}
