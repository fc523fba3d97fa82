// SPDX-License-Identifier: Apache-2.0
//
// Reads a safetensors file in memory. safetensors_file.cpp reads one from a path, by the same functions.
//
//     header length ── enough memory? ── header ── data ── NaN or ∞? ──▶ Checkpoint
//
// Read next: safetensors_header.cpp (the rules), safetensors_file.cpp, model_folder.cpp (shards).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "checkpoint.h"
#include "file_kind.h"
#include "regard/error.h"
#include "regard/io/sha256.h"
#include "regard/io/utf8.h"
#include "safetensors_header.h"

static_assert(std::endian::native == std::endian::little, "tensors are viewed as stored in the file");

namespace regard::inline v0 {
namespace {

// In the order of ElementType, from 1.
constexpr std::array<std::string_view, 13> kTypeNames{"F32", "F64", "BOOL", "I32", "I64", "BF16", "F16",
                                                      "I8",  "U8",  "I16",  "U16", "U32", "U64"};

[[noreturn]] void fail(const std::string& name, std::uint64_t at, const std::string& what) {
  throw DataError(fmt::format("{}: byte {}: {}", escape_for_terminal(name), at, what));
}

// ---- numbers

float from_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t exponent = half >> 10 & 0x1f;
  const std::uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {
    // Subnormal: fraction · 2^-24, exact in f32.
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t float_exponent = exponent == 0x1f ? 0xff : exponent + (127 - 15);
  return std::bit_cast<float>(sign | float_exponent << 23 | fraction << 13);
}
float from_bfloat(std::uint16_t b) { return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16); }

template <class Bits>
Bits load(const std::byte* p) {
  Bits bits;
  std::memcpy(&bits, p, sizeof(bits));
  return bits;
}

// The index of the first element whose exponent is all ones, that is, NaN or ±∞.
template <class Bits>
std::optional<std::size_t> first_nonfinite(std::span<const std::byte> bytes, Bits exponent,
                                           const std::stop_token& stop) {
  const std::size_t count = bytes.size() / sizeof(Bits);
  constexpr std::size_t kBlock = 4096;  // fits L1, and searching within a block takes negligible time
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    throw_if_stopped(stop, "reading a model");
    const std::size_t end = std::min(begin + kBlock, count);
    Bits found = 0;
    for (std::size_t i = begin; i < end; ++i) {
      found |= static_cast<Bits>((load<Bits>(bytes.data() + i * sizeof(Bits)) & exponent) == exponent);
    }
    if (found == 0) continue;
    for (std::size_t i = begin; i < end; ++i) {
      if ((load<Bits>(bytes.data() + i * sizeof(Bits)) & exponent) == exponent) return i;
    }
  }
  return std::nullopt;
}

double number_at(const StoredTensor& tensor, std::size_t i) {
  switch (tensor.type) {
    case ElementType::float64:
      return load<double>(tensor.bytes.data() + 8 * i);
    case ElementType::float32:
      return load<float>(tensor.bytes.data() + 4 * i);
    case ElementType::float16:
      return from_half(load<std::uint16_t>(tensor.bytes.data() + 2 * i));
    default:
      return from_bfloat(load<std::uint16_t>(tensor.bytes.data() + 2 * i));
  }
}

// ---- int8 with one scale per row

// The first scale with which an element of int8 could be NaN or ±∞.
std::optional<std::size_t> first_bad_scale(const StoredTensor& scales) {
  const std::size_t count = scales.bytes.size() / sizeof(float);
  for (std::size_t r = 0; r < count; ++r) {
    if (!(std::abs(load<float>(scales.bytes.data() + r * sizeof(float))) <= internal::kMaxScale)) return r;
  }
  return std::nullopt;
}

const std::int8_t* int8_elements(const StoredTensor& tensor) {
  return reinterpret_cast<const std::int8_t*>(tensor.bytes.data());
}

void scale_rows(const StoredTensor& tensor, const StoredTensor& scales, float* values, const std::stop_token& stop) {
  const auto rows = static_cast<std::size_t>(tensor.shape[0]), columns = static_cast<std::size_t>(tensor.shape[1]);
  const std::int8_t* const elements = int8_elements(tensor);
  for (std::size_t r = 0; r < rows; ++r) {
    throw_if_stopped(stop, "reading a model");
    const float scale = load<float>(scales.bytes.data() + r * sizeof(float));
    for (std::size_t i = r * columns; i < (r + 1) * columns; ++i) values[i] = static_cast<float>(elements[i]) * scale;
  }
}

