// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes as a safetensors file are rejected with a byte offset, or give tensors that cover the
// data without gaps or overlaps, whose sizes agree with shape and type, and which can be read if their type is real.
// Read next: src/io/safetensors_header.cpp.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>

#include "regard/io/safetensors.h"

namespace {

using regard::Index;
using regard::StoredTensor;

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const regard::Checkpoint& checkpoint, std::size_t num_bytes) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    const StoredTensor& tensor = checkpoint.tensors()[i];
    require(i == 0 || checkpoint.tensors()[i - 1].name < tensor.name);
    require(checkpoint.find(tensor.name) == &tensor);
    Index count = 1;
    for (Index extent : tensor.shape) count *= extent;
    require(tensor.shape.size() <= 8 && !tensor.name.empty() && tensor.name.size() <= 512);
    require(tensor.bytes.size() == static_cast<std::size_t>(count * regard::type_bytes(tensor.type)));
    sum += tensor.bytes.size();
    const StoredTensor* scales = checkpoint.find_scales(tensor);
    if (!is_floating(tensor.type) && scales == nullptr) continue;
    try {
      const std::vector<float> numbers = checkpoint.read_float32(tensor);
      require(numbers.size() == static_cast<std::size_t>(count));
      const std::shared_ptr<const float> shared = checkpoint.share_float32(tensor);
      require(std::equal(numbers.begin(), numbers.end(), shared.get(),
                         [](float a, float b) { return a == b || (a != a && b != b); }));
    } catch (const std::runtime_error&) {
      require(tensor.type == regard::ElementType::float64 || scales != nullptr);
    }
  }
  require(sum <= num_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto parse = [&](bool allow_nonfinite) {
    try {
      check(regard::Checkpoint::read_memory(regard::share_bytes({bytes.begin(), bytes.end()}), "fuzz",
                                            {.allow_nonfinite = allow_nonfinite, .max_memory_bytes = 1 << 30}),
            size);
      return true;
    } catch (const std::runtime_error& error) {
      require(std::string_view(error.what()).starts_with("fuzz: byte "));
      return false;
    }
  };
  if (parse(false)) require(parse(true));
  parse(true);
  return 0;
}
