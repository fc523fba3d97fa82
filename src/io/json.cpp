// SPDX-License-Identifier: Apache-2.0
//
// JSON parsing: nlohmann's parser through its SAX interface, which builds our own tree and therefore detects duplicate
// names, depth, and byte offsets. Before it, a pass over the brackets measures the memory that the tree needs:
//
//     text ── Outline: values of each container ──▶ enough memory? ── parser ──▶ vectors of exactly that size
//
// Read next: regard/io/json.h.
#include "regard/io/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "json_offset.h"
#include "regard/error.h"
#include "regard/io/sorted_names.h"
#include "regard/io/utf8.h"

namespace regard::inline v0 {
namespace internal {

// For each container, in the order of opening brackets: the number of its values, and whether all are numbers.
struct JsonContainer {
  std::uint32_t count : 31 = 0;
  std::uint32_t only_numbers : 1 = 1;
};

}  // namespace internal

namespace {

using internal::JsonContainer;

constexpr std::uint32_t kMaxCount = 0x7fffffff;
constexpr std::size_t kReservedDepth = 128;

// The information about the tree that one pass over the brackets, commas and strings of a text yields, without parsing.
// For a text that is not JSON it is still valid up to the offset where the parser stops.
class Outline {
 public:
  Outline(std::string_view text, std::size_t max_depth, const std::stop_token& stop,
          std::vector<JsonContainer>* containers)
      : text_(text), stop_(stop), containers_(containers) {
    open_.reserve(std::min(max_depth, kReservedDepth));
    scan(max_depth);
  }

  std::size_t num_containers() const { return num_containers_; }

  // An upper bound for read_json.
  std::uint64_t memory_bytes() const {
    constexpr std::uint64_t kFixed = 8192;  // the stacks, the parser, short messages
    std::uint64_t bytes = kFixed + num_containers_ * sizeof(JsonContainer) + sizeof(JsonValue);
    bytes += num_numbers_ * sizeof(double) + num_items_ * sizeof(JsonValue) + num_members_ * sizeof(JsonValue::Member);
    bytes += num_allocations_ * kAllocation + long_string_bytes_;
    bytes += max_members_ * SortedNames::kBytesPerName;
    // For its messages, the parser keeps the last string, and the text since the last string or number began; while
    // such a buffer grows, it takes three times its contents. A message is copied six times before it is truncated.
    return bytes + 3 * longest_string_ + 3 * longest_stretch_ + 6 * longest_shown_;
  }

 private:
  // The overhead of an allocation, at most.
  static constexpr std::uint64_t kAllocation = 32;

  struct Open {
    std::size_t number;  // in the order of the brackets
    bool is_object;
    bool is_empty = true;
    bool only_numbers = true;
    std::uint64_t commas = 0;
  };

  void begin_value(bool is_number) {
    if (open_.empty()) return;
    open_.back().is_empty = false;
    open_.back().only_numbers = open_.back().only_numbers && is_number;
  }

  void open(bool is_object) {
    begin_value(false);
    open_.push_back({num_containers_++, is_object});
    if (containers_ != nullptr) containers_->emplace_back();
  }

  void close() {
    const Open closed = open_.back();
    open_.pop_back();
    if (closed.is_empty) return;
    const std::uint64_t count = closed.commas + 1;
    ++num_allocations_;
    if (closed.is_object) {
      num_members_ += count;
      max_members_ = std::max(max_members_, count);
    } else {
      (closed.only_numbers ? num_numbers_ : num_items_) += count;
    }
    if (containers_ == nullptr) return;
    (*containers_)[closed.number] = {
        .count = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, kMaxCount)) & kMaxCount,
        .only_numbers = closed.only_numbers};
  }

  void add_to_stretch(char c) {
    constexpr int kShownControl = 8;  // "<U+000A>"
    ++stretch_;
    shown_ += static_cast<unsigned char>(c) < 0x20 ? kShownControl : 1;
    longest_stretch_ = std::max(longest_stretch_, stretch_);
    longest_shown_ = std::max(longest_shown_, shown_);
  }
  void begin_stretch() { stretch_ = shown_ = 0; }