[[noreturn]] void reject_tensor(const Checkpoint& checkpoint, const StoredTensor& tensor, const std::string& what) {
  throw DataError(
      fmt::format("{}: tensor \"{}\" {}", escape_for_terminal(checkpoint.name()), text_in_message(tensor.name), what));
}

// The scales of a matrix of int8, which are checked; null if it has none.
const StoredTensor* checked_scales(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  const StoredTensor* const scales = checkpoint.find_scales(tensor);
  if (scales == nullptr) return nullptr;
  if (const auto row = first_bad_scale(*scales)) {
    reject_tensor(checkpoint, tensor,
                  fmt::format("has the scale {} at [{}]; expected a finite scale of at most 2^120",
                              static_cast<float>(number_at(*scales, *row)), *row));
  }
  return scales;
}

// "[1, 3]": the index of element i in its tensor.
std::string index_text(const std::vector<Index>& shape, std::size_t i) {
  std::vector<Index> index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = static_cast<Index>(i % static_cast<std::size_t>(shape[axis]));
    i /= static_cast<std::size_t>(shape[axis]);
  }
  return internal::shape_text(index);
}

void reject_nonfinite(const StoredTensor& tensor, std::uint64_t offset, const std::string& name,
                      const std::stop_token& stop) {
  std::optional<std::size_t> at;
  switch (tensor.type) {
    case ElementType::float64:
      at = first_nonfinite<std::uint64_t>(tensor.bytes, 0x7ff0000000000000, stop);
      break;
    case ElementType::float32:
      at = first_nonfinite<std::uint32_t>(tensor.bytes, 0x7f800000, stop);
      break;
    case ElementType::float16:
      at = first_nonfinite<std::uint16_t>(tensor.bytes, 0x7c00, stop);
      break;
    case ElementType::bfloat16:
      at = first_nonfinite<std::uint16_t>(tensor.bytes, 0x7f80, stop);
      break;
    default:
      break;
  }
  if (!at) return;
  const double x = number_at(tensor, *at);
  fail(name, offset + *at * static_cast<std::size_t>(type_bytes(tensor.type)),
       fmt::format("tensor \"{}\" contains {} at {}; the option allow_nonfinite (--allow-nonfinite) permits it",
                   text_in_message(tensor.name),
                   std::isnan(x) ? "nan"
                   : x > 0       ? "inf"
                                 : "-inf",
                   index_text(tensor.shape, *at)));
}

// ---- from the parts of a file to a list of tensors

std::vector<internal::HeaderEntry> entries_of(const internal::LoadedFile& file, std::uint64_t num_data_bytes,
                                              const ModelFileOptions& options, const std::stop_token& stop) {
  const std::span<const std::byte> text = file.front.span().subspan(internal::kLengthBytes);
  return internal::read_safetensors_header({reinterpret_cast<const char*>(text.data()), text.size()}, num_data_bytes,
                                           file.path, options, stop);
}

void add_tensors(std::vector<internal::HeaderEntry> entries, internal::LoadedFile& file,
                 const ModelFileOptions& options, const std::stop_token& stop) {
  file.tensors.reserve(entries.size());
  for (internal::HeaderEntry& e : entries) {
    file.tensors.push_back({.name = std::move(e.name),
                            .type = e.type,
                            .shape = std::move(e.shape),
                            .bytes = file.data.span().subspan(e.begin, e.end - e.begin)});
    if (!options.allow_nonfinite) reject_nonfinite(file.tensors.back(), file.front.count + e.begin, file.path, stop);
  }
}

}  // namespace

std::string_view safetensors_type_name(ElementType type) { return kTypeNames[static_cast<std::size_t>(type) - 1]; }

