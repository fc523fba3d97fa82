// SPDX-License-Identifier: Apache-2.0
//
// Quantizes the matrices of a checkpoint to int8, or rounds them to float16; see rounding.h. Every step is one
// IEEE 754 operation on floats, so that the bytes are the same on every machine.
// Read next: safetensors_writer.h, safetensors.cpp (reads such files).
#include "regard/io/rounding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint.h"
#include "regard/convert.h"
#include "regard/error.h"
#include "regard/io/safetensors_writer.h"
#include "regard/io/utf8.h"

namespace regard::inline v0 {
namespace {

constexpr float kMaxInt8 = 127;

// To nearest, ties to even; |x| < 2^22. In the sum, an ulp is 1.
float rounded(float x) {
  constexpr float kShift = 12582912;  // 1.5 · 2^23
  return (x + kShift) - kShift;
}

// Returns the scale.
float round_row(std::span<const float> row, std::int8_t* to) {
  float largest = 0;
  for (const float x : row) largest = std::max(largest, std::abs(x));
  const float scale = largest / kMaxInt8;
  if (scale < std::numeric_limits<float>::min()) {
    std::fill_n(to, row.size(), std::int8_t{0});
    return 0;
  }
  for (std::size_t i = 0; i < row.size(); ++i) to[i] = static_cast<std::int8_t>(rounded(row[i] / scale));
  return scale;
}

// The tensors of the new file, and the memory that they view.
class RoundedFile {
 public:
  RoundedFile(const Checkpoint& checkpoint, ElementType type, const std::stop_token& stop)
      : checkpoint_(checkpoint), type_(type), stop_(stop) {}
  RoundedFile(const RoundedFile&) = delete;
  RoundedFile& operator=(const RoundedFile&) = delete;

  void add(const StoredTensor& tensor) {
    const std::shared_ptr<const float> first = checkpoint_.share_float32(tensor, stop_);
    const std::span<const float> values(first.get(),
                                        tensor.bytes.size() / static_cast<std::size_t>(type_bytes(tensor.type)));
    if (tensor.shape.size() != 2) {
      shared_.push_back(first);
      tensors_.push_back({tensor.name, ElementType::float32, tensor.shape, std::as_bytes(values)});
      return;
    }
    reject_out_of_range(tensor, values);
    type_ == ElementType::int8 ? add_int8(tensor, values) : add_float16(tensor, values);
  }

  const std::vector<StoredTensor>& tensors() const { return tensors_; }

 private:
  template <class T>
  T* add_new(const std::string& name, ElementType type, const std::vector<Index>& shape, std::size_t count) {
    memory_.emplace_back(count * sizeof(T));
    tensors_.push_back({name, type, shape, memory_.back()});
    return reinterpret_cast<T*>(memory_.back().data());
  }

  void add_int8(const StoredTensor& tensor, std::span<const float> values) {
    const auto rows = static_cast<std::size_t>(tensor.shape[0]), columns = static_cast<std::size_t>(tensor.shape[1]);
    auto* elements = add_new<std::int8_t>(tensor.name, ElementType::int8, tensor.shape, values.size());
    auto* scales = add_new<float>(internal::scales_name(tensor.name), ElementType::float32, {tensor.shape[0]}, rows);
    for (std::size_t r = 0; r < rows; ++r) {
      throw_if_stopped(stop_, "round_tensors");
      scales[r] = round_row(values.subspan(r * columns, columns), elements + r * columns);
    }
  }

  void add_float16(const StoredTensor& tensor, std::span<const float> values) {
    auto* elements = add_new<float16>(tensor.name, ElementType::float16, tensor.shape, values.size());
    const std::array<Index, 2> shape{tensor.shape[0], tensor.shape[1]};
    convert(TensorView<const float, 2>(values.data(), shape), TensorView<float16, 2>(elements, shape), {.stop = stop_});
  }

  // NaN and ±∞, and what is too large.
  void reject_out_of_range(const StoredTensor& tensor, std::span<const float> values) const {
    // From 65520 on, halfway from the largest float16 to the next power of two, elements are rounded to ∞.
    const float limit = type_ == ElementType::int8 ? kMaxInt8 * internal::kMaxScale : 65520;
    const auto found = std::find_if(values.begin(), values.end(), [&](float x) { return !(std::abs(x) < limit); });
    if (found == values.end()) return;
    const Index at = found - values.begin();
    throw DataError(fmt::format("{}: tensor \"{}\" contains {} at [{}, {}], which cannot be rounded to {}",
                                escape_for_terminal(checkpoint_.name()), text_in_message(tensor.name), *found,
                                at / tensor.shape[1], at % tensor.shape[1], type_name(type_)));
  }

  const Checkpoint& checkpoint_;
  ElementType type_;
  const std::stop_token& stop_;
  std::vector<std::shared_ptr<const float>> shared_;
  std::list<std::vector<std::byte>> memory_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace

SharedBytes round_tensors(const Checkpoint& checkpoint, std::span<const StoredTensor* const> tensors, ElementType type,
                          const std::stop_token& stop) {
  if (type != ElementType::int8 && type != ElementType::float16) {
    throw InvalidArgument(fmt::format("round_tensors: type is {}; expected int8 or float16", type_name(type)));
  }
  RoundedFile file(checkpoint, type, stop);
  for (const StoredTensor* tensor : tensors) file.add(*tensor);
  return share_bytes(format_safetensors(file.tensors(), {}, stop));
}

}  // namespace regard::inline v0
