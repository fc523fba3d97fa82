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

// Returns the address of the answer: its address and its length, valid until the next request.
REGARD_WASM_EXPORT(regard_request) const std::uint32_t* regard_request(const char* text, std::size_t size) {
  static std::uint32_t result[2];
  static std::string answer;
  answer = {};  // its memory is free for the next one
  answer = regard::answer_to({text, size});
  result[0] = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(answer.data()));
  result[1] = static_cast<std::uint32_t>(answer.size());
  return result;
}