namespace internal {

void check_memory(const std::string& path, std::uint64_t num_bytes, const ModelFileOptions& options) {
  const std::uint64_t limit = options.max_memory_bytes.value_or(available_memory_bytes());
  if (num_bytes <= limit) return;
  throw DataError(
      fmt::format("{}: needs {} bytes of memory; {} are available", escape_for_terminal(path), num_bytes, limit));
}

std::uint64_t header_length(std::span<const std::byte> front, std::uint64_t num_bytes, const std::string& name,
                            const ModelFileOptions& options) {
  if (num_bytes == 0) fail(name, 0, "the file is empty; expected safetensors");
  const auto reject = [&](std::uint64_t at, const std::string& what) {
    // A valid file may begin with the same bytes as another kind, so only rejected files are identified by them.
    if (const auto kind = foreign_kind(front, "safetensors")) fail(name, 0, *kind);
    fail(name, at, what);
  };
  if (num_bytes < kLengthBytes) reject(0, fmt::format("the file has {} bytes, too few for safetensors", num_bytes));
  std::uint64_t length = 0;
  std::memcpy(&length, front.data(), sizeof(length));
  if (length > num_bytes - kLengthBytes) {
    reject(0, fmt::format("the header should be {} bytes long, but only {} bytes follow", length,
                          num_bytes - kLengthBytes));
  }
  if (length > options.max_header_bytes) {
    reject(0, fmt::format(
                  "the header is {} bytes long; at most {} are read (the option max_header_bytes raises this limit)",
                  length, options.max_header_bytes));
  }
  if (length == 0 || front[kLengthBytes] != std::byte{'{'}) {
    reject(kLengthBytes, "the header does not begin with {; not a safetensors file");
  }
  return length;
}

LoadedFile load_parts(std::string path, SharedBytes front, std::uint64_t num_data_bytes,
                      const std::function<SharedBytes()>& read_data, const ModelFileOptions& options,
                      const std::stop_token& stop) {
  LoadedFile loaded{.path = std::move(path), .front = std::move(front)};
  std::vector<HeaderEntry> entries = entries_of(loaded, num_data_bytes, options, stop);
  loaded.data = read_data();
  add_tensors(std::move(entries), loaded, options, stop);
  return loaded;
}

SharedBytes part(const SharedBytes& whole, std::size_t begin, std::size_t count) {
  return {{whole.first, whole.first.get() + begin}, count};
}

}  // namespace internal

// ---- Checkpoint

Checkpoint::Contents::Contents(std::string name_, std::vector<internal::LoadedFile> files_)
    : name(std::move(name_)), files(std::move(files_)) {
  for (internal::LoadedFile& file : files) {
    std::move(file.tensors.begin(), file.tensors.end(), std::back_inserter(tensors));
    file.tensors = {};
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
}

SharedBytes share_bytes(std::vector<std::byte> bytes) {
  const auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return {{owner, owner->data()}, owner->size()};
}

Checkpoint Checkpoint::read_memory(SharedBytes bytes, std::string name, const ModelFileOptions& options,
                                   const std::stop_token& stop) {
  const auto first = bytes.span().first(std::min(internal::kKindBytes, bytes.count));
  const std::uint64_t length = internal::header_length(first, bytes.count, name, options);
  // The list of tensors takes up to twice as many bytes as the header.
  internal::check_memory(name, 2 * length, options);
  const std::uint64_t data_begin = internal::kLengthBytes + length;
  const std::uint64_t num_data_bytes = bytes.count - data_begin;
  std::vector<internal::LoadedFile> files;
  files.push_back(internal::load_parts(
      name, internal::part(bytes, 0, data_begin), num_data_bytes,
      [&] { return internal::part(bytes, data_begin, num_data_bytes); }, options, stop));
  return Checkpoint(std::make_shared<Contents>(std::move(name), std::move(files)));
}

const std::string& Checkpoint::name() const { return contents_->name; }
const std::vector<StoredTensor>& Checkpoint::tensors() const { return contents_->tensors; }

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto at = std::lower_bound(tensors().begin(), tensors().end(), name,
                                   [](const StoredTensor& t, std::string_view wanted) { return t.name < wanted; });
  return at != tensors().end() && at->name == name ? &*at : nullptr;
}

const StoredTensor* Checkpoint::find_scales(const StoredTensor& tensor) const {
  if (tensor.type != ElementType::int8 || tensor.shape.size() != 2) return nullptr;
  const StoredTensor* scales = find(internal::scales_name(tensor.name));
  const bool match = scales != nullptr && scales->type == ElementType::float32 && scales->shape.size() == 1 &&
                     scales->shape[0] == tensor.shape[0];
  return match ? scales : nullptr;
}

