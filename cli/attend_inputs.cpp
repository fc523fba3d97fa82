// SPDX-License-Identifier: Apache-2.0
//
// Implements attend_inputs.h: the types and ranks that each option accepts, and the conversions.
// Read next: attend_inputs.h.
#include "attend_inputs.h"

#include <stdexcept>
#include <utility>

namespace regard::program {
namespace {

std::string shape_of(const NpyReader& file) { return "has shape " + npy_shape_text(file.shape()); }

}  // namespace

void reject(const NpyReader& file, const std::string& option, const std::string& what) {
  throw std::runtime_error(file.name() + ": " + option + " " + what);
}

Inputs::Inputs(const AttendText& text) {
  for (const NamedPath& named : text.inputs()) {
    InputFile file = open_input(named.path, named.option, values_of_input(named.option));
    inputs_.push_back({named.option, NpyReader(std::move(file.source), file.name, file.num_bytes), file.seek});
    check(inputs_.back());
  }
  const ElementType type = at("--query").file.type();
  for (const char* option : {"--key", "--value"}) {
    const NpyReader& file = at(option).file;
    if (file.type() != type) {
      reject(file, option,
             "has type " + std::string(type_name(file.type())) + "; expected " + std::string(type_name(type)) +
                 ", like --query");
    }
    if (file.shape().size() != rank()) {
      reject(file, option,
             shape_of(file) + "; expected " + std::to_string(rank()) + " axes, like --query " +
                 npy_shape_text(at("--query").file.shape()));
    }
  }
}

Input* Inputs::find(const std::string& option) {
  const auto found =
      std::find_if(inputs_.begin(), inputs_.end(), [&](const Input& input) { return input.option == option; });
  return found == inputs_.end() ? nullptr : &*found;
}

std::array<Index, 4> Inputs::shape4(const std::string& option) {
  const std::vector<Index>& shape = at(option).file.shape();
  std::array<Index, 4> full{1, 1, 1, 1};
  std::copy(shape.begin(), shape.end(), full.end() - static_cast<std::ptrdiff_t>(shape.size()));
  return full;
}

double Inputs::bytes() const {
  double sum = 0;
  for (const Input& input : inputs_) {
    sum += static_cast<double>(input.file.num_elements()) * static_cast<double>(type_bytes(input.file.type()));
  }
  return sum;
}

void Inputs::check(const Input& input) {
  const NpyReader& file = input.file;
  const ElementType type = file.type();
  const std::string& option = input.option;
  const bool floating = is_floating(type);
  const bool whole = type == ElementType::int32 || type == ElementType::int64;
  const std::string has = "has type " + std::string(type_name(type)) + "; expected ";
  const std::size_t axes = file.shape().size();
  switch (kind_of_input(option)) {
    case InputKind::matrix:
      if (!floating) reject(file, option, has + "float32 or float64 (in NumPy: x.astype(numpy.float32))");
      if (axes < 2 || axes > 4)
        reject(file, option,
               shape_of(file) + "; expected 2, 3 or 4 axes: (B, H, L, D), or without B, or without B and H");
      break;
    case InputKind::boolean:
      if (type != ElementType::boolean) reject(file, option, has + "bool, true = visible (in NumPy: x.astype(bool))");
      check_broadcast(input);
      break;
    case InputKind::bias:
      if (!floating) reject(file, option, has + "float32 or float64");
      if (type == ElementType::float64 && at("--query").file.type() == ElementType::float32) {
        reject(file, option, has + "float32, like --query (in NumPy: x.astype(numpy.float32))");
      }
      check_broadcast(input);
      break;
    case InputKind::per_head:
      if (!floating) reject(file, option, has + "float32 or float64");
      if (axes > 1) reject(file, option, shape_of(file) + "; expected one axis with one value per head");
      break;
    case InputKind::indices:
      if (!whole) reject(file, option, has + "int32 or int64");
      if (axes > 1) reject(file, option, shape_of(file) + "; expected one axis");
      break;
    case InputKind::segments:
      if (!whole) reject(file, option, has + "int32 or int64");
      if (axes < 1 || axes > (rank() == 4 ? 2u : 1u)) {
        reject(file, option,
               shape_of(file) +
                   "; expected a segment number per position: " + (rank() == 4 ? "(B, positions)" : "(positions,)"));
      }
      break;
  }
}

void Inputs::check_broadcast(const Input& input) {
  if (input.file.shape().size() > rank()) {
    reject(input.file, input.option,
           shape_of(input.file) + ", more axes than --query " + npy_shape_text(at("--query").file.shape()));
  }
}

template <class To>
std::vector<To> numbers_of(const NpyArray& array) {
  const Index count = array.shape.empty() ? 1 : array.shape[0];
  std::vector<To> numbers(static_cast<std::size_t>(count));
  const auto copy = [&](const auto* from) {
    std::transform(from, from + count, numbers.begin(), [](auto x) { return static_cast<To>(x); });
  };
  switch (array.type) {
    case ElementType::float32:
      copy(array.elements<float>());
      break;
    case ElementType::float64:
      copy(array.elements<double>());
      break;
    case ElementType::int32:
      copy(array.elements<std::int32_t>());
      break;
    case ElementType::int64:
      copy(array.elements<std::int64_t>());
      break;
    default:  // boolean
      copy(array.elements<bool>());
      break;
  }
  return numbers;
}

template std::vector<Index> numbers_of<Index>(const NpyArray&);
template std::vector<float> numbers_of<float>(const NpyArray&);
template std::vector<double> numbers_of<double>(const NpyArray&);

Tensor<std::int32_t, 2> segments_of(const Input& input, const NpyArray& array) {
  const auto copy = [&](const auto& view) {
    Tensor<std::int32_t, 2> segments(view.shape);
    for (Index b = 0; b < view.shape[0]; ++b) {
      for (Index i = 0; i < view.shape[1]; ++i) {
        const Index number = view(b, i);
        if (number != static_cast<std::int32_t>(number)) {
          reject(input.file, input.option,
                 "contains segment " + std::to_string(number) + "; expected a 32-bit integer");
        }
        segments(b, i) = static_cast<std::int32_t>(number);
      }
    }
    return segments;
  };
  return array.type == ElementType::int32 ? copy(view_of<std::int32_t, 2>(array))
                                          : copy(view_of<std::int64_t, 2>(array));
}

}  // namespace regard::program
