// SPDX-License-Identifier: Apache-2.0
//
// NumPy's array files: the grammar of the header, the elements, and the header that is written.
//
//     header  {  key : value , … }   each of descr, fortran_order, shape exactly once, in any order
//     descr   a quoted type: optional byte order < > = |, a letter, a size
//     shape   ( ), ( n , ), ( n , m , … )
//
// Every error states the file and the offset of the invalid byte.
// Read next: include/regard/io/npy.h.
#include "regard/io/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <new>

#include "regard/error.h"

namespace regard::inline v0 {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxHeaderBytes = 64 * 1024;
constexpr std::size_t kMaxRank = 8;
constexpr std::size_t kHeaderAlignment = 64;  // NumPy's, so that the elements can be mapped

struct TypeEntry {
  ElementType type;
  std::string_view code;
  std::string_view descr;  // as NumPy writes it
};
// The 16-bit type that is converted to float32 when it is read.
constexpr std::string_view kHalf = "f2";
constexpr std::array<TypeEntry, 5> kTypes = {{{ElementType::float32, "f4", "<f4"},
                                              {ElementType::float64, "f8", "<f8"},
                                              {ElementType::int32, "i4", "<i4"},
                                              {ElementType::int64, "i8", "<i8"},
                                              {ElementType::boolean, "b1", "|b1"}}};

// The name of a type that is not supported.
std::string_view foreign_type_name(std::string_view code) {
  struct Foreign {
    std::string_view code;
    std::string_view name;
  };
  static constexpr std::array<Foreign, 19> kForeign = {{{"f16", "long double"},
                                                        {"c8", "complex64"},
                                                        {"c16", "complex128"},
                                                        {"c32", "complex long double"},
                                                        {"i1", "int8"},
                                                        {"i2", "int16"},
                                                        {"u1", "uint8"},
                                                        {"u2", "uint16"},
                                                        {"u4", "uint32"},
                                                        {"u8", "uint64"},
                                                        {"V2", "bfloat16 or raw bytes"},
                                                        {"b", "int8"},
                                                        {"B", "uint8"},
                                                        {"M", "datetime"},
                                                        {"m", "timedelta"},
                                                        {"S", "bytes"},
                                                        {"a", "bytes"},
                                                        {"U", "text"},
                                                        {"V", "raw bytes"}}};
  for (const Foreign& foreign : kForeign) {
    if (code == foreign.code || (foreign.code.size() == 1 && code.starts_with(foreign.code))) return foreign.name;
  }
  return "unknown";
}

// Parses the three values of a header from its text. `base` is the offset of its first byte in the file.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::size_t base, const std::string& name)
      : text_(text), base_(base), name_(name) {}

