// SPDX-License-Identifier: Apache-2.0
//
// Members of JSON objects with checks; see regard/io/json_fields.h.
// Read next: json.cpp.
#include "regard/io/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "regard/error.h"
#include "regard/io/utf8.h"

namespace regard::inline v0 {

JsonFields::JsonFields(std::string source, const JsonValue& object) : source_(std::move(source)), object_(object) {
  if (object_.kind() != JsonValue::Kind::object) fail(object_, "expected an object");
}

void JsonFields::fail(const JsonValue& at, const std::string& what) const {
  throw DataError(fmt::format("{}: byte {}: {}", escape_for_terminal(source_), at.offset, what));
}

std::string JsonFields::shown(const JsonValue& value) {
  switch (value.kind()) {
    case JsonValue::Kind::null:
      return "null";
    case JsonValue::Kind::boolean:
      return value.boolean() ? "true" : "false";
    case JsonValue::Kind::number:
      return fmt::format("{}", value.number());
    case JsonValue::Kind::string:
      return fmt::format("\"{}\"", text_in_message(value.text()));
    case JsonValue::Kind::array:
      return "a list";
    case JsonValue::Kind::object:
      break;
  }
  return "an object";
}

const JsonValue& JsonFields::required(std::string_view name) const {
  const JsonValue* value = find(name);
  if (value == nullptr) throw DataError(fmt::format("{}: {} is missing", escape_for_terminal(source_), name));
  return *value;
}

JsonFields JsonFields::object(std::string_view name) const {
  const JsonValue& value = required(name);
  if (value.kind() != JsonValue::Kind::object) {
    fail(value, fmt::format("{} is {}; expected an object", name, shown(value)));
  }
  return {source_, value};
}

Index JsonFields::whole(std::string_view name, Index min, Index max) const {
  const JsonValue& value = required(name);
  const double x = value.number();
  if (value.kind() != JsonValue::Kind::number || !(x >= static_cast<double>(min)) || x > static_cast<double>(max) ||
      x != std::floor(x)) {
    fail(value, fmt::format("{} is {}; expected an integer from {} to {}", name, shown(value), min, max));
  }
  return static_cast<Index>(x);
}

double JsonFields::number(std::string_view name) const {
  const JsonValue& value = required(name);
  if (value.kind() != JsonValue::Kind::number) {
    fail(value, fmt::format("{} is {}; expected a number", name, shown(value)));
  }
  return value.number();
}

std::uint64_t JsonFields::whole_in_text(std::string_view name) const {
  const std::string& digits = text(name);
  std::uint64_t x = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), x);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    const JsonValue& value = required(name);
    fail(value, fmt::format("{} is {}; expected the digits of an integer below 2^64", name, shown(value)));
  }
  return x;
}

bool JsonFields::boolean(std::string_view name) const {
  const JsonValue& value = required(name);
  if (value.kind() != JsonValue::Kind::boolean) {
    fail(value, fmt::format("{} is {}; expected true or false", name, shown(value)));
  }
  return value.boolean();
}

const std::string& JsonFields::text(std::string_view name) const {
  const JsonValue& value = required(name);
  if (value.kind() != JsonValue::Kind::string) {
    fail(value, fmt::format("{} is {}; expected text", name, shown(value)));
  }
  return value.text();
}

std::size_t JsonFields::word(std::string_view name, std::span<const std::string_view> words) const {
  const JsonValue& value = required(name);
  if (value.kind() == JsonValue::Kind::string) {
    const auto at = std::find(words.begin(), words.end(), value.text());
    if (at != words.end()) return static_cast<std::size_t>(at - words.begin());
  }
  fail(value, fmt::format("{} is {}; expected \"{}\"", name, shown(value), fmt::join(words, "\", \"")));
}

}  // namespace regard::inline v0
