// SPDX-License-Identifier: Apache-2.0
//
// JsonWriter: the exact bytes of layouts, escapes and numbers, and how it is stopped.
// Read next: src/io/json_writer.cpp; read_json reads some of it back.
#include "regard/io/json_writer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <stop_token>
#include <string>
#include <vector>

#include "regard/io/json.h"
#include "regard/io/matrix.h"
#include "regard/runtime.h"

namespace regard::json_writer_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::string number_text(double x, bool float32 = false) {
  JsonWriter json({.float32 = float32});
  json.number(x);
  return json.take_part();
}

TEST(JsonWriter, NestingAndIndentation) {
  JsonWriter json;
  json.begin_object();
  json.string("schema", "regard/1");
  json.objects("words", std::vector<std::string>{"a", "b"}, [&](const std::string& word) {
    json.string("text", word);
    json.list("tokens", std::vector<Index>{1, -2});
  });
  json.name("empty");
  json.begin_array();
  json.end_array();
  json.name("none");
  json.begin_object();
  json.end_object();
  json.null("missing");
  json.boolean("special", true);
  json.end_object();
  EXPECT_EQ(json.take(), R"({
  "schema": "regard/1",
  "words": [
    {
      "text": "a",
      "tokens": [1, -2]
    },
    {
      "text": "b",
      "tokens": [1, -2]
    }
  ],
  "empty": [],
  "none": {},
  "missing": null,
  "special": true
}
)");
}

TEST(JsonWriter, LayoutsPlaceItemsAndTheClosingBracket) {
  const auto write = [](JsonLayout layout) {
    JsonWriter json;
    json.begin_object();
    json.objects("a", std::vector<int>{1, 2}, [&](int x) { json.whole("x", x); }, layout, JsonLayout::one_line);
    json.end_object();
    return json.take();
  };
  EXPECT_EQ(write(JsonLayout::lines), "{\n  \"a\": [\n    {\"x\": 1},\n    {\"x\": 2}\n  ]\n}\n");
  EXPECT_EQ(write(JsonLayout::hanging), "{\n  \"a\": [\n    {\"x\": 1},\n    {\"x\": 2}]\n}\n");
  EXPECT_EQ(write(JsonLayout::one_line), "{\n  \"a\": [{\"x\": 1}, {\"x\": 2}]\n}\n");
  EXPECT_EQ(write(JsonLayout::compact), "{\n  \"a\": [{\"x\": 1},{\"x\": 2}]\n}\n");
}

TEST(JsonWriter, FinishedJsonIsCopied) {
  JsonWriter json({.indent = 0});
  json.begin_object();
  json.json("a", "{\n  \"<\": 1\n}");
  json.json("b", "[]");
  json.end_object();
  EXPECT_EQ(json.take(), "{\n\"a\": {\n  \"<\": 1\n},\n\"b\": []\n}\n");
}

TEST(JsonWriter, StyleAppliesToLevelsOpenedAfterwards) {
  JsonWriter json;
  json.begin_object();
  json.name("inner");
  const JsonStyle outer = json.style();
  json.set_style({.indent = 1, .float32 = true});
  json.begin_object();
  json.number("x", 0.1f);
  json.end_object();
  json.set_style(outer);
  json.number("y", 0.1f);
  json.end_object();
  EXPECT_EQ(json.take(), "{\n  \"inner\": {\n   \"x\": 0.1\n  },\n  \"y\": 0.10000000149011612\n}\n");
}

TEST(JsonWriter, TextsAreEscaped) {
  JsonWriter json;
  json.begin_array(JsonLayout::one_line);
  json.string("\"\\\n\t\r");
  json.string(std::string_view("\0\x1b\x7f", 3));
  json.string("</script>&");
  json.string("\u202e\u2028\U000e0001");
  json.string("Größe 日本 \U0001f600");
  json.string("\xff\xc3");
  json.end_array();
  EXPECT_EQ(json.take(),
            R"(["\"\\\n\t\u000d", "\u0000\u001b\u007f", "\u003c/script\u003e\u0026", "\u202e\u2028\udb40\udc01", )"
            "\"Größe 日本 \U0001f600\", \"\\ufffd\\ufffd\"]\n");
}

TEST(JsonWriter, NamesAreEscapedAsTexts) {
  JsonWriter json;
  json.begin_object(JsonLayout::one_line);
  json.whole("a\"<\x01", 1);
  json.end_object();
  EXPECT_EQ(json.take(), "{\"a\\\"\\u003c\\u0001\": 1}\n");
}

