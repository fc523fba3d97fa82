// SPDX-License-Identifier: Apache-2.0
//
// The page of attention over arrays, without a browser: rejections, the texts of options, the size of the file. Its
// data and figures are tested by cli/attend_test.py and page/attend_page_test.py.
// Read next: src/explain/arrays/attention_html.cpp.
#include "regard/explain/attention_html.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "regard/io/json.h"

namespace regard::attention_html_test {
namespace {

// One head of three queries and four keys, computed.
template <class T>
struct Small {
  Tensor<T, 4> query{{1, 1, 3, 2}}, key{{1, 1, 4, 2}}, value{{1, 1, 4, 2}}, context{{1, 1, 3, 2}};
  Tensor<T, 3> row_max{{1, 1, 3}}, row_sum{{1, 1, 3}}, sink_weights{{1, 1, 3}};
  AttentionOptions options;
  AttentionOutputs outputs;

  Small() {
    for (Index i = 0; i < 3; ++i) query(0, 0, i, 0) = static_cast<T>(i + 1);
    for (Index j = 0; j < 4; ++j) key(0, 0, j, 0) = value(0, 0, j, 1) = static_cast<T>(j) / 4;
    outputs = {.context = context.view(), .row_max = row_max.view(), .row_sum = row_sum.view()};
  }
  void compute() { attention_forward(query.view(), key.view(), value.view(), outputs, options); }
  std::string render(const AttentionHtmlOptions& html = {}) {
    return render_attention_html<T>(query.view(), key.view(), value.view(), outputs, options, html);
  }
  std::string rejection(const AttentionHtmlOptions& html = {}) {
    try {
      render(html);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "no rejection";
  }
};

JsonValue data_of(const std::string& html, const std::string& id) {
  const std::string before = "id=\"" + id + "\">";
  const std::size_t from = html.find(before) + before.size();
  return read_json(html.substr(from, html.find("</script>", from) - from), id);
}

TEST(AttendPage, ListsEveryOption) {
  Small<double> small;
  const std::array<Index, 1> lengths{3};
  const std::array<double, 1> one{0.5};
  const bool seen = true;
  const Tensor<float, 4> bias({1, 1, 1, 4});
  small.options.causal = true;
  small.options.query_offset = QueryAlignment::bottom_right;
  small.options.window.left = 2;
  small.options.key_lengths = lengths;
  small.options.prefix = lengths;
  small.options.mask = {&seen, {1, 1, 1, 1}};
  small.options.bias = bias.view();
  small.options.alibi_slopes = one;
  small.options.sinks = one;
  small.options.soft_cap = 2.5;
  small.outputs.sink_weights = small.sink_weights.view();
  small.compute();
  std::string all;
  const JsonValue data = data_of(small.render({.command = "regard </script>"}), "explanation");
  for (const JsonValue& text : data.find("settings")->items()) all += (all.empty() ? "" : "; ") + text.text();
  EXPECT_EQ(all,
            "causal; last query at last key; window: 2 before, all after; key lengths 3; prefix 3; mask; "
            "scale 1/√2; soft cap 2.5; ALiBi; bias; sinks");
  EXPECT_EQ(data.find("command")->text(), "regard </script>");
  EXPECT_EQ(data.find("type")->text(), "float64");
}

TEST(AttendPage, RejectsInvalidArguments) {
  Small<float> small;
  small.compute();
  EXPECT_EQ(small.rejection(), "no rejection");
  EXPECT_NE(small.rejection({.rows = {{1, 4}}}).find("rows 1:4 go beyond the 3 rows of query"), std::string::npos);
  EXPECT_NE(small.rejection({.rows = {{-1, 2}}}).find("rows -1:2"), std::string::npos);
  EXPECT_NE(small.rejection({.rows = {{2, 2}}}).find("no row of query to show"), std::string::npos);
  small.outputs.row_sum = {};
  EXPECT_NE(small.rejection().find("computed lacks"), std::string::npos);
  small.outputs.row_sum = small.row_sum.view();
  const std::array<float, 1> sinks{0.5F};
  small.options.sinks = sinks;
  EXPECT_NE(small.rejection().find("computed lacks"), std::string::npos);
  small.options.sinks = {};
  small.value = Tensor<float, 4>({1, 1, 5, 2});
  EXPECT_NE(small.rejection().find("value has shape (1, 1, 5, 2)"), std::string::npos);
}

// Strips joined by twos: 361 rows of one query each are more than a page has cells for.
TEST(AttendPage, JoinsTheCellsOfLargeMaps) {
  Tensor<double, 3> mass({1, 1, 4});
  Inspection heads = inspect_heads<double>(mass.view(), 361);
  Tensor<double, 4> map({1, 1, 361, 2});
  for (Index a = 0; a < 361; ++a) {
    for (Index b = 0; b < 2; ++b) map(0, 0, a, b) = static_cast<double>(a + 1000 * b);
  }
  const AttentionHtmlInspection page = attention_html_inspection<double>(heads, map.view());
  EXPECT_EQ(page.column_edges, (std::vector<Index>{0, 2, 4}));
  ASSERT_EQ(page.row_edges.size(), 182u);
  EXPECT_EQ(page.row_edges[1], 2);
  EXPECT_EQ(page.row_edges.back(), 361);
  ASSERT_EQ(page.maps.size(), 181u * 2);
  EXPECT_EQ(page.maps[0], 0.5F);
  EXPECT_EQ(page.maps[1], 1000.5F);
  EXPECT_EQ(page.maps[360], 360.0F);  // the last strip has one row
}

TEST(AttendPage, ContainsAnInspectionWithOrWithoutRows) {
  Small<float> small;
  small.compute();
  const Tensor<float, 3> mass({1, 1, 4});
  const Tensor<float, 4> map({1, 1, 3, 4});
  const AttentionHtmlInspection inspection =
      attention_html_inspection<float>(inspect_heads<float>(mass.view(), 3), map.view());
  const std::string with_rows = small.render({.inspection = &inspection});
  EXPECT_EQ(data_of(with_rows, "page").find("subject")->text(), "arrays");
  EXPECT_NE(data_of(with_rows, "page").find("weights"), nullptr);
  EXPECT_EQ(data_of(with_rows, "inspection").find("queries")->number(), 3);
  small.outputs = {};
  const std::string alone = small.render({.inspection = &inspection, .only_inspection = true});
  EXPECT_EQ(data_of(alone, "page").find("subject")->text(), "inspection");
  EXPECT_EQ(data_of(alone, "page").find("query"), nullptr);
  EXPECT_NE(small.rejection({.only_inspection = true}).find("inspection is null"), std::string::npos);
}

TEST(AttendPage, RejectsAPageTooLarge) {
  const Tensor<float, 4> arrays({1, 1, 2048, 1});
  Tensor<float, 4> context({1, 1, 2048, 1});
  Tensor<float, 3> row_max({1, 1, 2048}), row_sum({1, 1, 2048});
  const AttentionOutputs outputs{.context = context.view(), .row_max = row_max.view(), .row_sum = row_sum.view()};
  try {
    render_attention_html<float>(arrays.view(), arrays.view(), arrays.view(), outputs, {}, {});
    FAIL() << "no rejection";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(),
                 "render_attention_html: the page would take 43.6 MiB; the limit is 24.0 MiB; choose fewer rows");
  }
}

TEST(AttendPage, SizeMatchesTheEstimate) {
  const std::array<Index, 4> query{2, 4, 100, 8}, key{2, 2, 300, 8}, value{2, 2, 300, 5};
  const double floats = attention_html_bytes<float>(query, key, value, {}, false);
  // Weights and scores: 4 bytes each, and a bit; the rest is less than a tenth of them.
  const double weights = 2.0 * 4 * 100 * 300;
  EXPECT_GT(floats, weights * 8.125 * 4 / 3);
  EXPECT_LT(floats, weights * 8.125 * 4 / 3 * 1.1 + 250e3);
  EXPECT_GT(attention_html_bytes<double>(query, key, value, {}, false), 1.8 * (floats - 200e3));
  EXPECT_GT(attention_html_bytes<float>(query, key, value, {}, true), floats + weights * 4 * 4 / 3 - 1);
  // Repeated rows count once.
  EXPECT_EQ(attention_html_bytes<float>(query, key, value, {{0, 50}, {50, 100}, {10, 20}}, false), floats);
  EXPECT_LT(attention_html_bytes<float>(query, key, value, {{0, 1}}, false), floats / 5 + 200e3);
}

}  // namespace
}  // namespace regard::attention_html_test
