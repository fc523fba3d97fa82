// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target, selected by the first byte. Even: the rest is the file of a vocabulary, which is rejected with a
// byte offset, or written back to the same text that was read once, and encodes its own tokens. Odd: byte pairs are
// learned from the rest, which survives the way to ids and back, also with the vocabulary read from its file.
// Read next: include/regard/train/vocabulary.h.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "regard/train/vocabulary.h"

namespace {

using regard::Index;
using regard::Vocabulary;

void require(bool condition) {
  if (!condition) std::abort();
}

void read_file(std::string_view json) {
  try {
    const Vocabulary vocabulary = Vocabulary::read(json, "fuzz");
    const std::string once = vocabulary.json();
    require(Vocabulary::read(once, "again").json() == once);
    std::vector<Index> ids;
    for (Index id = 0; id < vocabulary.size() && id < 1000; ++id) ids.push_back(id);
    const std::string text = vocabulary.decode(ids);
    const std::vector<Index> found = vocabulary.encode(text);
    if (vocabulary.kind() == regard::VocabularyKind::byte_pairs)
      require(vocabulary.decode(found) == text);
    else
      require(found == ids);
  } catch (const std::runtime_error& error) {
    require(std::string_view(error.what()).starts_with("fuzz: byte "));
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

void learn(std::string_view text) {
  const Vocabulary vocabulary = Vocabulary::learn_byte_pairs(text, 300);
  const std::vector<Index> ids = vocabulary.encode(text);
  require(vocabulary.decode(ids) == text);
  require(Vocabulary::read(vocabulary.json(), "again").encode(text) == ids);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0)
    read_file(rest);
  else
    learn(rest);
  return 0;
}
