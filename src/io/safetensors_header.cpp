// SPDX-License-Identifier: Apache-2.0
//
// Parses the header of a safetensors file. nlohmann's parser calls the handler below for each event, which fills the
// entries directly, so that a header of 100 MB does not become a tree of values.
//
//     { "__metadata__": {text: text, …},   name: { "dtype": text, "shape": [n, …], "data_offsets": [begin, end] },  … }
//       root            metadata                 entry            shape           offsets
//
// Then, over all entries: names are unique; sorted by offset, the tensors cover the data from its first byte to its
// last, without gaps or overlaps.
// Read next: safetensors.cpp.
#include "safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "json_offset.h"
#include "regard/error.h"
#include "regard/io/utf8.h"

namespace regard::inline v0::internal {
namespace {

constexpr std::uint64_t kHeaderBegin = 8;
constexpr std::size_t kMaxRank = 8;
constexpr std::size_t kMaxNameBytes = 512;
constexpr std::uint64_t kMaxExtent = std::uint64_t{1} << 48;

// A list as in the header: "[2, 3]".
template <class Numbers>
std::string list_text(const Numbers& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(std::string_view text, const std::string& name, Index max_tensors)
      : text_(text), name_(name), max_tensors_(static_cast<std::size_t>(max_tensors)), taken_(text.data()) {}

  const char** taken() { return &taken_; }
  // The entries, ascending by name.
  std::vector<HeaderEntry> take() {
    std::sort(metadata_.begin(), metadata_.end());
    for (std::size_t i = 1; i < metadata_.size(); ++i) {
      const auto& [name, at] = metadata_[i];
      if (name == metadata_[i - 1].first) reject_twice("metadata", name, at, metadata_[i - 1].second);
    }
    std::sort(entries_.begin(), entries_.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
      return std::tie(a.name, a.offset) < std::tie(b.name, b.offset);
    });
    for (std::size_t i = 1; i < entries_.size(); ++i) {
      const HeaderEntry& before = entries_[i - 1];
      if (entries_[i].name != before.name) continue;
      reject_twice("tensor", before.name, entries_[i].offset - kHeaderBegin, before.offset - kHeaderBegin);
    }
    return std::move(entries_);
  }

  [[noreturn]] void fail(std::uint64_t at, const std::string& what) const {
    throw DataError(
        fmt::format("{}: byte {}: {}", escape_for_terminal(name_), kHeaderBegin + at, escape_for_terminal(what)));
  }

