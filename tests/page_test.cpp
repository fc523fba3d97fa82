// SPDX-License-Identifier: Apache-2.0
//
// The file of a page, without a browser: its policy names the hashes of its script and style, its data are JSON without
// characters that HTML could read as a tag, and the first data are the output of render_json.
// Read next: src/explain/report/html_page.cpp, tests/page/.
#include <gtest/gtest.h>

#include <span>
#include <string>

#include "regard/explain/lesson.h"
#include "regard/explain/steps.h"
#include "regard/io/json.h"
#include "regard/io/sha256.h"

namespace regard::page_test {
namespace {

// The text between two texts, at the first occurrence of `before`.
std::string between(const std::string& text, const std::string& before, const std::string& after) {
  const std::size_t begin = text.find(before);
  if (begin == std::string::npos) return "";
  const std::size_t from = begin + before.size();
  return text.substr(from, text.find(after, from) - from);
}

std::string base64_bytes_in_hex(const std::string& base64) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string hex;
  unsigned bits = 0;
  int num_bits = 0;
  for (const char c : base64) {
    if (c == '=') break;
    bits = (bits << 6 | static_cast<unsigned>(digits.find(c))) & 0xffff;
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    const unsigned byte = bits >> num_bits & 255;
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

class PageTest : public ::testing::TestWithParam<std::string> {};

TEST_P(PageTest, ContainsItsDataAndItsHashes) {
  const Explanation explanation = explain(lesson_input(GetParam()));
  const std::string html = render_html(explanation, {.command = "regard </script> & \"x\""});
  EXPECT_TRUE(html.starts_with("<!doctype html>\n"));
  EXPECT_TRUE(html.ends_with("</script>\n</body>\n</html>\n"));

  const std::string script = between(html, "\n<script>", "</script>");
  const std::string style = between(html, "\n<style>", "</style>");
  EXPECT_GT(script.size(), 20000U);
  EXPECT_EQ(base64_bytes_in_hex(between(html, "script-src 'sha256-", "'")), sha256(std::as_bytes(std::span(script))));
  EXPECT_EQ(base64_bytes_in_hex(between(html, "style-src 'sha256-", "'")), sha256(std::as_bytes(std::span(style))));

  for (const std::string& id : {std::string("explanation"), std::string("page")}) {
    const std::string data = between(html, "<script type=\"application/json\" id=\"" + id + "\">", "</script>");
    EXPECT_EQ(data.find_first_of("<>&"), std::string::npos);
    EXPECT_NE(read_json(data, id).find("schema"), nullptr);
  }
  EXPECT_EQ(between(html, "id=\"explanation\">", "</script>"),
            render_json(explanation, {.command = "regard </script> & \"x\""}));
}

std::vector<std::string> lesson_names() {
  std::vector<std::string> names;
  for (const LessonEntry& entry : lesson_entries()) names.push_back(entry.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Lessons, PageTest, ::testing::ValuesIn(lesson_names()), [](const auto& test) {
  std::string name = test.param;
  std::erase(name, '-');
  return name;
});

// The steps of a page refer to earlier results or to matrices by number; no reference is out of range.
TEST(Page, ReferencesAreInRange) {
  const Explanation explanation = explain(lesson_input("004"));
  const std::string html = render_html(explanation, {});
  const JsonValue page = read_json(between(html, "id=\"page\">", "</script>"), "page");
  const std::size_t num_matrices = page.find("matrices")->items().size();
  const std::vector<JsonValue>& steps = page.find("steps")->items();
  ASSERT_EQ(steps.size(), explanation.steps.size());
  std::size_t references = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (const char* list : {"requested_operands", "operands"}) {
      for (const JsonValue& operand : steps[i].find(list)->items()) {
        ++references;
        const JsonValue* step = operand.find("step");
        const JsonValue* matrix = operand.find("matrix");
        ASSERT_NE(step == nullptr, matrix == nullptr);
        if (step != nullptr) {
          EXPECT_LT(step->number(), static_cast<double>(i));
        }
        if (matrix != nullptr) {
          EXPECT_LT(matrix->number(), static_cast<double>(num_matrices));
        }
      }
    }
  }
  EXPECT_GT(references, steps.size());
}

}  // namespace
}  // namespace regard::page_test
