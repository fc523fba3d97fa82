// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any text as the JSON of a model folder is rejected with a byte offset, or read: config.json as
// values in their order without duplicate names, and as the description of a decoder; the index with plain file names
// of shards.
// Read next: src/io/model_folder.cpp, src/model/decoder/decoder_json.cpp.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>

#include "regard/io/json.h"
#include "regard/io/safetensors.h"
#include "regard/model/decoder.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const regard::JsonValue& value, std::size_t size, int depth) {
  require(depth <= 32 && value.offset <= size);
  require(std::isfinite(value.number()));
  for (double number : value.numbers()) require(std::isfinite(number));
  require(value.numbers().empty() || value.items().empty());
  for (const regard::JsonValue& item : value.items()) check(item, size, depth + 1);
  for (const auto& [name, member] : value.members()) {
    require(value.find(name) == &member);
    check(member, size, depth + 1);
  }
}

template <class Read>
void read(Read read_text, std::string_view message = "fuzz: byte ") {
  try {
    read_text();
  } catch (const std::runtime_error& error) {
    require(std::string_view(error.what()).starts_with(message));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read([&] { check(regard::read_json(text, "fuzz", 32), size, 0); });
  read([&] {
    for (const regard::ShardedTensor& entry : regard::read_shard_index(text, "fuzz")) {
      require(entry.file.find('/') == std::string::npos && entry.file.ends_with(".safetensors"));
      require(entry.file.size() <= 255 && entry.file[0] != '.' && entry.file.find('\0') == std::string::npos);
    }
  });
  const auto read_decoder = [&] {
    const regard::DecoderConfig config = regard::parse_decoder_config(text, "fuzz");
    require(config == regard::parse_decoder_config(regard::decoder_config_json(config), "again"));
  };
  read(read_decoder, "fuzz: ");
  return 0;
}
