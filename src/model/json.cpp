// SPDX-License-Identifier: Apache-2.0
//
// JSON in: nlohmann's parser through its SAX interface, which builds our own tree and so sees names that stand twice,
// the depth, and the place in the text.
// Read next: regard/json.h.
#include "regard/json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_set>

#include "json_place.h"
#include "regard/text.h"

namespace regard {
inline namespace v0 {
namespace {

class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeBuilder(std::string_view text, const std::string& source, std::size_t max_depth)
      : text_(text), source_(source), max_depth_(max_depth), taken_(text.data()) {}

  const char** taken() { return &taken_; }
  JsonValue take() { return std::move(root_); }

  bool null() override { return add({}, 4); }
  bool boolean(bool value) override {
    JsonValue v;
    v.kind = JsonValue::Kind::boolean;
    v.boolean = value;
    return add(std::move(v), value ? 4 : 5);
  }
  bool number_integer(number_integer_t value) override { return number(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool string(string_t& value) override {
    JsonValue v;
    v.kind = JsonValue::Kind::string;
    v.text = std::move(value);
    return add(std::move(v), offset() - internal::start_of_string(text_, offset()));
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return start(JsonValue::Kind::object); }
  bool start_array(std::size_t) override { return start(JsonValue::Kind::array); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& value) override {
    const std::size_t at = internal::start_of_string(text_, offset());
    if (!names_.back().insert(value).second)
      fail(at, fmt::format("the name \"{}\" stands twice in one object", escape_for_terminal(value.substr(0, 80))));
    open_.back()->members.emplace_back(std::move(value), JsonValue{});
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) override {
    fail(position == 0 ? 0 : std::min(position - 1, text_.size()), internal::parser_reason(error.what(), error.id));
  }

 private:
  std::size_t offset() const { return static_cast<std::size_t>(taken_ - text_.data()); }

  bool number(double value) {
    if (!std::isfinite(value)) fail(offset(), "a number is larger than a double can be");
    JsonValue v;
    v.kind = JsonValue::Kind::number;
    v.number = value;
    return add(std::move(v), 2);
  }

  bool start(JsonValue::Kind kind) {
    if (open_.size() == max_depth_) fail(offset() - 1, fmt::format("nested deeper than {}", max_depth_));
    JsonValue v;
    v.kind = kind;
    JsonValue* place = put(std::move(v), 1);
    open_.push_back(place);
    names_.emplace_back();
    return true;
  }
  bool end() {
    open_.pop_back();
    names_.pop_back();
    return true;
  }
  bool add(JsonValue value, std::size_t length) {
    put(std::move(value), length);
    return true;
  }
  JsonValue* put(JsonValue value, std::size_t length) {
    value.offset = offset() - std::min(offset(), length);
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    JsonValue& parent = *open_.back();
    if (parent.kind == JsonValue::Kind::array) {
      if (value.kind == JsonValue::Kind::number && parent.items.empty()) {
        parent.numbers.push_back(value.number);
        return nullptr;
      }
      for (double number : parent.numbers) {
        parent.items.emplace_back();
        parent.items.back().kind = JsonValue::Kind::number;
        parent.items.back().number = number;
        parent.items.back().offset = parent.offset;
      }
      parent.numbers.clear();
      parent.items.push_back(std::move(value));
      return &parent.items.back();
    }
    parent.members.back().second = std::move(value);
    return &parent.members.back().second;
  }

  [[noreturn]] void fail(std::size_t at, const std::string& what) const {
    throw std::runtime_error(
        fmt::format("{}: byte {}: {}", escape_for_terminal(source_), at, escape_for_terminal(what)));
  }

  std::string_view text_;
  const std::string& source_;
  std::size_t max_depth_;
  const char* taken_;
  JsonValue root_;
  // Only the innermost value grows, so the places of those round it stay.
  std::vector<JsonValue*> open_;
  std::vector<std::unordered_set<std::string>> names_;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
  for (const auto& [key, value] : members)
    if (key == name) return &value;
  return nullptr;
}

JsonValue read_json(std::string_view text, const std::string& source, Index max_depth, const Runtime& runtime) {
  if (const std::size_t valid = valid_utf8_bytes(text, runtime); valid != text.size())
    throw std::runtime_error(fmt::format("{}: byte {}: not UTF-8", escape_for_terminal(source), valid));
  TreeBuilder builder(text, source, static_cast<std::size_t>(max_depth));
  const internal::CountingIterator first(text.data(), builder.taken(), runtime);
  const internal::CountingIterator last(text.data() + text.size(), builder.taken(), runtime);
  nlohmann::json::sax_parse(first, last, &builder);
  return builder.take();
}

}  // namespace v0
}  // namespace regard
