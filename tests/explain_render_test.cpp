// SPDX-License-Identifier: Apache-2.0
//
// The text and JSON of an explanation: widths, alignment, printed sums, hidden and tiny weights, ASCII, untrusted text
// in both renderers, JSON that reads back. Read next: src/explain/steps/steps_text.cpp,
// src/explain/steps/steps_json.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "regard/explain/steps.h"
#include "regard/io/utf8.h"
#include "support/rejection.h"

namespace regard::explain_render_test {
namespace {

// Untrusted texts: mark-up, terminal and spreadsheet commands, bidirectional text, NUL.
const std::vector<std::string> kUntrusted = {"</script><img src=x onerror=alert(1)>",
                                             "\x1b]0;title\x07",
                                             "\xe2\x80\xae"
                                             "abc",
                                             "\\input{x}",
                                             "=1+1",
                                             std::string("a\0b", 3),
                                             "\xff\xfe",
                                             "日本語"};

ExplainInput words(std::vector<std::string> tokens) {
  ExplainInput in;
  const auto count = static_cast<Index>(tokens.size());
  Matrix m;
  m.num_rows = count;
  m.num_columns = 3;
  for (Index i = 0; i < 3 * count; ++i) m.numbers.push_back(std::sin(static_cast<double>(7 * i + 1)) * 2);
  in.tokens = std::move(tokens);
  in.matrices = {{"Q", m}, {"K", m}, {"V", m}};
  return in;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t first = 0;
  for (std::size_t end; (end = text.find('\n', first)) != std::string::npos; first = end + 1)
    lines.push_back(text.substr(first, end - first));
  return lines;
}

bool holds(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(Escape, MakesTextSafeForATerminal) {
  EXPECT_EQ(escape_for_terminal("\x1b]0;title\x07"), "\\u{1b}]0;title\\u{7}");
  EXPECT_EQ(escape_for_terminal("\xe2\x80\xae"
                                "abc"),
            "\\u{202e}abc");
  EXPECT_EQ(escape_for_terminal(std::string("a\0b", 3)), "a\\u{0}b");
  EXPECT_EQ(escape_for_terminal("\xff"), "\\x{ff}");
  EXPECT_EQ(escape_for_terminal("a\nb\u2028\u200b"), "a\\u{a}b\\u{2028}\\u{200b}");
  EXPECT_EQ(escape_for_terminal("Größe 日本"), "Größe 日本");
  EXPECT_EQ(display_width("日本"), 4);
  EXPECT_EQ(display_width("e\u0301"), 1);
  EXPECT_EQ(display_width("abc"), 3);
}

TEST(Escape, MakesTextSafeInJson) {
  EXPECT_EQ(json_string("a \"b\" \\ \n\t"), "\"a \\\"b\\\" \\\\ \\n\\t\"");
  EXPECT_EQ(json_string("</script>&\x1b\x7f"), "\"\\u003c/script\\u003e\\u0026\\u001b\\u007f\"");
  EXPECT_EQ(json_string("\u202e\u2028\U000e0001"), "\"\\u202e\\u2028\\udb40\\udc01\"");
  EXPECT_EQ(json_string("\xff\xc3"), "\"\\ufffd\\ufffd\"");
  EXPECT_EQ(json_string("Größe 日本 \U0001f600"), "\"Größe 日本 \U0001f600\"");
}

TEST(Text, EveryLineFits) {
  ExplainInput in = words({"the", "river", "bank", "flows", "extraordinarily-long-word", "日本語", "by", "it"});
  in.settings.query = "bank";
  in.settings.causal.rule = CausalRule::top_left;
  in.names = {{"context", "the new V"}};
  const Explanation e = explain(in);
  for (int width : {60, 80, 200})
    for (bool unicode : {true, false})
      for (const std::string& line : lines_of(render_text(e, {.width = width, .unicode = unicode})))
        EXPECT_LE(display_width(line), width) << line;
}

TEST(Text, IsAsciiWithoutUnicodeAndColoredOnRequest) {
  const Explanation e = explain(words({"ä", "b", "c"}));
  const std::string plain = render_text(e, {.unicode = false});
  EXPECT_TRUE(std::all_of(plain.begin(), plain.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
  EXPECT_TRUE(holds(plain, "#"));
  EXPECT_TRUE(holds(plain, "\\u{e4}"));
  EXPECT_TRUE(holds(plain, "S = Q * K^T"));
  const std::string unicode = render_text(e, {});
  EXPECT_TRUE(holds(unicode, "█"));
  EXPECT_FALSE(holds(unicode, "\x1b"));
  const std::string color = render_text(e, {.color = true});
  EXPECT_TRUE(holds(color, "\x1b[1m"));
  // Without colors the text is the same.
  std::string stripped;
  for (std::size_t i = 0; i < color.size(); ++i) {
    if (color[i] == '\x1b') {
      i = color.find('m', i);
    } else {
      stripped += color[i];
    }
  }
  EXPECT_EQ(stripped, unicode);
}

TEST(Text, DistinguishesHiddenFromTiny) {
  ExplainInput in;
  in.matrices = {
      {"Q", matrix_of({{1}, {1}, {1}})}, {"K", matrix_of({{0}, {30}, {2000}})}, {"V", matrix_of({{1}, {2}, {3}})}};
  in.settings.scale.rule = ScaleRule::none;
  in.settings.causal.rule = CausalRule::top_left;
  const std::string text = render_text(explain(in), {.step = "weights"});
  EXPECT_TRUE(holds(text, "\n   0   1.0000  hidden  hidden   1.0000\n")) << text;
  EXPECT_TRUE(holds(text, "\n   1  <0.0001  1.0000  hidden   1.0000\n")) << text;
  EXPECT_TRUE(holds(text, "\n   2   0       0       1.0000   1.0000\n")) << text;
  EXPECT_TRUE(holds(text, "each row sums to 1 over the keys")) << text;
}

TEST(Text, StatesTheSumOfRoundedFigures) {
  ExplainInput in;
  in.matrices = {{"Q", matrix_of({{0}})}, {"K", matrix_of({{1}, {1}, {1}})}, {"V", matrix_of({{1}, {2}, {3}})}};
  const std::string text = render_text(explain(in), {.width = 120, .step = "weights"});
  EXPECT_TRUE(holds(text, "0.3333  0.3333  0.3333   1.0000")) << text;
  EXPECT_TRUE(holds(text, "rounded figures sum to 0.9999 (0)")) << text;
  EXPECT_TRUE(holds(text, "1.0000  the sum; rounded figures sum to 0.9999")) << text;
  in.settings.digits = 0;
  EXPECT_FALSE(holds(render_text(explain(in), {.step = "scores"}), "rounded"));
}

TEST(Text, AlignsOnTheDecimalPoint) {
  ExplainInput in;
  in.matrices = {{"T", matrix_of({{1.5, -100.25}, {-22.125, 0}})}};
  in.steps = {{.operation = Operation::show, .operands = {"T"}, .result = "T"}};
  const std::string text = render_text(explain(in), {});
  EXPECT_TRUE(holds(text, "   0    1.5000  −100.2500\n   1  −22.1250     0\n")) << text;
}

TEST(Text, StatesWhatIsShortened) {
  ExplainInput in;
  Matrix m;
  m.num_rows = 64;
  m.num_columns = 64;
  for (Index i = 0; i < 64 * 64; ++i) m.numbers.push_back(std::cos(static_cast<double>(i)));
  in.matrices = {{"Q", m}, {"K", m}, {"V", m}};
  in.settings.query = "@30";
  const Explanation e = explain(in);
  const std::string text = render_text(e, {.step = "weights"});
  EXPECT_LT(lines_of(text).size(), 50u);
  EXPECT_TRUE(holds(text, "shown: 15 of 64 rows")) << text;
  EXPECT_TRUE(holds(text, "--full prints every number"));
  EXPECT_TRUE(holds(text, "▸30")) << text;
  EXPECT_TRUE(holds(text, "(all 64, not only those shown)"));
  EXPECT_TRUE(holds(text, " others")) << text;
  const std::string full = render_text(e, {.full = true, .step = "values"});
  EXPECT_FALSE(holds(full, "shown:"));
  // Every row in every block, and every number once.
  const std::vector<std::string> lines = lines_of(full);
  const auto blocks = std::count_if(lines.begin(), lines.end(), [](const std::string& l) { return holds(l, "key ↓"); });
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const std::string& l) { return l.starts_with("   63 ") || l.starts_with("    63 "); }),
            blocks);
  EXPECT_EQ(std::count(full.begin(), full.end(), '.'), 64 * 64);
}

TEST(Text, ExpandsTheRequestedCell) {
  ExplainInput in;
  in.tokens = {"a", "b"};
  in.matrices = {
      {"Q", matrix_of({{1, 2}, {3, 4}})}, {"K", matrix_of({{5, 6}, {7, 8}})}, {"V", matrix_of({{1, 0}, {0, 1}})}};
  const Explanation e = explain(in);
  const std::string text = render_text(e, {.step = "3", .cell = Cell{1, 0}});
  EXPECT_TRUE(holds(text, "S[b, a] = 39")) << text;
  EXPECT_TRUE(holds(text, "Q[b, 0] · K[a, 0]  3 · 5  15          15")) << text;
  EXPECT_TRUE(holds(text, "Q[b, 1] · K[a, 1]  4 · 6  24          39")) << text;
  EXPECT_THROW(render_text(e, {.cell = Cell{2, 0}}), std::invalid_argument);
  EXPECT_THROW(render_text(e, {.step = "nothing"}), std::invalid_argument);
  EXPECT_THROW(render_text(e, {.step = "9"}), std::invalid_argument);
  EXPECT_EQ(rejection([&] { render_text(e, {.step = "wieghts"}); }),
            "step \"wieghts\" does not exist; choose one of 0 queries, 1 keys, 2 values, 3 scores, "
            "4 scaled, 5 weights, 6 context");
}

TEST(Text, ShowsTheDocumentsNumberIfItDiffers) {
  ExplainInput in;
  in.matrices = {{"Q", matrix_of({{1.25}})}, {"K", matrix_of({{1}, {2}})}, {"V", matrix_of({{1}, {2}})}};
  in.settings.scale.rule = ScaleRule::none;
  in.expected["scores"] = {.numbers = matrix_of({{1.25, 2.51}}), .digits = 2};
  const std::string text = render_text(explain(in), {.step = "scores"});
  EXPECT_TRUE(holds(text, "S[0, 1] is 2.50; the document prints 2.51")) << text;
  EXPECT_TRUE(holds(text, "1 of 2 values match the document to 2 decimal places")) << text;
}

TEST(Render, EscapesUntrustedText) {
  ExplainInput in = words(kUntrusted);
  in.title = in.citation = kUntrusted[1];
  in.errata = kUntrusted;
  in.names = {{"context", kUntrusted[2]}};
  in.notes["weights"] = kUntrusted;
  in.settings.query = kUntrusted[2];
  const Explanation e = explain(in);
  for (bool unicode : {true, false}) {
    const std::string text = render_text(e, {.unicode = unicode, .cell = Cell{1, 2}});
    EXPECT_EQ(text.find_first_of(std::string_view("\0\x07\x1b\r\xff", 5)), std::string::npos);
    EXPECT_FALSE(holds(text, "\xe2\x80\xae"));
    EXPECT_TRUE(holds(text, "\\u{1b}]0;title\\u{7}"));
    EXPECT_TRUE(holds(text, "\\u{202e}abc"));
  }
  const std::string json = render_json(e, {.command = "regard explain '</script>'", .cell = Cell{1, 2}});
  EXPECT_EQ(json.find_first_of(std::string_view("\0\x07\x1b\r\xff<>&", 8)), std::string::npos);
  EXPECT_FALSE(holds(json, "\xe2\x80\xae"));
  EXPECT_TRUE(holds(json, "\\u003c/script\\u003e"));
  EXPECT_TRUE(holds(json, "\\u001b]0;title\\u0007"));
  EXPECT_TRUE(holds(json, "\\u202eabc"));
  EXPECT_TRUE(holds(json, "\\\\input{x}"));
  EXPECT_TRUE(holds(json, "a\\u0000b"));
  EXPECT_TRUE(holds(json, "\\ufffd\\ufffd"));
  EXPECT_TRUE(holds(json, "日本語"));
}

TEST(Json, IsCompleteAndInTheShortestForm) {
  ExplainInput in;
  in.matrices = {
      {"Q", matrix_of({{0.1, 1e300}})}, {"K", matrix_of({{1, 0}, {3, 1e300}})}, {"V", matrix_of({{1}, {2}})}};
  in.settings.scale.rule = ScaleRule::none;
  const std::string json = render_json(explain(in), {.command = "regard explain --input x.json"});
  EXPECT_EQ(
      json.find("{\n \"schema\": \"regard/1\",\n \"command\": \"regard explain --input x.json\",\n \"version\": "), 0u);
  EXPECT_TRUE(holds(json, "\"instruction_set\": "));
  EXPECT_TRUE(holds(json, "[0.1, 1e+300]"));
  EXPECT_TRUE(holds(json, "[0.1, \"inf\"]")) << json;
  EXPECT_TRUE(holds(json, "[0, 1]"));
  EXPECT_EQ(json.back(), '\n');
  in.settings.dtype = ElementType::float32;
  in.matrices[0].matrix = matrix_of({{0.1, 0}});
  in.matrices[1].matrix = matrix_of({{1, 0}, {3, 0}});
  const std::string single = render_json(explain(in), {});
  EXPECT_TRUE(holds(single, "\"dtype\": \"f32\""));
  EXPECT_TRUE(holds(single, "[0.1, 0.3]")) << single;  // not 0.10000000149011612
}

TEST(Json, ChoosesStepsAndExpandsCells) {
  const Explanation e = explain(words({"a", "b", "c"}));
  const std::string one = render_json(e, {.step = "weights", .cell = Cell{1, 2}});
  EXPECT_TRUE(holds(one, "\"name\": \"weights\""));
  EXPECT_FALSE(holds(one, "\"name\": \"scores\""));
  EXPECT_TRUE(holds(one, "\"cell\": [0, 1, 2]"));
  EXPECT_TRUE(holds(one, "\"sum_so_far\""));
  EXPECT_TRUE(holds(one, "\"sums_to_one\": \"row\""));
  EXPECT_THROW(render_json(e, {.step = "no"}), std::invalid_argument);
  EXPECT_THROW(render_json(e, {.cell = Cell{9, 9}}), std::invalid_argument);
}

}  // namespace
}  // namespace regard::explain_render_test