  void parse() {
    expect('{', "the header's opening {");
    while (!accept('}')) {
      key();
      if (!accept(',')) {
        expect('}', "a comma or the header's closing }");
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) fail(at_, "unexpected characters after the header's closing }");
    for (const auto& [found, word] : {std::pair{has_descr_, "descr"}, std::pair{has_fortran_order_, "fortran_order"},
                                      std::pair{has_shape_, "shape"}}) {
      if (!found) fail(at_, std::string("the header has no '") + word + "'");
    }
  }

  ElementType type = ElementType::float32;
  bool half = false;
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<Index> shape;

  std::size_t shape_offset() const { return base_ + shape_at_; }

 private:
  [[noreturn]] void fail(std::size_t at, const std::string& what) const {
    throw DataError(name_ + ": byte " + std::to_string(base_ + at) + ": " + what);
  }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c, const char* what) {
    if (!accept(c)) fail(at_, std::string("expected ") + what);
  }
  bool accept_word(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  std::string_view quoted(const char* what) {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail(at_, std::string("expected ") + what + " in quotes");
    const std::size_t begin = at_ + 1;
    std::size_t end = begin;
    while (end < text_.size() && text_[end] != quote) {
      const auto byte = static_cast<unsigned char>(text_[end]);
      if (byte < 0x20 || byte > 0x7e || byte == '\\') fail(end, std::string(what) + " contains an invalid character");
      ++end;
    }
    if (end == text_.size()) fail(at_, "unterminated quote");
    at_ = end + 1;
    return text_.substr(begin, end - begin);
  }

  void key() {
    skip_space();
    const std::size_t begin = at_;
    const std::string_view word = quoted("a key");
    bool* seen = word == "descr"           ? &has_descr_
                 : word == "fortran_order" ? &has_fortran_order_
                 : word == "shape"         ? &has_shape_
                                           : nullptr;
    if (seen == nullptr) {
      fail(begin, "key '" + std::string(word) + "' is unknown; expected descr, fortran_order and shape");
    }
    if (*seen) fail(begin, "key '" + std::string(word) + "' occurs twice");
    *seen = true;
    expect(':', "a colon after the key");
    skip_space();
    if (seen == &has_descr_) {
      parse_type();
    } else if (seen == &has_shape_) {
      parse_shape();
    } else if (accept_word("True")) {
      fortran_order = true;
    } else if (!accept_word("False")) {
      fail(at_, "fortran_order is neither True nor False");
    }
  }

  void parse_type() {
    const std::size_t begin = at_;
    if (at_ < text_.size() && (text_[at_] == '[' || text_[at_] == '{' || text_[at_] == '(')) {
      fail(begin,
           "structured types are not supported; expected one of float16, float32, float64, int32, int64 or bool");
    }
    const std::string_view descr = quoted("a type");
    std::string_view code = descr;
    const bool has_order = !code.empty() && std::string_view("<>=|").find(code[0]) != std::string_view::npos;
    if (has_order) code.remove_prefix(1);
    if (code.starts_with('O')) {
      fail(begin, "type '" + std::string(descr) + "' contains Python objects, which are never read; save numbers");
    }
    half = code == kHalf;
    if (half) code = "f4";
    const auto entry = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeEntry& e) { return e.code == code; });
    if (entry == kTypes.end()) {
      fail(begin, "type '" + std::string(descr) + "' (" + std::string(foreign_type_name(code)) +
                      ") is not supported; expected float16, float32, float64, int32, int64 or bool");
    }
    type = entry->type;
    big_endian = has_order && descr[0] == '>' && type_bytes(type) > 1;
  }

  void parse_shape() {
    shape_at_ = at_;
    expect('(', "a tuple such as (2, 3) as the shape");
    bool comma = true;
    while (!accept(')')) {
      if (!comma) fail(at_, "expected a comma or ) in the shape");
      skip_space();
      const std::size_t begin = at_;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
      const std::string_view digits = text_.substr(begin, at_ - begin);
      Index extent = 0;
      if (digits.empty() || (digits.size() > 1 && digits[0] == '0')) fail(begin, "expected an integer extent");
      if (std::from_chars(digits.data(), digits.data() + digits.size(), extent).ec != std::errc()) {
        fail(begin, "extent " + std::string(digits.substr(0, 40)) + " does not fit in 63 bits");
      }
      if (shape.size() == kMaxRank) fail(begin, "the shape has more than " + std::to_string(kMaxRank) + " axes");
      shape.push_back(extent);
      comma = accept(',');
    }
    if (shape.size() == 1 && !comma) fail(shape_at_, "expected a tuple as the shape: (n,) for one axis");
  }

  std::string_view text_;
  std::size_t base_;
  const std::string& name_;
  std::size_t at_ = 0;
  std::size_t shape_at_ = 0;
  bool has_descr_ = false;
  bool has_fortran_order_ = false;
  bool has_shape_ = false;
};

template <std::size_t Bytes>
void swap_bytes(std::byte* p, Index count) {
  for (Index i = 0; i < count; ++i, p += Bytes) std::reverse(p, p + Bytes);
}

// From the last element to the first, so that none is overwritten before it is read.
void widen_in_place(std::byte* p, Index count) {
  for (Index i = count; i-- > 0;) {
    float16 half;
    std::memcpy(&half, p + i * 2, sizeof half);
    const auto wide = static_cast<float>(half);
    std::memcpy(p + i * 4, &wide, sizeof wide);
  }
}

std::vector<Index> strides_of(const std::vector<Index>& shape, bool fortran_order) {
  std::vector<Index> strides(shape.size());
  Index step = 1;
  for (std::size_t n = 0; n < shape.size(); ++n) {
    const std::size_t axis = fortran_order ? n : shape.size() - 1 - n;
    strides[axis] = step;
    step *= std::max<Index>(shape[axis], 1);
  }
  return strides;
}

}  // namespace

Index NpyReader::stored_bytes() const { return half_ ? 2 : type_bytes(type_); }

NpyReader::NpyReader(ByteSource source, std::string name, std::optional<std::uint64_t> num_bytes)
    : source_(std::move(source)), name_(std::move(name)), num_bytes_(num_bytes) {
  read_header();
}

