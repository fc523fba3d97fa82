// SPDX-License-Identifier: Apache-2.0
//
// The JSON input of `regard explain`: every setting read and written back, every error reported with its byte offset.
// Read next: docs/guide/own-matrices.md, src/explain/steps/input_json.cpp.
#include <gtest/gtest.h>

#include <cmath>

#include "regard/explain/steps.h"
#include "support/rejection.h"

namespace regard::input_test {
namespace {

std::string rejection(std::string_view json) {
  return regard::rejection<std::runtime_error>([&] { read_explain_input(json, "in.json"); });
}

TEST(Operations, EachHasATableRowAndAUniqueName) {
  for (int i = 0; i < kNumOperations; ++i) {
    const auto operation = static_cast<Operation>(i);
    EXPECT_NE(operation_name(operation), "") << i;
    EXPECT_EQ(operation_named(operation_name(operation)), operation) << operation_name(operation);
  }
  EXPECT_EQ(operation_name(Operation::trained), "trained");
  EXPECT_EQ(operation_named("soft"), std::nullopt);
}

constexpr std::string_view kEverything = R"({
 "schema": "regard/1", "title": "T", "citation": "C", "tokens": ["a", "b"], "key_tokens": ["c", "d"],
 "layout": "columns", "scale": 0.25, "causal": -1, "softmax": "unshifted", "softmax_base": 3, "heads": 2,
 "dtype": "f32", "query": "b", "digits": 6,
 "Q": [[[1, 2], [3, 4]], [[5, 6], [7, "-inf"]]], "b_query": [1.5, "nan"],
 "names": {"context": "new V"}, "notes": {"weights": ["n"]}, "errata": ["s"],
 "expected": {"weights": [[1]], "context": {"numbers": [[2]], "digits": 8, "significant": true, "rows": [1]}},
 "steps": [{"operation": "linear", "operands": ["X", "W"], "result": "Y", "name": "n", "document_name": "c", "equation": "e",
            "scale": "none", "causal": true, "heads": 3, "base": 2, "transpose": "left", "numbers": [1, 2],
            "labels": ["l"], "column_labels": ["m"], "digits": 2, "fractions": true, "expected": [[3]],
            "finding": "f", "notes": ["o"], "errata": ["p"]}],
 "compare": [{"label": "v", "scale": "sqrt", "Q": [[9]]}]
})";

