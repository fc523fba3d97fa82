// SPDX-License-Identifier: Apache-2.0
//
// Writes a safetensors file: the header, which is checked by the reader's own rules, and then each tensor.
// Read next: safetensors_header.cpp (the rules), output_file.cpp.
#include "regard/io/safetensors_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "regard/error.h"
#include "regard/io/json_writer.h"
#include "regard/io/utf8.h"
#include "safetensors_header.h"

static_assert(std::endian::native == std::endian::little, "tensors are written as they are in memory");

namespace regard::inline v0 {
namespace {

// The order of the data: larger elements first, so that every element is aligned.
std::vector<const StoredTensor*> order_of_data(std::span<const StoredTensor> tensors) {
  std::vector<const StoredTensor*> order;
  order.reserve(tensors.size());
  for (const StoredTensor& tensor : tensors) order.push_back(&tensor);
  // Addresses ascend in the given order.
  std::sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    const auto size_a = type_bytes(a->type), size_b = type_bytes(b->type);
    return size_a != size_b ? size_a > size_b : a < b;
  });
  return order;
}

void check_header(std::string_view text, std::uint64_t num_data_bytes, std::span<const StoredTensor* const> order) {
  const std::string name = "safetensors_header";
  try {
    const auto entries = internal::read_safetensors_header(text, num_data_bytes, name, {}, {});
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (entries[i].name == order[i]->name) continue;
      throw InvalidArgument(
          fmt::format("{}: the name \"{}\" is not valid UTF-8", name, text_in_message(order[i]->name)));
    }
  } catch (const DataError& error) {
    throw InvalidArgument(error.what());
  }
}

}  // namespace

std::string safetensors_header(std::span<const StoredTensor> tensors, std::span<const SafetensorsMetadata> metadata) {
  const std::vector<const StoredTensor*> order = order_of_data(tensors);
  JsonWriter json;
  json.begin_object(JsonLayout::compact);
  if (!metadata.empty()) {
    json.name("__metadata__");
    json.begin_object(JsonLayout::compact);
    for (const auto& [name, text] : metadata) json.string(name, text);
    json.end_object();
  }
  std::uint64_t num_data_bytes = 0;
  for (const StoredTensor* tensor : order) {
    const std::uint64_t begin = num_data_bytes;
    num_data_bytes += tensor->bytes.size();
    json.name(tensor->name);
    json.begin_object(JsonLayout::compact);
    json.string("dtype", safetensors_type_name(tensor->type));
    json.list("shape", tensor->shape, JsonLayout::compact);
    json.list("data_offsets", std::vector<std::uint64_t>{begin, num_data_bytes}, JsonLayout::compact);
    json.end_object();
  }
  json.end_object();
  std::string header = json.take_part();
  check_header(header, num_data_bytes, order);
  header.append((8 - header.size() % 8) % 8, ' ');
  const std::uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes.append(header);
}

namespace {

template <class File>
void write_tensors(File& file, const std::string& header, std::span<const StoredTensor> tensors,
                   const std::stop_token& stop) {
  constexpr std::size_t kMaxAtOnce = 1 << 20;  // a tenth of a second to a slow disk
  file.write(header);
  for (const StoredTensor* tensor : order_of_data(tensors)) {
    for (std::span<const std::byte> rest = tensor->bytes; !rest.empty();) {
      throw_if_stopped(stop, "write_safetensors");
      const std::size_t count = std::min(rest.size(), kMaxAtOnce);
      file.write(rest.first(count));
      rest = rest.subspan(count);
    }
  }
}

}  // namespace

std::vector<std::byte> format_safetensors(std::span<const StoredTensor> tensors,
                                          std::span<const SafetensorsMetadata> metadata, const std::stop_token& stop) {
  struct Memory {
    std::vector<std::byte> bytes{};
    void write(std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); }
    void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  } memory;
  const std::string header = safetensors_header(tensors, metadata);
  std::size_t num_bytes = header.size();
  for (const StoredTensor& tensor : tensors) num_bytes += tensor.bytes.size();
  memory.bytes.reserve(num_bytes);
  write_tensors(memory, header, tensors, stop);
  return std::move(memory.bytes);
}

void write_safetensors(NewFile& file, std::span<const StoredTensor> tensors,
                       std::span<const SafetensorsMetadata> metadata, const std::stop_token& stop) {
  write_tensors(file, safetensors_header(tensors, metadata), tensors, stop);
}

void write_safetensors(const std::string& path, std::span<const StoredTensor> tensors,
                       std::span<const SafetensorsMetadata> metadata, const std::stop_token& stop) {
  const std::string header = safetensors_header(tensors, metadata);
  AtomicFile file(path);
  write_tensors(file, header, tensors, stop);
  file.commit();
}

}  // namespace regard::inline v0
