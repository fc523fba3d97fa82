// SPDX-License-Identifier: Apache-2.0
//
// See loading.h.
#include "model/loading.h"

#include <fmt/format.h>

#include <algorithm>

#include "regard/error.h"
#include "regard/io/utf8.h"

namespace regard::inline v0::internal {
namespace {

constexpr std::size_t kMaxShownProblems = 100;

// "(1536, 384)".
std::string shape_text(std::span<const Index> shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

// The name of a tensor, which has at most 512 bytes.
std::string shown_name(std::string_view name) { return escape_for_terminal(name); }

}  // namespace

std::string file_in(const std::string& folder, std::string_view file) { return fmt::format("{}/{}", folder, file); }

bool ModelTensors::is_expected(const std::string& name, const StoredTensor* found, const std::vector<Index>& shape,
                               std::string_view fields) {
  const auto problem = [this](const std::string& text) {
    this->problem(text);
    return false;
  };
  std::string expected = "expected " + shape_text(shape);
  if (!fields.empty()) expected += fmt::format(" = ({})", fields);
  if (found == nullptr) return problem(fmt::format("{} is missing, {}", name, expected));
  used_.insert(found);
  if (found->shape != shape)
    return problem(fmt::format("{} has shape {}, {}", shown_name(found->name), shape_text(found->shape), expected));
  if (found->type == ElementType::int8 && shape.size() == 2) {
    const StoredTensor* scales = checkpoint_.find_scales(*found);
    if (scales == nullptr) {
      const std::string shown = shown_name(found->name);
      return problem(fmt::format("{} has type I8 without scales, expected {}.scale of type F32 and shape {}", shown,
                                 shown, shape_text(std::span(shape).first(1))));
    }
    used_.insert(scales);
  } else if (!is_floating(found->type)) {
    return problem(fmt::format("{} has type {}, expected F32, F64, F16 or BF16", shown_name(found->name),
                               safetensors_type_name(found->type)));
  }
  return true;
}

void ModelTensors::expect(const std::string& name, const StoredTensor* found, const std::vector<Index>& shape,
                          std::string_view fields, std::function<void(const float*)> fill) {
  if (is_expected(name, found, shape, fields)) reads_.push_back({found, std::move(fill), nullptr});
}

void ModelTensors::expect_matrix(const std::string& name, const StoredTensor* found, const std::vector<Index>& shape,
                                 std::string_view fields, StoredMatrix& matrix) {
  if (is_expected(name, found, shape, fields)) reads_.push_back({found, {}, &matrix});
}

bool ModelTensors::Read::is_converted() const {
  return tensor->type != ElementType::float32 && (matrix == nullptr || tensor->type != ElementType::int8);
}

void ModelTensors::expect_no_others(const std::function<bool(std::string_view)>& is_left_unread,
                                    const std::string& model) {
  for (const StoredTensor& tensor : checkpoint_.tensors()) {
    if (!used_.contains(&tensor) && !is_left_unread(tensor.name))
      problem(fmt::format("{} is not a tensor of {}", shown_name(tensor.name), model));
  }
}

void ModelTensors::throw_problems() const {
  if (num_problems_ == 0) return;
  std::string more;
  if (num_problems_ > kMaxShownProblems) more = fmt::format("; and {} more", num_problems_ - kMaxShownProblems);
  throw DataError(fmt::format("{}: {} {} {}: {}{}", escape_for_terminal(folder_), num_problems_,
                              num_problems_ == 1 ? "tensor does not match" : "tensors do not match", kConfigFile,
                              problems_, more));
}

std::vector<const StoredTensor*> ModelTensors::found() const {
  std::vector<const StoredTensor*> tensors;
  for (const Read& read : reads_) tensors.push_back(read.tensor);
  return tensors;
}

void ModelTensors::check_memory(std::uint64_t packed_bytes, const ModelFileOptions& options) const {
  std::uint64_t held = 0;
  for (const StoredTensor& tensor : checkpoint_.tensors()) held += tensor.bytes.size();
  std::uint64_t needed = packed_bytes;
  for (const Read& read : reads_) {
    if (!read.is_converted()) continue;
    needed += read.tensor->bytes.size() / static_cast<std::uint64_t>(type_bytes(read.tensor->type)) * sizeof(float);
  }
  const std::uint64_t available = options.max_memory_bytes
                                      ? *options.max_memory_bytes - std::min(*options.max_memory_bytes, held)
                                      : available_memory_bytes();
  if (needed <= available) return;
  throw DataError(fmt::format("{}: needs {} more bytes of memory for computation; {} are available",
                              escape_for_terminal(folder_), needed, available));
}

std::vector<std::shared_ptr<const float>> ModelTensors::read(const std::stop_token& stop) const {
  std::vector<std::shared_ptr<const float>> memory;
  for (const Read& read : reads_) {
    if (read.matrix != nullptr) {
      *read.matrix = checkpoint_.share_matrix(*read.tensor, stop);
      continue;
    }
    memory.push_back(checkpoint_.share_float32(*read.tensor, stop));
    read.fill(memory.back().get());
  }
  return memory;
}

void ModelTensors::problem(const std::string& text) {
  if (++num_problems_ <= kMaxShownProblems) problems_ += (problems_.empty() ? "" : "; ") + text;
}

std::uint64_t packed_bytes(Index inputs, Index outputs) {
  return static_cast<std::uint64_t>(inputs) * static_cast<std::uint64_t>((outputs + 31) / 32 * 32) * sizeof(float);
}

PackedLinear<float> pack_side_by_side(const char* operation, std::span<const TensorView<const float, 2>> matrices,
                                      const Runtime& runtime) {
  Index columns = 0;
  for (const auto& matrix : matrices) columns += matrix.shape[1];
  const Index inputs = matrices.front().shape[0];
  const auto has_whole_columns = [&](const TensorView<const float, 2>& matrix) {
    return matrix.strides[0] == 1 && matrix.strides[1] == inputs;
  };
  if (std::all_of(matrices.begin(), matrices.end(), has_whole_columns)) {
    std::vector<float> joined;
    joined.reserve(static_cast<std::size_t>(inputs * columns));
    for (const auto& matrix : matrices)
      joined.insert(joined.end(), matrix.pointer(0, 0), matrix.pointer(0, 0) + matrix.size());
    throw_if_stopped(runtime.stop, operation);
    return PackedLinear<float>(TensorView<const float, 2>(joined.data(), {inputs, columns}, {1, inputs}), runtime);
  }
  Tensor<float, 2> joined({matrices.front().shape[0], columns});
  Index first = 0;
  for (const auto& matrix : matrices) {
    for (Index i = 0; i < matrix.shape[0]; ++i) {
      throw_if_stopped(runtime.stop, operation);
      for (Index o = 0; o < matrix.shape[1]; ++o) joined(i, first + o) = matrix(i, o);
    }
    first += matrix.shape[1];
  }
  return PackedLinear<float>(joined.view(), runtime);
}

}  // namespace regard::inline v0::internal