std::vector<float> Checkpoint::read_float32(const StoredTensor& tensor, const std::stop_token& stop) const {
  const auto reject = [&](const std::string& what) { reject_tensor(*this, tensor, what); };
  if (const StoredTensor* scales = checked_scales(*this, tensor)) {
    std::vector<float> values(tensor.bytes.size());
    scale_rows(tensor, *scales, values.data(), stop);
    return values;
  }
  if (tensor.type == ElementType::int8 && tensor.shape.size() == 2) {
    reject(fmt::format("is of type I8 without scales; expected a tensor \"{}\" of type F32 and shape ({},)",
                       text_in_message(internal::scales_name(tensor.name)), tensor.shape[0]));
  }
  if (!is_floating(tensor.type)) {
    reject(fmt::format("is of type {}, which is not a floating-point type; expected F32, F16, BF16 or F64",
                       safetensors_type_name(tensor.type)));
  }
  std::vector<float> numbers;
  const std::size_t count = tensor.bytes.size() / static_cast<std::size_t>(type_bytes(tensor.type));
  numbers.reserve(count);
  constexpr std::size_t kPart = 1 << 14;
  for (std::size_t begin = 0; begin < count; begin = numbers.size()) {
    throw_if_stopped(stop, "reading a model");
    numbers.resize(std::min(begin + kPart, count));
    if (tensor.type == ElementType::float32) {
      std::memcpy(&numbers[begin], tensor.bytes.data() + begin * sizeof(float),
                  (numbers.size() - begin) * sizeof(float));
      continue;
    }
    for (std::size_t i = begin; i < numbers.size(); ++i) {
      const double x = number_at(tensor, i);
      numbers[i] = static_cast<float>(x);
      if (std::isfinite(x) && !std::isfinite(numbers[i])) {
        reject(fmt::format("contains {} at {}, which is out of range for float32", x, index_text(tensor.shape, i)));
      }
    }
  }
  return numbers;
}

std::shared_ptr<const float> Checkpoint::share_float32(const StoredTensor& tensor, const std::stop_token& stop) const {
  const std::byte* bytes = tensor.bytes.data();
  if (tensor.type == ElementType::float32 && reinterpret_cast<std::uintptr_t>(bytes) % alignof(float) == 0) {
    return {contents_, reinterpret_cast<const float*>(bytes)};
  }
  if (const StoredTensor* scales = checked_scales(*this, tensor)) {
    std::shared_ptr<float[]> values(std::make_unique_for_overwrite<float[]>(tensor.bytes.size()));
    scale_rows(tensor, *scales, values.get(), stop);
    return {values, values.get()};
  }
  const auto numbers = std::make_shared<const std::vector<float>>(read_float32(tensor, stop));
  return {numbers, numbers->data()};
}

StoredMatrix Checkpoint::share_matrix(const StoredTensor& tensor, const std::stop_token& stop) const {
  if (const StoredTensor* scales = checked_scales(*this, tensor)) {
    const std::shared_ptr<const float> values = share_float32(*scales, stop);
    // The scales may be a copy, and the elements are in the file's bytes.
    const auto both =
        std::make_shared<std::pair<std::shared_ptr<const float>, std::shared_ptr<const Contents>>>(values, contents_);
    return {{both, values.get()}, int8_elements(tensor), tensor.shape[1]};
  }
  return {share_float32(tensor, stop), nullptr, tensor.shape[1]};
}

std::string Checkpoint::sha256(const std::stop_token& stop) const {
  const auto sum_of = [&](const internal::LoadedFile& file) {
    constexpr std::size_t kPart = 1 << 16;
    Sha256 sum;
    for (std::span<const std::byte> rest : {file.front.span(), file.data.span()}) {
      while (!rest.empty()) {
        throw_if_stopped(stop, "Checkpoint::sha256");
        const std::size_t count = std::min(kPart, rest.size());
        sum.add(rest.first(count));
        rest = rest.subspan(count);
      }
    }
    return sum.finish();
  };
  std::call_once(contents_->summed, [&] {
    if (contents_->files.size() == 1) {
      contents_->sum = sum_of(contents_->files[0]);
      return;
    }
    Sha256 sum;
    for (const internal::LoadedFile& file : contents_->files) {
      const std::string line = fmt::format("{}  {}\n", sum_of(file), file.path.substr(file.path.rfind('/') + 1));
      sum.add(std::as_bytes(std::span(line)));
    }
    contents_->sum = sum.finish();
  });
  return contents_->sum;
}

}  // namespace regard::inline v0