void NpyReader::read_header() {
  const auto fail = [this](std::uint64_t offset, const std::string& what) {
    throw DataError(name_ + ": byte " + std::to_string(offset) + ": " + what);
  };
  std::array<char, 12> front{};
  const auto take = [&](char* to, std::size_t count, const char* what) {
    const std::size_t came = source_(std::as_writable_bytes(std::span(to, count)));
    offset_ += came;
    if (came != count) fail(offset_, std::string("the file ends inside ") + what + " of an NPY file");
  };
  const std::size_t came = source_(std::as_writable_bytes(std::span(front).first(kMagic.size())));
  if (came == 0) fail(0, "the file is empty; expected an NPY file (numpy.save)");
  if (std::string_view(front.data(), came) != kMagic) {
    fail(0, "the file does not begin with the NPY magic string; expected an NPY file (numpy.save)");
  }
  offset_ = came;
  take(front.data(), 2, "the version");
  const int major = static_cast<unsigned char>(front[0]);
  const int minor = static_cast<unsigned char>(front[1]);
  if (major < 1 || major > 3 || minor != 0) {
    fail(6, "version " + std::to_string(major) + "." + std::to_string(minor) + " is unknown; expected 1.0, 2.0 or 3.0");
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  take(front.data(), length_bytes, "the header's length");
  std::size_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(front[i]);
  if (length > kMaxHeaderBytes) {
    fail(8, "the header is " + std::to_string(length) + " bytes long; at most " + std::to_string(kMaxHeaderBytes) +
                " are supported");
  }
  const std::size_t base = static_cast<std::size_t>(offset_);
  std::string text(length, '\0');
  take(text.data(), length, "the header");

  HeaderParser header(text, base, name_);
  header.parse();
  type_ = header.type;
  half_ = header.half;
  big_endian_ = header.big_endian;
  fortran_order_ = header.fortran_order;
  shape_ = std::move(header.shape);

  // Nonzero extents count even if another extent is zero, so that no stride can overflow.
  Index bytes = type_bytes(type_);
  for (Index extent : shape_) {
    if (__builtin_mul_overflow(bytes, std::max<Index>(extent, 1), &bytes)) {
      fail(header.shape_offset(), "shape " + npy_shape_text(shape_) + " does not fit in 63 bits");
    }
  }
  const bool empty = std::find(shape_.begin(), shape_.end(), 0) != shape_.end();
  num_elements_ = empty ? 0 : bytes / type_bytes(type_);

  const auto needed = static_cast<std::uint64_t>(num_elements_ * stored_bytes());
  if (num_bytes_ && *num_bytes_ != offset_ + needed) {
    fail(std::min(*num_bytes_, offset_ + needed),
         "the file holds " + std::to_string(*num_bytes_ - std::min(*num_bytes_, offset_)) + " bytes of data; shape " +
             npy_shape_text(shape_) + " of " + std::string(half_ ? "float16" : type_name(type_)) + " has " +
             std::to_string(needed));
  }
}

NpyArray NpyReader::read() {
  NpyArray array;
  array.type = type_;
  array.shape = shape_;
  array.strides = strides_of(shape_, fortran_order_);
  const auto total = static_cast<std::size_t>(num_elements_ * stored_bytes());

  // A header may announce more data than a pipe delivers, so memory grows with the data that has arrived.
  constexpr std::size_t kFirstBytes = 1 << 20;
  std::size_t capacity = num_bytes_ ? total : std::min(total, kFirstBytes);
  std::size_t filled = 0;
  const auto reserve = [&array](std::size_t count) {
    auto* bytes = static_cast<std::byte*>(std::realloc(array.data.get(), std::max<std::size_t>(count, 1)));
    if (bytes == nullptr) throw std::bad_alloc();
    static_cast<void>(array.data.release());
    array.data.reset(bytes);
  };
  reserve(capacity);
  while (true) {
    filled += source_(std::span(array.data.get() + filled, capacity - filled));
    if (filled < capacity) {
      throw DataError(name_ + ": byte " + std::to_string(offset_ + filled) + ": the file ends after " +
                      std::to_string(filled) + " of " + std::to_string(total) + " bytes of data");
    }
    if (capacity == total) break;
    capacity = total - capacity < capacity ? total : 2 * capacity;
    reserve(capacity);
  }
  std::byte beyond{};
  if (source_(std::span(&beyond, 1)) != 0) {
    throw DataError(name_ + ": byte " + std::to_string(offset_ + total) +
                    ": the file has extra bytes after the last element of shape " + npy_shape_text(shape_));
  }

  convert(array, num_elements_);
  return array;
}

NpyArray NpyReader::read_rows(Index first, Index count, const std::function<void(std::uint64_t)>& seek) {
  const std::size_t rank = shape_.size();
  if (rank < 2 || first < 0 || count < 0 || first > shape_[rank - 2] - count) {
    throw InvalidArgument(name_ + ": rows " + std::to_string(first) + " to " + std::to_string(first + count) +
                          " of an array of shape " + npy_shape_text(shape_) + "; expected existing rows");
  }
  NpyArray array;
  array.type = type_;
  array.shape = shape_;
  array.shape[rank - 2] = count;
  array.strides = strides_of(array.shape, fortran_order_);
  const Index columns = shape_[rank - 1], rows = shape_[rank - 2];
  const Index matrices = rows * columns > 0 ? num_elements_ / (rows * columns) : 0;
  // Elements that follow each other in the file: the rows of one matrix, or those of all matrices in one column.
  const Index row = fortran_order_ ? matrices : columns;
  const Index pieces = fortran_order_ ? columns : matrices, piece = count * row;
  // Elements of 16 bits are converted in place.
  const Index bytes = pieces * piece * std::max(stored_bytes(), type_bytes(type_));
  array.data.reset(static_cast<std::byte*>(std::malloc(static_cast<std::size_t>(std::max<Index>(bytes, 1)))));
  if (array.data == nullptr) throw std::bad_alloc();
  const auto piece_bytes = static_cast<std::size_t>(piece * stored_bytes());
  for (Index n = 0; n < pieces && piece > 0; ++n) {
    const auto at = offset_ + static_cast<std::uint64_t>((n * rows + first) * row * stored_bytes());
    seek(at);
    const std::size_t came =
        source_(std::span(array.data.get() + static_cast<std::size_t>(n) * piece_bytes, piece_bytes));
    if (came < piece_bytes)
      throw DataError(name_ + ": byte " + std::to_string(at + came) + ": the file ends within the rows");
  }
  convert(array, pieces * piece);
  return array;
}

void NpyReader::convert(NpyArray& array, Index count) const {
  if (big_endian_) {
    if (stored_bytes() == 2) swap_bytes<2>(array.data.get(), count);
    if (stored_bytes() == 4) swap_bytes<4>(array.data.get(), count);
    if (stored_bytes() == 8) swap_bytes<8>(array.data.get(), count);
  }
  if (half_) {
    const auto bytes = static_cast<std::size_t>(std::max<Index>(1, count * type_bytes(type_)));
    auto* larger = static_cast<std::byte*>(std::realloc(array.data.get(), bytes));
    if (larger == nullptr) throw std::bad_alloc();
    static_cast<void>(array.data.release());
    array.data.reset(larger);
    widen_in_place(array.data.get(), count);
  }
  if (type_ == ElementType::boolean) {
    std::transform(array.data.get(), array.data.get() + count, array.data.get(),
                   [](std::byte b) { return b == std::byte{0} ? std::byte{0} : std::byte{1}; });
  }
}

std::string npy_shape_text(std::span<const Index> shape) {
  std::string text = "(";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) text += (axis > 0 ? ", " : "") + std::to_string(shape[axis]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::string npy_header(ElementType type, std::span<const Index> shape) {
  const auto entry = std::ranges::find(kTypes, type, &TypeEntry::type);
  if (entry == kTypes.end()) {
    throw InvalidArgument(std::string("npy_header: type is ") + type_name(type) +
                          "; expected float32, float64, int32, int64 or bool");
  }
  std::string text = "{'descr': '" + std::string(entry->descr) +
                     "', 'fortran_order': False, 'shape': " + npy_shape_text(shape) + ", }";
  // Like NumPy, leaves space for the first axis to grow to 21 digits in place.
  constexpr std::size_t kGrowthDigits = 21;
  if (!shape.empty()) text.append(kGrowthDigits - std::to_string(shape[0]).size(), ' ');
  constexpr std::size_t kFrontBytes = 10;  // magic, version, length
  const std::size_t unpadded = kFrontBytes + text.size() + 1;
  // A header that is already aligned gets 64 more spaces, as in NumPy.
  text.append(kHeaderAlignment - unpadded % kHeaderAlignment, ' ');
  text += '\n';
  std::string header(kMagic);
  header += '\1';
  header += '\0';
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace regard::inline v0