TEST(JsonWriter, NumbersAreTheShortestThatReadBack) {
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(0.1f), "0.10000000149011612");
  EXPECT_EQ(number_text(0.1f, true), "0.1");
  EXPECT_EQ(number_text(1.0), "1");
  EXPECT_EQ(number_text(-0.0), "-0");
  EXPECT_EQ(number_text(1e-5), "1e-05");
  EXPECT_EQ(number_text(std::numeric_limits<double>::max()), "1.7976931348623157e+308");
  EXPECT_EQ(number_text(std::numeric_limits<double>::denorm_min()), "5e-324");
  EXPECT_EQ(number_text(-2.0 / 3), "-0.6666666666666666");
  for (const double x : {1.0 / 3, 1e300, 4.9e-324, 123456789.125}) {
    EXPECT_EQ(read_json(number_text(x), "j").number(), x);
  }
}

TEST(JsonWriter, NonFiniteNumbersAreStrings) {
  EXPECT_EQ(number_text(kInf), "\"inf\"");
  EXPECT_EQ(number_text(-kInf), "\"-inf\"");
  EXPECT_EQ(number_text(kNaN), "\"nan\"");
  EXPECT_EQ(number_text(-kNaN, true), "\"nan\"");
  EXPECT_EQ(shortest_number(-std::numeric_limits<float>::infinity()), "-inf");
}

TEST(JsonWriter, IntegersKeepEveryDigit) {
  JsonWriter json;
  json.list("x", std::vector<std::uint64_t>{std::numeric_limits<std::uint64_t>::max()});
  EXPECT_EQ(json.take(), "\"x\": [18446744073709551615]\n");
  json.whole(std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(json.take(), "-9223372036854775808\n");
}

TEST(JsonWriter, MatricesWithAndWithoutHeads) {
  Matrix m = matrix_of({{1, 0.5}, {kInf, -1}});
  JsonWriter json;
  json.matrix(m);
  EXPECT_EQ(json.take(), "[\n  [1, 0.5],\n  [\"inf\", -1]\n]\n");
  m.has_heads = true;
  json.matrix(m);
  EXPECT_EQ(json.take(), "[\n  [\n    [1, 0.5],\n    [\"inf\", -1]\n  ]\n]\n");
}

TEST(JsonWriter, EmptyListsAreOmittedExceptByList) {
  JsonWriter json;
  json.begin_object();
  json.strings("strings", {});
  json.numbers("numbers", {});
  json.indices("indices", {});
  json.list("list", std::vector<std::string>{});
  json.end_object();
  EXPECT_EQ(json.take(), "{\n  \"list\": []\n}\n");
}

TEST(JsonWriter, PartsConcatenateToTheWhole) {
  const auto write = [](JsonWriter& json, int count) {
    std::string text;
    json.begin_array();
    for (int i = 0; i < count; ++i) {
      json.whole(i);
      text += json.take_part();
    }
    json.end_array();
    return text + json.take();
  };
  JsonWriter json;
  EXPECT_EQ(write(json, 3), "[\n  0,\n  1,\n  2\n]\n");
  EXPECT_EQ(write(json, 0), "[]\n");
}

TEST(JsonWriter, SourceNamesSchemaCommandVersionAndInstructionSet) {
  JsonWriter json;
  json.begin_object(JsonLayout::one_line);
  json.source("regard info");
  json.end_object();
  std::string expected = R"({"schema": "regard/1", "command": "regard info", "version": ")";
  expected.append(version()).append(R"(", "instruction_set": ")").append(active_instruction_set()).append("\"}\n");
  EXPECT_EQ(json.take(), expected);
}

TEST(JsonWriter, StopIsCheckedAtEveryValue) {
  std::stop_source source;
  JsonWriter json({}, source.get_token());
  json.begin_array();
  json.whole(1);
  source.request_stop();
  EXPECT_THROW(json.poll(), Cancelled);
  EXPECT_THROW(json.whole(2), Cancelled);
  EXPECT_THROW(json.number(kNaN), Cancelled);
  EXPECT_THROW(json.string("a"), Cancelled);
  EXPECT_THROW(json.begin_object(), Cancelled);
}

}  // namespace
}  // namespace regard::json_writer_test