TEST(Input, ReadsEverySetting) {
  const ExplainInput in = read_explain_input(kEverything, "in.json");
  EXPECT_EQ(in.title, "T");
  EXPECT_EQ(in.citation, "C");
  EXPECT_EQ(in.tokens, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(in.key_tokens, (std::vector<std::string>{"c", "d"}));
  const ExplainSettings expected{.layout = Layout::columns,
                                 .scale = {.rule = ScaleRule::number, .number = 0.25},
                                 .causal = {.rule = CausalRule::number, .offset = -1},
                                 .softmax = SoftmaxRule::unshifted,
                                 .softmax_base = 3.0,
                                 .heads = 2,
                                 .dtype = ElementType::float32,
                                 .query = "b",
                                 .digits = 6};
  EXPECT_EQ(in.settings, expected);
  ASSERT_EQ(in.matrices.size(), 2u);
  EXPECT_EQ(in.matrices[0].matrix.num_heads, 2);
  EXPECT_EQ(in.matrices[0].matrix.numbers[6], 7);
  EXPECT_EQ(in.matrices[0].matrix.numbers[7], -std::numeric_limits<double>::infinity());
  EXPECT_EQ(in.matrices[1].matrix.num_rows, 1);
  EXPECT_EQ(in.matrices[1].matrix.numbers[0], 1.5);
  EXPECT_TRUE(std::isnan(in.matrices[1].matrix.numbers[1]));
  EXPECT_EQ(in.names[0].text, "new V");
  EXPECT_EQ(in.notes.at("weights"), (std::vector<std::string>{"n"}));
  EXPECT_EQ(in.expected.at("weights").digits, 4);
  EXPECT_EQ(in.expected.at("context").rows, (std::vector<Index>{1}));
  EXPECT_TRUE(in.expected.at("context").significant);
  ASSERT_EQ(in.steps.size(), 1u);
  EXPECT_EQ(in.steps[0].scale->rule, ScaleRule::none);
  EXPECT_EQ(in.steps[0].causal->rule, CausalRule::top_left);
  EXPECT_EQ(in.steps[0].numbers, (std::vector<double>{1, 2}));
  ASSERT_EQ(in.variants.size(), 1u);
  EXPECT_EQ(in.variants[0].settings.scale.rule, ScaleRule::sqrt);
  EXPECT_EQ(in.variants[0].settings.heads, 2);  // settings that it does not name stay
  EXPECT_EQ(in.variants[0].matrices[0].matrix.numbers, (std::vector<double>{9}));
}

TEST(Input, WritesWhatItReads) {
  const std::string once = write_explain_input(read_explain_input(kEverything, "in.json"));
  const std::string twice = write_explain_input(read_explain_input(once, "out.json"));
  EXPECT_EQ(once, twice);
  EXPECT_EQ(once.find("{\n \"schema\": \"regard/1\","), 0u);
  for (const char* part : {"\"layout\": \"columns\"", "\"scale\": 0.25", "\"causal\": -1", "\"softmax\": \"unshifted\"",
                           "\"softmax_base\": 3", "\"dtype\": \"f32\"", "[7, \"-inf\"]", "[1.5, \"nan\"]",
                           "\"transpose\": \"left\"", "\"fractions\": true", "\"significant\": true"})
    EXPECT_NE(once.find(part), std::string::npos) << part;
}

TEST(Input, RejectsBrokenJsonWithTheByteOffset) {
  EXPECT_EQ(rejection("{\"Q\": [[1, 2], [3]]}"),
            "in.json: byte 15: Q is ragged: this row has length 1 and the first row has length 2");
  EXPECT_EQ(rejection("{\"Q\": [[1]], \"Q\": [[2]]}"), "in.json: byte 13: the name \"Q\" occurs twice in one object");
  EXPECT_EQ(rejection("{\"Q\": [[1e999]]}"), "in.json: byte 12: a number is out of range for double");
  EXPECT_EQ(rejection("{\"tokens\": [\"\xff\"]}"), "in.json: byte 13: not valid UTF-8");
  EXPECT_EQ(rejection("{\"tokens\": [\"\xc0\xaf\"]}"), "in.json: byte 13: not valid UTF-8");
  EXPECT_EQ(rejection("{\"Q\": [[NaN]]}").find("in.json: byte 8: "), 0u) << rejection("{\"Q\": [[NaN]]}");
  EXPECT_EQ(rejection("{\"Q\": [[1]]").find("in.json: byte 11: "), 0u) << rejection("{\"Q\": [[1]]");
  EXPECT_EQ(rejection("{\"tokens\": [\"\\ud800\"]}").find("in.json: byte "), 0u);
  EXPECT_EQ(rejection("").find("in.json: byte 0: "), 0u) << rejection("");
  EXPECT_EQ(rejection("[1]"), "in.json: byte 0: the input must be an object, not a list");
  EXPECT_EQ(rejection("{} {}").find("in.json: byte 3: "), 0u) << rejection("{} {}");
}

TEST(Input, RejectsDepthBeyond64) {
  std::string at_limit = "{\"Q\": " + std::string(63, '[') + "1" + std::string(63, ']') + "}";
  EXPECT_EQ(rejection(at_limit).find("nested"), std::string::npos) << rejection(at_limit);
  EXPECT_EQ(rejection("{\"Q\": " + std::string(64, '[')), "in.json: byte 69: nested deeper than 64");
  EXPECT_EQ(rejection(std::string(100000, '[')), "in.json: byte 64: nested deeper than 64");
}

TEST(Input, RejectsUnknownKeysAndValues) {
  EXPECT_EQ(rejection("{\"casual\": true}"),
            "in.json: byte 11: \"casual\" is neither a setting nor a matrix (a list of rows)");
  EXPECT_EQ(rejection("{\"scale\": \"half\"}"),
            "in.json: byte 10: scale is \"half\"; expected none, sqrt, floor_half or a finite number");
  EXPECT_EQ(rejection("{\"layout\": \"row\"}"), "in.json: byte 11: layout is \"row\"; expected rows or columns");
  EXPECT_EQ(rejection("{\"heads\": 0}").substr(16), ": heads must be an integer from 1 to 65536");
  EXPECT_EQ(rejection("{\"dtype\": \"f16\"}"), "in.json: byte 10: dtype is \"f16\"; expected f64 or f32");
  EXPECT_EQ(rejection("{\"schema\": \"regard/2\"}"), "in.json: byte 11: schema must be \"regard/1\"");
  EXPECT_EQ(rejection("{\"tokens\": [1]}"), "in.json: byte 11: tokens must be a list of strings");
  EXPECT_EQ(rejection("{\"Q\": []}"), "in.json: byte 6: Q is empty");
  EXPECT_EQ(rejection("{\"Q\": [[]]}"), "in.json: byte 6: Q is empty");
  EXPECT_EQ(rejection("{\"Q\": [[1, true]]}"),
            "in.json: byte 11: Q must contain numbers, or \"-inf\", \"inf\", \"nan\"");
  EXPECT_EQ(rejection("{\"Q\": [[[1], [2]], [[3]]]}"),
            "in.json: byte 19: Q is ragged: the number of rows is 1 in this head and 2 in the first");
  EXPECT_EQ(rejection("{\"steps\": [{\"operatoin\": \"linear\"}]}"), "in.json: byte 25: a step has no \"operatoin\"");
  EXPECT_EQ(rejection("{\"steps\": [{}]}"), "in.json: byte 11: a step needs an operation");
  EXPECT_EQ(rejection("{\"steps\": [{\"operation\": 1}]}"), "in.json: byte 25: operation must be text, not a number");
  const std::string unknown = rejection("{\"steps\": [{\"operation\": \"soft\", \"name\": \"n\\u202e\"}]}");
  EXPECT_EQ(
      unknown.substr(0, unknown.find("cosine")),
      "in.json: byte 25: step n\\u{202e}: operation \"soft\" does not exist; choose one of adamw, add, context, ");
  EXPECT_EQ(rejection("{\"compare\": [{\"scale\": 1}]}"), "in.json: byte 13: a member of compare needs a label");
  EXPECT_EQ(rejection("{\"\\u202e\": 1}").find("\xe2\x80\xae"), std::string::npos);
}

TEST(Settings, ParseTheirOwnTexts) {
  EXPECT_EQ(parse_scale("none").rule, ScaleRule::none);
  EXPECT_EQ(parse_scale("-1.5").number, -1.5);
  EXPECT_THROW(parse_scale("1e999"), std::invalid_argument);
  EXPECT_THROW(parse_scale("nan"), std::invalid_argument);
  EXPECT_THROW(parse_scale("1,5"), std::invalid_argument);
  EXPECT_EQ(parse_causal("-3").offset, -3);
  EXPECT_EQ(parse_causal("bottom_right").rule, CausalRule::bottom_right);
  EXPECT_THROW(parse_causal("99999999999999999999"), std::invalid_argument);
  EXPECT_THROW(parse_causal(""), std::invalid_argument);
}

TEST(Token, IsFoundByWordOccurrenceOrIndex) {
  const std::vector<std::string> words = {"the", "cat", "the", "@1", "a#0"};
  EXPECT_EQ(token_index(words, "cat"), 1);
  EXPECT_EQ(token_index(words, "the#0"), 0);
  EXPECT_EQ(token_index(words, "the#1"), 2);
  EXPECT_EQ(token_index(words, "@4"), 4);
  EXPECT_EQ(token_index(words, "@1"), 3);   // the word with this spelling
  EXPECT_EQ(token_index(words, "a#0"), 4);  // likewise
  const auto rejection_of = [&](std::string_view token) {
    return regard::rejection([&] { token_index(words, token); });
  };
  EXPECT_EQ(rejection_of("the"), "token \"the\" occurs 2 times; choose \"the#0\" to \"the#1\": the (@0), the (@2)");
  EXPECT_EQ(rejection_of("the#2"), "token \"the#2\" does not exist: the word occurs 2 times: the (@0), the (@2)");
  EXPECT_EQ(rejection_of("@9"), "token @9 does not exist: there are 5, numbered from 0");
  EXPECT_EQ(rejection_of("dog"),
            "token \"dog\" does not exist; choose one of the (@0), cat (@1), the (@2), @1 (@3), a#0 (@4)");
}

}  // namespace
}  // namespace regard::input_test