  // Returns the offset after the closing quote.
  std::size_t string(std::size_t at) {
    begin_stretch();
    const std::size_t begin = at;
    for (add_to_stretch(text_[at++]); at < text_.size() && text_[at] != '"'; ++at) {
      if (text_[at] == '\\' && at + 1 < text_.size()) add_to_stretch(text_[at++]);
      add_to_stretch(text_[at]);
      look(at);
    }
    if (at < text_.size()) add_to_stretch(text_[at++]);
    const std::uint64_t length = at - begin;
    longest_string_ = std::max(longest_string_, length);
    constexpr std::uint64_t kInPlace = 15;  // bytes that a std::string holds without an allocation
    if (length > kInPlace) {
      long_string_bytes_ += length;
      ++num_allocations_;
    }
    return at;
  }

  std::size_t number(std::size_t at) {
    constexpr std::string_view kOfNumbers = "0123456789+-.eE";
    begin_stretch();
    for (; at < text_.size() && kOfNumbers.find(text_[at]) != std::string_view::npos; ++at) add_to_stretch(text_[at]);
    return at;
  }

  void scan(std::size_t max_depth) {
    for (std::size_t at = 0; at < text_.size();) {
      look(at);
      const char c = text_[at];
      if (c == '"') {
        begin_value(false);
        at = string(at);
        continue;
      }
      if (c == '-' || (c >= '0' && c <= '9')) {
        begin_value(true);
        at = number(at);
        continue;
      }
      add_to_stretch(c);
      ++at;
      if (c == '[' || c == '{') {
        if (open_.size() == max_depth) break;
        open(c == '{');
      } else if (c == ']' || c == '}') {
        if (open_.empty()) break;
        close();
      } else if (c == ',') {
        if (!open_.empty()) ++open_.back().commas;
      } else if (c != ' ' && c != '\n' && c != '\r' && c != '\t' && c != ':') {
        begin_value(false);  // true, false, null
      }
    }
    while (!open_.empty()) close();
  }

  void look(std::size_t at) const {
    constexpr std::size_t kLook = 4096;
    if (at % kLook == 0) throw_if_stopped(stop_, "reading JSON");
  }

  std::string_view text_;
  const std::stop_token& stop_;
  std::vector<JsonContainer>* containers_;
  std::vector<Open> open_;
  std::size_t num_containers_ = 0;
  std::uint64_t num_numbers_ = 0, num_items_ = 0, num_members_ = 0;
  std::uint64_t max_members_ = 0;  // of one object
  std::uint64_t num_allocations_ = 0, long_string_bytes_ = 0;
  std::uint64_t longest_string_ = 0;
  std::uint64_t stretch_ = 0, shown_ = 0;  // since a string or number began: bytes, and their length in a message
  std::uint64_t longest_stretch_ = 0, longest_shown_ = 0;
};

}  // namespace

class JsonTreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonTreeBuilder(std::string_view text, const std::string& source, std::size_t max_depth, const std::stop_token& stop,
                  std::vector<JsonContainer> containers)
      : text_(text),
        source_(source),
        max_depth_(max_depth),
        stop_(stop),
        taken_(text.data()),
        containers_(std::move(containers)) {
    open_.reserve(std::min(max_depth, kReservedDepth));
  }

  const char** taken() { return &taken_; }
  JsonValue take() { return std::move(root_); }

  bool null() override { return add(std::monostate(), 4); }
  bool boolean(bool value) override { return add(value, value ? 4 : 5); }
  bool number_integer(number_integer_t value) override { return number(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  // Copied, so that a string takes only as much memory as its bytes, and the parser keeps its buffer.
  bool string(string_t& value) override {
    return add(std::string(std::string_view(value)), offset() - internal::start_of_string(text_, offset()));
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return start(true); }
  bool start_array(std::size_t) override { return start(false); }
  bool end_object() override {
    if (first_repeated(members())) fail_at_repeated_name();
    return end();
  }
  bool end_array() override { return end(); }
  bool key(string_t& value) override {
    members().emplace_back(std::string_view(value), JsonValue{});
    members().back().second.offset = internal::start_of_string(text_, offset());
    has_value_ = false;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) override {
    fail(position == 0 ? 0 : std::min(position - 1, text_.size()), internal::parser_reason(error.what(), error.id));
  }

 private:
  std::size_t offset() const { return static_cast<std::size_t>(taken_ - text_.data()); }
  std::vector<JsonValue::Member>& members() {
    return std::get<std::vector<JsonValue::Member>>(open_.back()->contents_);
  }

  bool number(double value) {
    if (!std::isfinite(value)) fail(offset(), "a number is out of range for double");
    if (!open_.empty()) {
      if (auto* numbers = std::get_if<std::vector<double>>(&open_.back()->contents_)) {
        numbers->push_back(value);
        return true;
      }
    }
    return add(value, 2);
  }

  bool start(bool is_object) {
    if (open_.size() == max_depth_) fail(offset() - 1, fmt::format("nested deeper than {}", max_depth_));
    const JsonContainer container = containers_[num_started_++];
    JsonValue* value;
    if (is_object) {
      value = put(std::vector<JsonValue::Member>(), 1);
      std::get<std::vector<JsonValue::Member>>(value->contents_).reserve(container.count);
    } else if (container.only_numbers) {
      value = put(std::vector<double>(), 1);
      std::get<std::vector<double>>(value->contents_).reserve(container.count);
    } else {
      value = put(std::vector<JsonValue>(), 1);
      std::get<std::vector<JsonValue>>(value->contents_).reserve(container.count);
    }
    open_.push_back(value);
    return true;
  }
  bool end() {
    open_.pop_back();
    return true;
  }
  template <class T>
  bool add(T contents, std::size_t length) {
    put(std::move(contents), length);
    return true;
  }
  template <class T>
  JsonValue* put(T contents, std::size_t length) {
    JsonValue value(std::move(contents), offset() - std::min(offset(), length));
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (auto* items = std::get_if<std::vector<JsonValue>>(&open_.back()->contents_)) {
      items->push_back(std::move(value));
      return &items->back();
    }
    if (std::holds_alternative<std::vector<JsonValue::Member>>(open_.back()->contents_)) {
      has_value_ = true;
      members().back().second = std::move(value);
      return &members().back().second;
    }
    throw std::logic_error("read_json: an array of numbers contains a value that is not a number");
  }

  std::optional<std::size_t> first_repeated(const std::vector<JsonValue::Member>& all) const {
    if (all.size() < 2) return std::nullopt;
    const auto name_at = [&](std::size_t i) { return std::string_view(all[i].first); };
    return SortedNames(all.size(), name_at, "reading JSON", stop_).first_repeated();
  }

  // Names are compared when their object ends. The first error in the text may therefore be a duplicate name in an
  // enclosing object, or one before the error that ended parsing.
  void fail_at_repeated_name() const {
    std::size_t first = text_.size();
    const std::string* name = nullptr;
    for (const JsonValue* value : open_) {
      if (value->kind() != JsonValue::Kind::object) continue;
      const auto repeated = first_repeated(value->members());
      if (!repeated) continue;
      const std::size_t at = start_of_name(value->members(), *repeated);
      if (at >= first) continue;
      first = at;
      name = &value->members()[*repeated].first;
    }
    if (name == nullptr) return;
    throw_error(first, fmt::format("the name \"{}\" occurs twice in one object", truncate_text(*name, kMaxShownBytes)));
  }

  // Only a colon and spaces separate a name from its value. Before there is a value, its offset is that of the name.
  std::size_t start_of_name(const std::vector<JsonValue::Member>& all, std::size_t i) const {
    const std::size_t at = all[i].second.offset;
    if (!has_value_ && &all[i] == &all.back() && &all == &open_.back()->members()) return at;
    return internal::start_of_string(text_, text_.rfind('"', text_.rfind(':', at)) + 1);
  }

  [[noreturn]] void fail(std::size_t at, const std::string& what) const {
    fail_at_repeated_name();
    throw_error(at, what);
  }
  [[noreturn]] void throw_error(std::size_t at, const std::string& what) const {
    throw DataError(fmt::format("{}: byte {}: {}", escape_for_terminal(source_), at, escape_for_terminal(what)));
  }

  static constexpr std::size_t kMaxShownBytes = 80;

  std::string_view text_;
  const std::string& source_;
  std::size_t max_depth_;
  const std::stop_token& stop_;
  const char* taken_;
  std::vector<JsonContainer> containers_;
  std::size_t num_started_ = 0;
  JsonValue root_;
  bool has_value_ = true;  // whether the last member of the innermost object has a value
  // Only the innermost value grows, so the addresses of the enclosing ones remain valid.
  std::vector<JsonValue*> open_;
};

JsonValue::Kind JsonValue::kind() const {
  constexpr Kind kKinds[] = {Kind::null,  Kind::boolean, Kind::number, Kind::string,
                             Kind::array, Kind::array,   Kind::object};
  return kKinds[contents_.index()];
}

namespace {

template <class T, class Contents>
const T& contents_or_empty(const Contents& contents) {
  static const T empty{};
  const T* found = std::get_if<T>(&contents);
  return found != nullptr ? *found : empty;
}

}  // namespace

bool JsonValue::boolean() const { return contents_or_empty<bool>(contents_); }
double JsonValue::number() const { return contents_or_empty<double>(contents_); }
const std::string& JsonValue::text() const { return contents_or_empty<std::string>(contents_); }
const std::vector<double>& JsonValue::numbers() const { return contents_or_empty<std::vector<double>>(contents_); }
const std::vector<JsonValue>& JsonValue::items() const { return contents_or_empty<std::vector<JsonValue>>(contents_); }
const std::vector<JsonValue::Member>& JsonValue::members() const {
  return contents_or_empty<std::vector<Member>>(contents_);
}

const JsonValue* JsonValue::find(std::string_view name) const {
  for (const auto& [key, value] : members())
    if (key == name) return &value;
  return nullptr;
}

std::uint64_t json_memory_bytes(std::string_view text, Index max_depth, const std::stop_token& stop) {
  return Outline(text, static_cast<std::size_t>(max_depth), stop, nullptr).memory_bytes();
}

JsonValue read_json(std::string_view text, const std::string& source, Index max_depth, const std::stop_token& stop,
                    std::optional<std::uint64_t> max_memory_bytes) {
  if (const std::size_t valid = valid_utf8_bytes(text, stop); valid != text.size())
    throw DataError(fmt::format("{}: byte {}: not valid UTF-8", escape_for_terminal(source), valid));
  const auto depth = static_cast<std::size_t>(max_depth);
  std::vector<JsonContainer> containers;
  {
    const Outline outline(text, depth, stop, nullptr);
    check_json_memory(source, outline.memory_bytes(), max_memory_bytes);
    containers.reserve(outline.num_containers());
  }
  Outline(text, depth, stop, &containers);
  JsonTreeBuilder builder(text, source, depth, stop, std::move(containers));
  const internal::CountingIterator first(text.data(), builder.taken(), stop);
  const internal::CountingIterator last(text.data() + text.size(), builder.taken(), stop);
  nlohmann::json::sax_parse(first, last, &builder);
  return builder.take();
}

void check_json_memory(const std::string& source, std::uint64_t needed, std::optional<std::uint64_t> max_memory_bytes) {
  constexpr std::uint64_t kUnasked = 64 << 10;
  if (needed <= kUnasked) return;
  const std::uint64_t available = max_memory_bytes ? *max_memory_bytes : available_memory_bytes();
  if (needed <= available) return;
  throw DataError(
      fmt::format("{}: needs {} bytes of memory; {} are available", escape_for_terminal(source), needed, available));
}

}  // namespace regard::inline v0