  bool null() override { reject("null"); }
  bool boolean(bool) override { reject("true or false"); }
  bool number_integer(number_integer_t value) override { reject(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { reject(text.substr(0, 40)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (where_ == Where::shape) {
      if (value > kMaxExtent) fail(number_offset(), fmt::format("extent {} of {} exceeds 2^48", value, tensor()));
      if (entry_.shape.size() == kMaxRank) {
        fail(number_offset(), fmt::format("{} has more than {} axes", tensor(), kMaxRank));
      }
      entry_.shape.push_back(static_cast<Index>(value));
    } else if (where_ == Where::offsets && num_offsets_ < 2) {
      (num_offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    } else if (where_ == Where::offsets) {
      fail(number_offset(), fmt::format("data_offsets of {} has more than two elements", tensor()));
    } else {
      reject("a number");
    }
    return true;
  }
  bool string(string_t& value) override {
    if (where_ == Where::metadata) return true;
    if (where_ != Where::entry || field_ != "dtype") reject("text");
    for (int i = 1; i <= static_cast<int>(ElementType::uint64); ++i) {
      if (value != safetensors_type_name(static_cast<ElementType>(i))) continue;
      entry_.type = static_cast<ElementType>(i);
      return true;
    }
    fail(start_of_string(text_, offset()),
         fmt::format(
             "type \"{}\" of {} is not supported; expected F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, "
             "U8 or BOOL",
             text_in_message(value), tensor()));
  }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override {
    if (where_ == Where::start) {
      where_ = Where::root;
    } else if (where_ == Where::root) {
      where_ = key_ == "__metadata__" ? Where::metadata : Where::entry;
      has_type_ = has_shape_ = has_offsets_ = false;
    } else {
      reject("an object");
    }
    return true;
  }
  bool start_array(std::size_t) override {
    if (where_ != Where::entry || field_ == "dtype") reject("a list");
    where_ = field_ == "shape" ? Where::shape : Where::offsets;
    num_offsets_ = 0;
    return true;
  }
  bool end_object() override {
    if (where_ == Where::entry) {
      for (const auto& [found, field] :
           {std::pair{has_type_, "dtype"}, std::pair{has_shape_, "shape"}, std::pair{has_offsets_, "data_offsets"}}) {
        if (!found) fail(offset() - 1, fmt::format("{} has no {}", tensor(), field));
      }
      if (entries_.size() == max_tensors_) {
        fail(entry_.offset - kHeaderBegin,
             fmt::format("more than {} tensors; the option max_tensors raises this limit", max_tensors_));
      }
      entries_.push_back(std::move(entry_));
    }
    where_ = where_ == Where::root ? Where::start : Where::root;
    return true;
  }
  bool end_array() override {
    if (where_ == Where::offsets && num_offsets_ != 2) {
      fail(offset() - 1, fmt::format("data_offsets of {} has fewer than two elements", tensor()));
    }
    where_ = Where::entry;
    return true;
  }
  bool key(string_t& value) override {
    const std::uint64_t at = start_of_string(text_, offset());
    if (where_ == Where::metadata) {
      metadata_.emplace_back(std::move(value), at);
    } else if (where_ == Where::entry) {
      bool* found = value == "dtype"          ? &has_type_
                    : value == "shape"        ? &has_shape_
                    : value == "data_offsets" ? &has_offsets_
                                              : nullptr;
      if (found == nullptr) {
        fail(at, fmt::format("{} has the unknown field \"{}\"; expected dtype, shape and data_offsets", tensor(),
                             text_in_message(value)));
      }
      if (*found) fail(at, fmt::format("{} of {} occurs twice", value, tensor()));
      *found = true;
      field_ = value;
    } else {
      key_ = value;
      if (value == "__metadata__") {
        if (metadata_offset_) {
          fail(at, fmt::format("__metadata__ occurs twice, first at byte {}", kHeaderBegin + *metadata_offset_));
        }
        metadata_offset_ = at;
      } else {
        check_name(value, at);
        entry_ = {};
        entry_.name = std::move(value);
        entry_.offset = kHeaderBegin + at;
      }
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) override {
    fail(position == 0 ? 0 : std::min(position - 1, text_.size()), parser_reason(error.what(), error.id));
  }

 private:
  enum class Where { start, root, metadata, entry, shape, offsets };

  std::size_t offset() const { return static_cast<std::size_t>(taken_ - text_.data()); }
  // When a number is reported, the parser has already consumed the byte after it.
  std::size_t number_offset() const { return offset() - std::min<std::size_t>(offset(), 2); }
  std::string tensor() const { return fmt::format("tensor \"{}\"", text_in_message(entry_.name)); }

  [[noreturn]] void reject(const std::string& what) const {
    std::string expected;
    if (where_ == Where::metadata) {
      expected = fmt::format("metadata \"{}\" must be a string",
                             text_in_message(metadata_.empty() ? "" : metadata_.back().first));
    } else if (where_ == Where::root && key_ == "__metadata__") {
      expected = "__metadata__ must be an object of strings";
    } else if (where_ == Where::root) {
      expected = tensor() + " must be an object with dtype, shape and data_offsets";
    } else if (where_ == Where::shape || (where_ == Where::entry && field_ == "shape")) {
      expected = "shape of " + tensor() + " must be a list of integers from 0 to 2^48";
    } else if (where_ == Where::offsets || (where_ == Where::entry && field_ == "data_offsets")) {
      expected = "data_offsets of " + tensor() + " must be a list of two integers from 0 to 2^64 - 1";
    } else {
      expected = "dtype of " + tensor() + " must be a string";
    }
    fail(number_offset(), expected + ", not " + what);
  }

  [[noreturn]] void reject_twice(const char* what, std::string_view name, std::uint64_t at,
                                 std::uint64_t before) const {
    fail(at,
         fmt::format("{} \"{}\" occurs twice, first at byte {}", what, text_in_message(name), kHeaderBegin + before));
  }

  void check_name(std::string_view name, std::uint64_t at) const {
    if (name.empty()) fail(at, "the name of a tensor is empty");
    if (name.size() > kMaxNameBytes) {
      fail(at, fmt::format("the name of a tensor is {} bytes long; the limit is {}", name.size(), kMaxNameBytes));
    }
    for (std::size_t i = 0; i < name.size(); ++i) {
      const auto byte = static_cast<unsigned char>(name[i]);
      const bool second_half = byte == 0xc2 && static_cast<unsigned char>(name[i + 1]) < 0xa0;  // U+0080 to U+009F
      if (byte < 0x20 || byte == 0x7f || second_half) {
        fail(at, fmt::format("the name \"{}\" of a tensor contains a control character", text_in_message(name)));
      }
    }
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t max_tensors_;
  const char* taken_;
  Where where_ = Where::start;
  std::string key_;    // of the root object
  std::string field_;  // of an entry
  HeaderEntry entry_;
  bool has_type_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  int num_offsets_ = 0;
  std::optional<std::uint64_t> metadata_offset_;
  std::vector<std::pair<std::string, std::uint64_t>> metadata_;
  std::vector<HeaderEntry> entries_;
};

// Only spaces may follow the closing brace, as padding.
std::string_view without_padding(std::string_view text, const HeaderReader& reader) {
  if (text.empty() || text[0] != '{') reader.fail(0, "the header does not begin with {; not a safetensors file");
  const std::size_t end = text.find_last_not_of(' ') + 1;
  if (text[end - 1] == '\0' || text[end - 1] == '\n' || text[end - 1] == '\r' || text[end - 1] == '\t') {
    reader.fail(end - 1, "the header is padded with characters other than spaces");
  }
  return text.substr(0, end);
}

void check_size(const HeaderEntry& e, const HeaderReader& reader) {
  const auto fail = [&](const std::string& what) {
    reader.fail(e.offset - kHeaderBegin, fmt::format("tensor \"{}\": {}", text_in_message(e.name), what));
  };
  // Extents count even if another extent is zero, so that no stride can overflow.
  const Index item = type_bytes(e.type);
  Index bytes = item;
  bool empty = false;
  for (Index extent : e.shape) {
    empty = empty || extent == 0;
    if (__builtin_mul_overflow(bytes, std::max<Index>(extent, 1), &bytes)) {
      fail(fmt::format("shape {} of {} does not fit in 63 bits", list_text(e.shape), safetensors_type_name(e.type)));
    }
  }
  const std::uint64_t needed = empty ? 0 : static_cast<std::uint64_t>(bytes);
  if (e.begin > e.end) fail(fmt::format("data_offsets [{}, {}] end before they begin", e.begin, e.end));
  if (e.end - e.begin != needed) {
    fail(fmt::format("shape {} of {} takes {} bytes; data_offsets [{}, {}] hold {}", list_text(e.shape),
                     safetensors_type_name(e.type), needed, e.begin, e.end, e.end - e.begin));
  }
}

void check_tiling(const std::vector<HeaderEntry>& entries, std::uint64_t num_data_bytes, const HeaderReader& reader) {
  std::uint64_t reached = 0;
  const HeaderEntry* before = nullptr;
  for (const HeaderEntry& e : entries) {
    const std::uint64_t at = e.offset - kHeaderBegin;
    if (e.begin < reached) {
      reader.fail(at, fmt::format("tensor \"{}\" begins at byte {} of the data, within \"{}\", which ends at {}",
                                  text_in_message(e.name), e.begin, text_in_message(before->name), reached));
    }
    if (e.begin > reached) {
      reader.fail(
          at, fmt::format("bytes {} to {} of the data belong to no tensor; the next tensor, \"{}\", begins after them",
                          reached, e.begin, text_in_message(e.name)));
    }
    reached = e.end;
    before = &e;
  }
  if (reached > num_data_bytes) {
    reader.fail(before->offset - kHeaderBegin,
                fmt::format("tensor \"{}\" ends at byte {} of the data, but the file has only {}; it is truncated",
                            text_in_message(before->name), reached, num_data_bytes));
  }
}

}  // namespace

std::string shape_text(const std::vector<Index>& shape) { return list_text(shape); }

std::vector<HeaderEntry> read_safetensors_header(std::string_view text, std::uint64_t num_data_bytes,
                                                 const std::string& name, const ModelFileOptions& options,
                                                 const std::stop_token& stop) {
  HeaderReader reader(text, name, options.max_tensors);
  const std::string_view json = without_padding(text, reader);
  if (const std::size_t valid = valid_utf8_bytes(json, stop); valid != json.size())
    reader.fail(valid, "not valid UTF-8");
  const CountingIterator first(json.data(), reader.taken(), stop);
  const CountingIterator last(json.data() + json.size(), reader.taken(), stop);
  nlohmann::json::sax_parse(first, last, &reader);

  std::vector<HeaderEntry> entries = reader.take();
  for (const HeaderEntry& e : entries) check_size(e, reader);
  std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::tie(a.begin, a.end, a.offset) < std::tie(b.begin, b.end, b.offset);
  });
  check_tiling(entries, num_data_bytes, reader);
  const std::uint64_t reached = entries.empty() ? 0 : entries.back().end;
  if (reached < num_data_bytes) {
    reader.fail(text.size() + reached,
                fmt::format("the file has {} extra bytes after its last tensor", num_data_bytes - reached));
  }
  return entries;
}

}  // namespace regard::inline v0::internal
