// SPDX-License-Identifier: Apache-2.0
//
// read_json: names with equal hashes, the first of several errors, the memory that is checked and used, and messages
// that show only part of a text.
// Read next: src/io/json.cpp, tests/support/collisions.h.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "regard/explain/steps.h"
#include "regard/io/json.h"
#include "regard/io/safetensors.h"
#include "regard/model/tokenizer.h"
#include "support/collisions.h"
#include "support/rejection.h"
#include "support/test_size.h"
#include "support/tokenizer_files.h"

namespace {

std::atomic<std::size_t> bytes_in_use{0}, max_bytes{0};  // of operator new

// Each block of memory is preceded by its size. The overhead of an allocator is about as large.
constexpr std::size_t kBefore = 16;

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  auto* const memory = static_cast<char*>(std::malloc(bytes + kBefore));
  if (memory == nullptr) throw std::bad_alloc();
  std::memcpy(memory, &bytes, sizeof bytes);
  const std::size_t now = bytes_in_use += bytes + kBefore;
  if (now > max_bytes) max_bytes = now;
  return memory + kBefore;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  char* const begin = static_cast<char*>(memory) - kBefore;
  std::size_t bytes;
  std::memcpy(&bytes, begin, sizeof bytes);
  bytes_in_use -= bytes + kBefore;
  std::free(begin);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

namespace regard::json_test {
namespace {

std::string rejection_of(std::string_view text) {
  return rejection<std::runtime_error>([&] { read_json(text, "j"); });
}

// The peak memory that a call takes from operator new.
template <class Call>
std::size_t bytes_taken(Call call) {
  const std::size_t before = bytes_in_use;
  max_bytes = before;
  call();
  return max_bytes - before;
}

std::string repeated(std::string_view text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

std::string list_of(std::string_view item, std::size_t count) {
  return "[" + repeated(std::string(item) + ",", count - 1) + std::string(item) + "]";
}

// With a hash table this takes minutes, because each name is compared with all earlier ones; the test ends within its
// limit.
TEST(Json, NamesWithEqualHashesAreNotSlower) {
  const auto n = test_size<std::size_t>(512, 128);
  const CollidingNames names(n);
  EXPECT_TRUE(names.collide());
  std::string text = "{";
  for (std::size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "\"" : ",\"") + names[i] + "\":0";
  EXPECT_EQ(read_json(text + "}", "j").members().size(), n * n);
  EXPECT_EQ(
      rejection_of(text + ",\"" + names[0] + "\":1}"),
      "j: byte " + std::to_string(text.size() + 1) + ": the name \"" + names[0] + "\" occurs twice in one object");
}

TEST(Json, TokensWithEqualHashesAreNotSlower) {
  const CollidingNames names(test_size<std::size_t>(512, 128));
  std::string vocabulary = R"({"[UNK]":0)";
  std::string added;
  const std::size_t half = names.size() / 2;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string id = std::to_string(i + 1);
    if (i < half)
      vocabulary.append(",\"").append(names[i]).append("\":").append(id);
    else
      added.append(added.empty() ? "[" : ",")
          .append(R"({"content":")")
          .append(names[i])
          .append(R"(","id":)")
          .append(id)
          .append(R"(,"single_word":false,"lstrip":false,"rstrip":false,"normalized":true})");
  }
  regard_tokenizer::TokenizerText text;
  text.vocab = vocabulary + "}";
  text.added_tokens = added + "]";
  text.post_processor = "null";
  text.normalizer =
      R"({"type":"BertNormalizer","clean_text":false,"handle_chinese_chars":false,"strip_accents":false,"lowercase":false})";
  const Tokenizer tokenizer = Tokenizer::read(regard_tokenizer::tokenizer_json(text), "t");
  EXPECT_EQ(tokenizer.token(tokenizer.vocabulary_size() - 1), names[names.size() - 1]);
}

TEST(Json, FirstErrorIsReported) {
  EXPECT_EQ(rejection_of(R"({"a": 1, "a": 2, "b": 1, "b": 2})"),
            "j: byte 9: the name \"a\" occurs twice in one object");
  EXPECT_EQ(rejection_of(R"({"b": 1, "a": 2, "a" : 1, "b": 2})"),
            "j: byte 17: the name \"a\" occurs twice in one object");
  EXPECT_EQ(rejection_of(R"({"a": 1, "a": {"b": 1, "b": 2}})"), "j: byte 9: the name \"a\" occurs twice in one object");
  EXPECT_EQ(rejection_of(R"({"a": 1, "c": {"b": 1, "b": 2}, "a": 1})"),
            "j: byte 23: the name \"b\" occurs twice in one object");
  EXPECT_EQ(rejection_of(R"({"a": 1, "a" 2})"), "j: byte 9: the name \"a\" occurs twice in one object");
  EXPECT_EQ(rejection_of(R"({"a": 1, "a": 2, x)"), "j: byte 9: the name \"a\" occurs twice in one object");
  EXPECT_EQ(rejection_of(R"({"a": 1, "a": [{"b": x)"), "j: byte 9: the name \"a\" occurs twice in one object");
  EXPECT_EQ(rejection_of(R"({"a": 1, "a": -1e999})"), "j: byte 9: the name \"a\" occurs twice in one object");
  EXPECT_EQ(rejection_of(R"({"a\"": [":", {}] , "a\"" :  [1, 2, "\\"]})"),
            "j: byte 20: the name \"a\"\" occurs twice in one object");
  EXPECT_EQ(rejection_of(R"({"": 1, "": null})"), "j: byte 8: the name \"\" occurs twice in one object");
}

TEST(Json, ValuesKeepKindAndOffset) {
  const JsonValue root =
      read_json(R"({"a": [1, 2.5], "b": [1, "x", true], "c": [], "d": [[]], "e": null, "f": {}})", "j");
  EXPECT_EQ(root.kind(), JsonValue::Kind::object);
  EXPECT_EQ(root.find("a")->kind(), JsonValue::Kind::array);
  EXPECT_EQ(root.find("a")->numbers(), (std::vector<double>{1, 2.5}));
  EXPECT_TRUE(root.find("a")->items().empty());
  ASSERT_EQ(root.find("b")->items().size(), 3u);
  EXPECT_TRUE(root.find("b")->numbers().empty());
  EXPECT_EQ(root.find("b")->items()[0].number(), 1);
  EXPECT_EQ(root.find("b")->items()[1].text(), "x");
  EXPECT_EQ(root.find("b")->items()[1].offset, 25u);
  EXPECT_TRUE(root.find("b")->items()[2].boolean());
  EXPECT_TRUE(root.find("c")->numbers().empty() && root.find("c")->items().empty());
  EXPECT_EQ(root.find("d")->items().size(), 1u);
  EXPECT_EQ(root.find("e")->kind(), JsonValue::Kind::null);
  EXPECT_EQ(root.find("f")->kind(), JsonValue::Kind::object);
  EXPECT_EQ(root.find("g"), nullptr);
  // Accessors for other kinds return empty values.
  EXPECT_EQ(root.text(), "");
  EXPECT_EQ(root.find("b")->number(), 0);
  EXPECT_FALSE(root.boolean());
  EXPECT_TRUE(root.find("e")->members().empty());
}

TEST(Json, MemoryIsCheckedAndNotExceeded) {
  const auto n = test_size<std::size_t>(100000, 10000);
  const std::string long_text = '"' + std::string(100, 'x') + '"';
  const std::string texts[] = {
      list_of("[]", n),
      list_of("{}", n),
      list_of("1", n),
      list_of("[1]", n),
      list_of("[[[1,2,3]]]", n / 3),
      list_of("\"\"", n),
      list_of(long_text, n / 10),
      list_of("\"\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\"", n / 10),
      list_of("true", n),
      list_of(R"({"a":1})", n),
      list_of(R"({"a":[1,"b",{"c":null}]})", n / 3),
      list_of("0.12345678901234567", n),
      "\"" + std::string(30 * n, 'x') + "\"",
      std::string(10 * n, '\n') + "[1]" + std::string(10 * n, ' '),
      repeated(R"({"a":[)", 30) + list_of("[]", n / 2) + repeated("]}", 30),
  };
  for (const std::string& text : texts) {
    const std::uint64_t requested = json_memory_bytes(text);
    EXPECT_LE(bytes_taken([&] { read_json(text, "j"); }), requested) << text.substr(0, 40);
    // Errors at the end, whose message contains part of the text.
    for (const std::string& broken :
         {text + "x", text.substr(0, text.size() - 1) + "x", text.substr(0, text.size() - 1)}) {
      EXPECT_LE(bytes_taken([&] { rejection_of(broken); }), json_memory_bytes(broken)) << text.substr(0, 40);
    }
    EXPECT_EQ(rejection<std::runtime_error>([&] { read_json(text, "j", 64, {}, requested); }), "accepted");
    EXPECT_EQ(rejection<std::runtime_error>([&] { read_json(text, "j\x1b", 64, {}, requested - 1); }),
              "j\\u{1b}: needs " + std::to_string(requested) + " bytes of memory; " + std::to_string(requested - 1) +
                  " are available");
    EXPECT_LE(bytes_taken([&] { rejection<std::runtime_error>([&] { read_json(text, "j", 64, {}, 0); }); }), 8192u);
  }
  // A value in a list takes 48 bytes.
  EXPECT_LT(bytes_taken([&] { read_json(texts[0], "j"); }), 20 * texts[0].size());
  // Small amounts are not checked.
  EXPECT_EQ(read_json("[1]", "j", 64, {}, 0).numbers().size(), 1u);
}

TEST(Json, ReadersCheckMemory) {
  const std::string many = list_of("[]", 10000);
  const auto needs = [](const std::string& message, const std::string& source) {
    return message.starts_with(source + ": needs ") && message.ends_with(" bytes of memory; 100000 are available");
  };
  const std::string input = R"({"Q": )" + many + "}";
  std::string message = rejection<std::runtime_error>([&] { read_explain_input(input, "i", {}, 100000); });
  EXPECT_TRUE(needs(message, "i")) << message;
  message = rejection<std::runtime_error>([&] { read_shard_index(input, "s", {}, 100000); });
  EXPECT_TRUE(needs(message, "s")) << message;
  message = rejection<std::runtime_error>([&] { Tokenizer::read(input, "t", {.max_memory_bytes = 100000}); });
  EXPECT_TRUE(needs(message, "t")) << message;
}

TEST(Json, StructuresBuiltFromTheTreeAreIncludedInTheCheck) {
  // Finds the limit at which a text passes, and checks that the memory used stays below it.
  const auto check = [](const std::string& what, const auto& read, std::uint64_t tree) {
    std::uint64_t limit = tree;
    for (;;) {
      const std::string message = rejection<std::runtime_error>([&] { read(limit); });
      if (message == "accepted") break;
      const std::size_t at = message.find(": needs ");
      ASSERT_NE(at, std::string::npos) << what << ": " << message;
      const std::uint64_t needed = std::stoull(message.substr(at + 8));
      ASSERT_GT(needed, limit) << what;
      limit = needed;
    }
    EXPECT_LE(bytes_taken([&] { read(limit); }), limit) << what;
    EXPECT_GT(limit, tree) << what;
  };
  std::string vocabulary = R"({"[UNK]":0)";
  std::string added, map;
  const int n = test_size(20000, 2000);
  const auto values = static_cast<std::size_t>(n);
  for (int i = 1; i <= n; ++i) {
    const std::string number = std::to_string(i);
    vocabulary.append(",\"token ").append(number).append("\":").append(number);
    map.append(map.empty() ? "" : ",").append("\"tensor ").append(number).append("\":\"a.safetensors\"");
    added.append(added.empty() ? "[" : ",").append(R"({"content":"added )").append(number).append(R"(","id":)");
    added.append(std::to_string(n + i));
    added.append(R"(,"single_word":false,"lstrip":false,"rstrip":false,"normalized":true})");
  }
  regard_tokenizer::TokenizerText text;
  text.vocab = vocabulary + "}";
  text.added_tokens = added + "]";
  text.post_processor = "null";
  const std::string tokenizer = regard_tokenizer::tokenizer_json(text);
  check(
      "tokenizer", [&](std::uint64_t limit) { Tokenizer::read(tokenizer, "t", {.max_memory_bytes = limit}); },
      json_memory_bytes(tokenizer, 128));
  const std::string index = R"({"weight_map":{)" + map + "}}";
  check("index", [&](std::uint64_t limit) { read_shard_index(index, "s", {}, limit); }, json_memory_bytes(index));
  const std::string inputs[] = {
      R"({"Q":)" + list_of("[1,2,3]", 3 * values / 2) + "}",
      R"({"Q":)" + list_of(R"([1,"inf",3])", 3 * values / 2) + "}",
      R"({"Q":[)" + list_of("1", 5 * values) + "]}",
      R"({"tokens":)" + list_of("\"a\"", 5 * values) + "}",
      R"({"steps":)" + list_of(R"({"operation":"a"})", values) + "}",
      R"({"steps":)" + list_of(R"({"operation":"a","labels":["a","b"],"numbers":[1,2]})", values) + "}",
      R"({"compare":)" + list_of(R"({"label":"a","Q":[1]})", values) + "}",
      R"({"notes":{)" + map.substr(0, map.find("\"tensor 2\"")) + R"("b":["c"]}})",
  };
  for (const std::string& input : inputs) {
    if (rejection<std::runtime_error>([&] { read_explain_input(input, "i"); }) != "accepted") continue;
    check(
        input.substr(0, 40), [&](std::uint64_t limit) { read_explain_input(input, "i", {}, limit); },
        json_memory_bytes(input));
  }
}

TEST(Json, MessagesShowTheEndOfLongTexts) {
  EXPECT_EQ(rejection_of("[1, x]"), "j: byte 4: syntax error while parsing value - invalid literal; last read: '1, x'");
  const std::string message = rejection_of("[" + repeated("[],", 100000) + "x");
  EXPECT_TRUE(message.starts_with("j: byte 300001: syntax error while parsing value - invalid literal; last read: '…"));
  EXPECT_TRUE(message.ends_with("[],[],x'")) << message;
  EXPECT_LT(message.size(), 300u);
}

// The name is longer than what is shown, and é is removed as a whole.
TEST(Json, NamesAreTruncatedAtCharacterBoundaries) {
  const std::string name = "a" + repeated("é", 60);
  EXPECT_EQ(rejection_of("{\"" + name + "\":1,\"" + name + "\":1}"),
            "j: byte 127: the name \"a" + repeated("é", 39) + "\" occurs twice in one object");
}

}  // namespace
}  // namespace regard::json_test
