// SPDX-License-Identifier: Apache-2.0
//
// safetensors files in memory: what is read, value by value, and one rejection for each rule of the format, including
// its text and offset. The invalid inputs are known attacks on such readers: lengths and products that wrap, overlaps,
// gaps, trailing bytes, duplicate names, nesting, other kinds of files under the name.
// Read next: src/io/safetensors_header.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "regard/io/rounding.h"
#include "regard/io/safetensors.h"
#include "support/model_bytes.h"
#include "support/rejection.h"
#include "support/test_size.h"

namespace regard::safetensors_test {
namespace {

Checkpoint parse(std::string_view bytes, const ModelFileOptions& options = {}) {
  return Checkpoint::read_memory(share_bytes(to_bytes(bytes)), "m", options);
}

std::string rejection(std::string_view bytes, const ModelFileOptions& options = {}) {
  return regard::rejection<std::runtime_error>([&] { parse(bytes, options); });
}

// The rejection of a header followed by that many bytes of data.
std::string header_rejection(std::string_view header, std::size_t num_data_bytes = 0,
                             const ModelFileOptions& options = {}) {
  return rejection(safetensors_bytes(header, std::string(num_data_bytes, '\0')), options);
}

std::string entry(std::string_view name, std::string_view type, std::string_view shape, std::string_view offsets) {
  std::string text = "\"";
  text.append(name).append("\":{\"dtype\":\"").append(type).append("\",\"shape\":").append(shape);
  return text.append(",\"data_offsets\":").append(offsets).append("}");
}

std::string braced(const std::string& entries) { return std::string("{").append(entries).append("}"); }

TEST(Safetensors, ReadsEveryType) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::string data;
  const auto add = [&](std::string_view name, std::string_view type, std::string_view shape, const std::string& bytes) {
    header += "," + entry(name, type, shape,
                          "[" + std::to_string(data.size()) + "," + std::to_string(data.size() + bytes.size()) + "]");
    data += bytes;
  };
  add("f64", "F64", "[2]", bytes_of<double>({1.0 / 3.0, -0.0}));
  add("f32", "F32", "[2,2]", bytes_of<float>({1.5f, -2.25f, 1e-45f, 3.4028235e38f}));
  // One, two, the smallest subnormal, the largest subnormal, the largest, minus zero.
  add("f16", "F16", "[6]", bytes_of<std::uint16_t>({0x3c00, 0x4000, 0x0001, 0x03ff, 0x7bff, 0x8000}));
  add("bf16", "BF16", "[3]", bytes_of<std::uint16_t>({0x3f80, 0xc040, 0x0001}));
  add("i64", "I64", "[1]", bytes_of<std::int64_t>({-5}));
  add("i32", "I32", "[1]", bytes_of<std::int32_t>({-6}));
  add("i16", "I16", "[1]", bytes_of<std::int16_t>({-7}));
  add("i8", "I8", "[1]", bytes_of<std::int8_t>({-8}));
  add("u64", "U64", "[1]", bytes_of<std::uint64_t>({5}));
  add("u32", "U32", "[1]", bytes_of<std::uint32_t>({6}));
  add("u16", "U16", "[1]", bytes_of<std::uint16_t>({7}));
  add("u8", "U8", "[1]", bytes_of<std::uint8_t>({8}));
  add("bool", "BOOL", "[2]", std::string("\1\0", 2));
  add("nothing", "F32", "[3,0]", "");
  add("one", "F32", "[]", bytes_of<float>({7.0f}));
  const Checkpoint checkpoint = parse(safetensors_bytes(header + "}  ", data));

  ASSERT_EQ(checkpoint.tensors().size(), 15u);
  for (std::size_t i = 1; i < 15; ++i) EXPECT_LT(checkpoint.tensors()[i - 1].name, checkpoint.tensors()[i].name);
  const auto floats = [&](std::string_view name) {
    const StoredTensor* tensor = checkpoint.find(name);
    const std::vector<float> copied = checkpoint.read_float32(*tensor);
    const std::shared_ptr<const float> shared = checkpoint.share_float32(*tensor);
    EXPECT_TRUE(std::equal(copied.begin(), copied.end(), shared.get())) << name;
    return copied;
  };
  EXPECT_EQ(floats("f64"), (std::vector<float>{1.0f / 3.0f, -0.0f}));
  EXPECT_TRUE(std::signbit(floats("f64")[1]));
  EXPECT_EQ(floats("f32"), (std::vector<float>{1.5f, -2.25f, 1e-45f, 3.4028235e38f}));
  EXPECT_EQ(floats("f16"), (std::vector<float>{1.0f, 2.0f, 0x1p-24f, 0x1.ff8p-15f, 65504.0f, 0.0f}));
  EXPECT_TRUE(std::signbit(floats("f16")[5]));
  EXPECT_EQ(floats("bf16"), (std::vector<float>{1.0f, -3.0f, 0x1p-133f}));
  EXPECT_EQ(floats("one"), (std::vector<float>{7.0f}));
  EXPECT_TRUE(floats("nothing").empty());
  EXPECT_EQ(checkpoint.find("f32")->shape, (std::vector<Index>{2, 2}));
  EXPECT_EQ(checkpoint.find("one")->shape, std::vector<Index>{});
  EXPECT_EQ(checkpoint.find("f3"), nullptr);
  EXPECT_EQ(checkpoint.find("zzz"), nullptr);
  for (const char* name : {"i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool"}) {
    const StoredTensor* tensor = checkpoint.find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(static_cast<Index>(tensor->bytes.size()), type_bytes(tensor->type) * tensor->shape[0]) << name;
    EXPECT_THROW(checkpoint.read_float32(*tensor), std::runtime_error) << name;
  }
  EXPECT_EQ(regard::rejection<std::runtime_error>([&] { checkpoint.read_float32(*checkpoint.find("i64")); }),
            "m: tensor \"i64\" is of type I64, which is not a floating-point type; expected F32, F16, BF16 or F64");
}

// Every float16, compared with the value of its bits by the formula.
TEST(Safetensors, ConvertsEveryFloat16) {
  std::vector<std::uint16_t> halves;
  for (int bits = 0; bits < 0x10000; ++bits) halves.push_back(static_cast<std::uint16_t>(bits));
  const Checkpoint checkpoint =
      parse(safetensors_bytes(braced(entry("h", "F16", "[65536]", "[0,131072]")), bytes_of(halves)),
            {.allow_nonfinite = true});
  const std::vector<float> numbers = checkpoint.read_float32(checkpoint.tensors()[0]);
  for (int bits = 0; bits < 0x10000; ++bits) {
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    const float x = numbers[static_cast<std::size_t>(bits)];
    EXPECT_EQ(std::signbit(x), bits >= 0x8000) << bits;
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(x), fraction != 0) << bits;
      EXPECT_EQ(std::isinf(x), fraction == 0) << bits;
    } else {
      const double expected = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      EXPECT_EQ(std::fabs(x), static_cast<float>(expected)) << bits;
    }
  }
}

TEST(Safetensors, HeaderLength) {
  EXPECT_EQ(rejection(""), "m: byte 0: the file is empty; expected safetensors");
  for (std::size_t n = 1; n < 8; ++n) {
    EXPECT_EQ(rejection(std::string(n, '\0')),
              "m: byte 0: the file has " + std::to_string(n) + " bytes, too few for safetensors");
  }
  EXPECT_EQ(rejection(std::string(8, '\xff') + "{}"),
            "m: byte 0: the header should be 18446744073709551615 bytes long, but only 2 bytes follow");
  EXPECT_EQ(rejection(std::string("\x0a\0\0\0\0\0\0\0{}", 10)),
            "m: byte 0: the header should be 10 bytes long, but only 2 bytes follow");
  EXPECT_EQ(rejection(std::string(8, '\0')), "m: byte 8: the header does not begin with {; not a safetensors file");
  EXPECT_EQ(
      header_rejection("{" + std::string(30, ' ') + "}", 0, {.max_header_bytes = 31}),
      "m: byte 0: the header is 32 bytes long; at most 31 are read (the option max_header_bytes raises this limit)");
  EXPECT_EQ(header_rejection("{" + std::string(30, ' ') + "}", 0, {.max_header_bytes = 32}), "accepted");
}

TEST(Safetensors, BytesAroundTheHeader) {
  EXPECT_EQ(header_rejection("{}"), "accepted");
  EXPECT_EQ(header_rejection("{}    "), "accepted");
  const std::string no_brace = "m: byte 8: the header does not begin with {; not a safetensors file";
  EXPECT_EQ(header_rejection(" {}"), no_brace);
  EXPECT_EQ(header_rejection("\n{}"), no_brace);
  EXPECT_EQ(header_rejection("\xef\xbb\xbf{}"), no_brace);
  EXPECT_EQ(header_rejection("[]"), no_brace);
  EXPECT_EQ(header_rejection(std::string("{}\0\0", 4)),
            "m: byte 11: the header is padded with characters other than spaces");
  EXPECT_EQ(header_rejection("{} \n "), "m: byte 11: the header is padded with characters other than spaces");
  EXPECT_TRUE(header_rejection("{}{}").starts_with("m: byte 10: syntax error")) << header_rejection("{}{}");
  EXPECT_TRUE(header_rejection("{} x").starts_with("m: byte 11: syntax error")) << header_rejection("{} x");
  EXPECT_TRUE(header_rejection("{").starts_with("m: byte 9: syntax error")) << header_rejection("{");
  EXPECT_TRUE(header_rejection("{\"a\":NaN}").starts_with("m: byte 13: syntax error"))
      << header_rejection("{\"a\":NaN}");
}

TEST(Safetensors, Utf8) {
  EXPECT_EQ(header_rejection("{\"__metadata__\":{\"a\":\"\xff\"}}"), "m: byte 30: not valid UTF-8");
  EXPECT_EQ(header_rejection("{\"__metadata__\":{\"a\":\"\xc0\xaf\"}}"), "m: byte 30: not valid UTF-8");  // overlong
  EXPECT_EQ(header_rejection("{\"__metadata__\":{\"a\":\"\xed\xa0\x80\"}}"), "m: byte 30: not valid UTF-8");
  const std::string lone = header_rejection(R"({"__metadata__":{"a":"\ud800"}})");
  EXPECT_TRUE(lone.starts_with("m: byte ") && lone.find("surrogate") != std::string::npos) << lone;
  EXPECT_EQ(header_rejection(R"({"__metadata__":{"größe":"\ud83d\ude00 日本"}})"), "accepted");
}

TEST(Safetensors, Nesting) {
  const std::string brackets(100'000, '[');
  EXPECT_EQ(header_rejection("{\"a\":" + brackets),
            "m: byte 12: tensor \"a\" must be an object with dtype, shape and data_offsets, not a list");
  EXPECT_EQ(header_rejection("{\"a\":{\"shape\":" + brackets),
            "m: byte 22: shape of tensor \"a\" must be a list of integers from 0 to 2^48, not a list");
  std::string braces = "{\"__metadata__\":{";
  for (int i = 0; i < 100'000; ++i) braces += "\"a\":{";
  EXPECT_EQ(header_rejection(braces), "m: byte 28: metadata \"a\" must be a string, not an object");
}

TEST(Safetensors, DuplicateNames) {
  EXPECT_EQ(header_rejection(braced(entry("a", "U8", "[1]", "[0,1]") + "," + entry("a", "U8", "[1]", "[1,2]")), 2),
            "m: byte 61: tensor \"a\" occurs twice, first at byte 9");
  // The same name, once written with an escape.
  EXPECT_EQ(
      header_rejection(braced(entry("a", "U8", "[1]", "[0,1]") + "," + entry("\\u0061", "U8", "[1]", "[1,2]")), 2),
      "m: byte 61: tensor \"a\" occurs twice, first at byte 9");
  EXPECT_EQ(header_rejection(R"({"__metadata__":{},"__metadata__":{}})"),
            "m: byte 27: __metadata__ occurs twice, first at byte 9");
  EXPECT_EQ(header_rejection(R"({"__metadata__":{"a":"1","b":"2","a":"3"}})"),
            "m: byte 41: metadata \"a\" occurs twice, first at byte 25");
  EXPECT_EQ(header_rejection(R"({"a":{"dtype":"U8","dtype":"U8"}})"), "m: byte 27: dtype of tensor \"a\" occurs twice");
}

TEST(Safetensors, Metadata) {
  EXPECT_EQ(header_rejection(R"({"__metadata__":3})"),
            "m: byte 24: __metadata__ must be an object of strings, not a number");
  EXPECT_EQ(header_rejection(R"({"__metadata__":null})"),
            "m: byte 26: __metadata__ must be an object of strings, not null");
  EXPECT_EQ(header_rejection(R"({"__metadata__":{"a":1}})"),
            "m: byte 29: metadata \"a\" must be a string, not a number");
  EXPECT_EQ(header_rejection(R"({"__metadata__":{"a":null}})"),
            "m: byte 31: metadata \"a\" must be a string, not null");
  EXPECT_EQ(header_rejection(R"({"__metadata__":{"a":[]}})"),
            "m: byte 28: metadata \"a\" must be a string, not a list");
  EXPECT_EQ(header_rejection(R"({"__metadata__":{"a":true}})"),
            "m: byte 31: metadata \"a\" must be a string, not true or false");
}

TEST(Safetensors, Fields) {
  EXPECT_EQ(header_rejection(R"({"a":3})"),
            "m: byte 13: tensor \"a\" must be an object with dtype, shape and data_offsets, not a number");
  EXPECT_EQ(header_rejection(R"({"a":{}})"), "m: byte 14: tensor \"a\" has no dtype");
  EXPECT_EQ(header_rejection(R"({"a":{"dtype":"U8"}})"), "m: byte 26: tensor \"a\" has no shape");
  EXPECT_EQ(header_rejection(R"({"a":{"dtype":"U8","shape":[]}})"), "m: byte 37: tensor \"a\" has no data_offsets");
  EXPECT_EQ(header_rejection(R"({"a":{"dtype":8}})"),
            "m: byte 22: dtype of tensor \"a\" must be a string, not a number");
  EXPECT_EQ(header_rejection(R"({"a":{"stride":[1]}})"),
            "m: byte 14: tensor \"a\" has the unknown field \"stride\"; expected dtype, shape and data_offsets");
  EXPECT_EQ(header_rejection(R"({"a":{"shape":"2"}})"),
            "m: byte 23: shape of tensor \"a\" must be a list of integers from 0 to 2^48, not text");
  EXPECT_EQ(header_rejection(R"({"a":{"data_offsets":[1]}})"),
            "m: byte 31: data_offsets of tensor \"a\" has fewer than two elements");
  EXPECT_EQ(header_rejection(R"({"a":{"data_offsets":[1,2,3]}})"),
            "m: byte 34: data_offsets of tensor \"a\" has more than two elements");
}

TEST(Safetensors, Types) {
  for (const char* type : {"F8_E4M3", "F4", "f32", "", "COMPLEX64", "INT4"}) {
    EXPECT_EQ(header_rejection(braced(entry("a", type, "[1]", "[0,1]")), 1),
              std::string("m: byte 22: type \"") + type +
                  "\" of tensor \"a\" is not supported; expected F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, "
                  "U16, U8 or "
                  "BOOL");
  }
}

TEST(Safetensors, Offsets) {
  const auto two = [](std::string_view first, std::string_view second, std::size_t num_data_bytes) {
    return header_rejection(braced(entry("a", "U8", "[4]", first) + "," + entry("b", "U8", "[4]", second)),
                            num_data_bytes);
  };
  EXPECT_EQ(two("[0,4]", "[4,8]", 8), "accepted");
  EXPECT_EQ(two("[4,8]", "[0,4]", 8), "accepted");
  EXPECT_EQ(two("[0,4]", "[3,7]", 7),
            "m: byte 61: tensor \"b\" begins at byte 3 of the data, within \"a\", which ends at 4");
  EXPECT_EQ(two("[0,4]", "[0,4]", 4),
            "m: byte 61: tensor \"b\" begins at byte 0 of the data, within \"a\", which ends at 4");
  EXPECT_EQ(two("[0,4]", "[5,9]", 9),
            "m: byte 61: bytes 4 to 5 of the data belong to no tensor; the next tensor, \"b\", begins after them");
  EXPECT_EQ(two("[1,5]", "[5,9]", 9),
            "m: byte 9: bytes 0 to 1 of the data belong to no tensor; the next tensor, \"a\", begins after them");
  EXPECT_EQ(two("[0,4]", "[8,4]", 8), "m: byte 61: tensor \"b\": data_offsets [8, 4] end before they begin");
  EXPECT_EQ(two("[0,4]", "[4,8]", 7),
            "m: byte 61: tensor \"b\" ends at byte 8 of the data, but the file has only 7; it is truncated");
  EXPECT_EQ(two("[0,4]", "[4,8]", 9), "m: byte 121: the file has 1 extra bytes after its last tensor");
  EXPECT_EQ(two("[0,4]", "[4,18446744073709551615]", 8),
            "m: byte 61: tensor \"b\": shape [4] of U8 takes 4 bytes; data_offsets [4, 18446744073709551615] hold "
            "18446744073709551611");
  const std::string must = "data_offsets of tensor \"a\" must be a list of two integers from 0 to 2^64 - 1, not ";
  EXPECT_EQ(two("[-1,3]", "[4,8]", 8), "m: byte 56: " + must + "-1");
  EXPECT_EQ(two("[0,1e3]", "[4,8]", 8), "m: byte 59: " + must + "1e3");
  EXPECT_EQ(two("[0,4.0]", "[4,8]", 8), "m: byte 59: " + must + "4.0");
  EXPECT_EQ(two("[0,18446744073709551616]", "[4,8]", 8), "m: byte 76: " + must + "18446744073709551616");
  EXPECT_EQ(two("{}", "[4,8]", 8), "m: byte 53: " + must + "an object");
  EXPECT_EQ(header_rejection("{}", 3), "m: byte 10: the file has 3 extra bytes after its last tensor");
}

TEST(Safetensors, Shapes) {
  const auto shaped = [](std::string_view shape, std::string_view type = "F32", std::size_t num_data_bytes = 0) {
    return header_rejection(braced(entry("a", type, shape, "[0," + std::to_string(num_data_bytes) + "]")),
                            num_data_bytes);
  };
  EXPECT_EQ(shaped("[2,3]", "F32", 20),
            "m: byte 9: tensor \"a\": shape [2, 3] of F32 takes 24 bytes; data_offsets [0, 20] hold 20");
  EXPECT_EQ(shaped("[4294967296,4294967296]"),
            "m: byte 9: tensor \"a\": shape [4294967296, 4294967296] of F32 does not fit in 63 bits");
  EXPECT_EQ(shaped("[281474976710656,65536]", "U8"),
            "m: byte 9: tensor \"a\": shape [281474976710656, 65536] of U8 does not fit in 63 bits");
  EXPECT_EQ(shaped("[9223372036854775808,2]"), "m: byte 55: extent 9223372036854775808 of tensor \"a\" exceeds 2^48");
  EXPECT_EQ(shaped("[0,9223372036854775808]"), "m: byte 57: extent 9223372036854775808 of tensor \"a\" exceeds 2^48");
  EXPECT_EQ(shaped("[281474976710657]"), "m: byte 51: extent 281474976710657 of tensor \"a\" exceeds 2^48");
  EXPECT_EQ(shaped("[0,281474976710656,281474976710656]"),
            "m: byte 9: tensor \"a\": shape [0, 281474976710656, 281474976710656] of F32 does not fit in 63 bits");
  EXPECT_EQ(shaped("[0,281474976710656]"), "accepted");
  EXPECT_EQ(shaped("[0]", "F32", 4),
            "m: byte 9: tensor \"a\": shape [0] of F32 takes 0 bytes; data_offsets [0, 4] hold 4");
  EXPECT_EQ(shaped("[1,1,1,1,1,1,1,1]", "U8", 1), "accepted");
  EXPECT_EQ(shaped("[1,1,1,1,1,1,1,1,1]", "U8", 1), "m: byte 52: tensor \"a\" has more than 8 axes");
  const std::string must = "shape of tensor \"a\" must be a list of integers from 0 to 2^48, not ";
  EXPECT_EQ(shaped("[-1]"), "m: byte 38: " + must + "-1");
  EXPECT_EQ(shaped("[1.5]"), "m: byte 39: " + must + "1.5");
  EXPECT_EQ(shaped("[true]"), "m: byte 39: " + must + "true or false");
}

TEST(Safetensors, LimitOfTensors) {
  std::string header = "{";
  for (int i = 0; i < 5; ++i) header.append(i == 0 ? "" : ",").append(entry(std::to_string(i), "U8", "[0]", "[0,0]"));
  header += "}";
  EXPECT_EQ(header_rejection(header, 0, {.max_tensors = 5}), "accepted");
  EXPECT_EQ(header_rejection(header, 0, {.max_tensors = 4}),
            "m: byte 217: more than 4 tensors; the option max_tensors raises this limit");
}

// The default limit: a header of 70 MB is parsed in reasonable time.
TEST(Safetensors, ReadsAMillionTensors) {
  std::string header = "{";
  const int most = test_size(1 << 20, 1 << 16);
  for (int i = 0; i <= most; ++i) {
    header.append(i == 0 ? "" : ",").append(entry("layer." + std::to_string(i), "U8", "[0]", "[0,0]"));
  }
  header += "}";
  ModelFileOptions options;
  if (most < 1 << 20) options.max_tensors = most;
  const std::string rejected = header_rejection(header, 0, options);
  EXPECT_NE(rejected.find(": more than " + std::to_string(most) + " tensors; the option max_tensors raises this limit"),
            std::string::npos)
      << rejected;
}

TEST(Safetensors, TensorNames) {
  const auto named = [](std::string_view name) { return header_rejection(braced(entry(name, "U8", "[0]", "[0,0]"))); };
  EXPECT_EQ(named("../../x"), "accepted");
  EXPECT_EQ(named("größe 日本 \\u202e"), "accepted");
  EXPECT_EQ(named(std::string(512, 'x')), "accepted");
  EXPECT_EQ(named(""), "m: byte 9: the name of a tensor is empty");
  EXPECT_EQ(named(std::string(513, 'x')), "m: byte 9: the name of a tensor is 513 bytes long; the limit is 512");
  EXPECT_EQ(named(std::string(1'000'000, 'x')),
            "m: byte 9: the name of a tensor is 1000000 bytes long; the limit is 512");
  EXPECT_EQ(named("a\\u0000b"), "m: byte 9: the name \"a\\u{0}b\" of a tensor contains a control character");
  EXPECT_EQ(named("\\u001b]0;x"), "m: byte 9: the name \"\\u{1b}]0;x\" of a tensor contains a control character");
  EXPECT_EQ(named("\\u007f"), "m: byte 9: the name \"\\u{7f}\" of a tensor contains a control character");
  EXPECT_EQ(named("\\u009b2J"), "m: byte 9: the name \"\\u{9b}2J\" of a tensor contains a control character");
  EXPECT_EQ(named("\xc2\xa0"), "accepted");
  // Names in messages are escaped.
  EXPECT_EQ(header_rejection(braced(entry("\\u202ex", "U8", "[1]", "[0,0]"))),
            "m: byte 9: tensor \"\\u{202e}x\": shape [1] of U8 takes 1 bytes; data_offsets [0, 0] hold 0");
}

TEST(Safetensors, NonFiniteValues) {
  const auto with = [](std::string_view type, const std::string& data, std::string_view shape) {
    return safetensors_bytes(braced(entry("w", type, shape, "[0," + std::to_string(data.size()) + "]")), data);
  };
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> many(5000, 1.0f);
  many[4777] = std::nanf("");
  EXPECT_EQ(rejection(with("F32", bytes_of(many), "[50,100]")),
            "m: byte 19179: tensor \"w\" contains nan at [47, 77]; the option allow_nonfinite (--allow-nonfinite) "
            "permits it");
  EXPECT_EQ(rejection(with("F32", bytes_of<float>({-inf}), "[]")),
            "m: byte 61: tensor \"w\" contains -inf at []; the option allow_nonfinite (--allow-nonfinite) permits it");
  EXPECT_EQ(rejection(with("F64", bytes_of<double>({0, HUGE_VAL}), "[2]")),
            "m: byte 71: tensor \"w\" contains inf at [1]; the option allow_nonfinite (--allow-nonfinite) permits it");
  EXPECT_EQ(rejection(with("F16", bytes_of<std::uint16_t>({0x7bff, 0xfc00}), "[2]")),
            "m: byte 64: tensor \"w\" contains -inf at [1]; the option allow_nonfinite (--allow-nonfinite) permits it");
  EXPECT_EQ(rejection(with("BF16", bytes_of<std::uint16_t>({0x7f7f, 0x7f81}), "[2]")),
            "m: byte 65: tensor \"w\" contains nan at [1]; the option allow_nonfinite (--allow-nonfinite) permits it");
  const Checkpoint allowed = parse(with("F32", bytes_of(many), "[50,100]"), {.allow_nonfinite = true});
  EXPECT_TRUE(std::isnan(allowed.read_float32(allowed.tensors()[0])[4777]));
  // Integers have no non-finite values.
  EXPECT_EQ(rejection(with("I32", bytes_of<std::uint32_t>({0xffffffff}), "[1]")), "accepted");

  const Checkpoint large = parse(with("F64", bytes_of<double>({1, 1e300}), "[2]"));
  EXPECT_EQ(regard::rejection<std::runtime_error>([&] { large.read_float32(large.tensors()[0]); }),
            "m: tensor \"w\" contains 1e+300 at [1], which is out of range for float32");
}

TEST(Safetensors, OtherKindsOfFiles) {
  const auto kind = [](std::string_view bytes) { return rejection(std::string(bytes) + std::string(40, 'x')); };
  const std::string save = "; save the model as safetensors";
  EXPECT_EQ(kind("\x1f\x8b\x08"), "m: byte 0: this is a gzip archive, not safetensors; unpack it first");
  EXPECT_EQ(kind("PK\3\4"),
            "m: byte 0: this is a zip archive (such as PyTorch's .bin and .pt files), not safetensors" + save);
  for (const char* protocol : {"\x80\2", "\x80\3", "\x80\4", "\x80\5"}) {
    EXPECT_EQ(kind(protocol),
              "m: byte 0: this is a Python pickle, which can run code and is never read, not safetensors" + save);
  }
  EXPECT_EQ(kind("version https://git-lfs.github.com/spec/v1\noid sha256:53aa\n"),
            "m: byte 0: this is a Git LFS pointer, not safetensors; run git lfs pull to fetch the file");
  const std::string page =
      "m: byte 0: this is an HTML page, not safetensors, perhaps a server error; fetch the file again";
  EXPECT_EQ(kind("<!DOCTYPE html><html>"), page);
  EXPECT_EQ(kind("\n  <HTML lang=en>"), page);
  EXPECT_EQ(kind("GGUF\3"), "m: byte 0: this is a GGUF file, not safetensors");
  // Short files, too.
  EXPECT_EQ(rejection("PK\3\4"), kind("PK\3\4"));
  // A header whose length has the first bytes of a pickle is a valid header.
  std::string header = "{" + std::string(0x0280 - 2, ' ') + "}";
  EXPECT_EQ(header_rejection(header), "accepted");
}

TEST(Safetensors, BytesOutliveTheCheckpoint) {
  std::shared_ptr<const float> shared;
  {
    const Checkpoint checkpoint =
        parse(safetensors_bytes(braced(entry("w", "F32", "[3]", "[0,12]")) + "     ", bytes_of<float>({1, 2, 3})));
    shared = checkpoint.share_float32(checkpoint.tensors()[0]);
  }
  EXPECT_EQ(shared.get()[2], 3.0f);
}

TEST(Safetensors, BytesInMemoryAreNotCopied) {
  const std::string header = braced(entry("w", "F32", "[3]", "[0,12]"));
  const SharedBytes bytes = share_bytes(
      to_bytes(safetensors_bytes(header + std::string(8 - header.size() % 8, ' '), bytes_of<float>({1, 2, 3}))));
  const Checkpoint checkpoint = Checkpoint::read_memory(bytes, "m");
  EXPECT_EQ(checkpoint.name(), "m");
  const std::byte* first = bytes.first.get() + bytes.count - 12;
  EXPECT_EQ(checkpoint.tensors()[0].bytes.data(), first);
  EXPECT_EQ(static_cast<const void*>(checkpoint.share_float32(checkpoint.tensors()[0]).get()),
            static_cast<const void*>(first));
  EXPECT_EQ(bytes.first.use_count(), 3);  // here, and the checkpoint's header and data
}

TEST(Safetensors, MemoryIsReadAsAFileIs) {
  const std::string header = braced(entry("w", "F32", "[3]", "[0,12]"));
  const std::string good = safetensors_bytes(header, bytes_of<float>({1, 2, 3}));
  const TestFolder folder;
  for (const std::string& bytes :
       {good, good.substr(0, 5), good.substr(0, 20), good.substr(0, good.size() - 1), good + "x", std::string(),
        std::string("PK\3\4"), safetensors_bytes(header, bytes_of<float>({1, HUGE_VALF, 3}))}) {
    const std::string path = folder.write("m", bytes);
    std::string from_file = regard::rejection<std::runtime_error>([&] { Checkpoint::read_file(path); });
    if (from_file.starts_with(path)) from_file.replace(0, path.size(), "m");
    EXPECT_EQ(rejection(bytes), from_file);
  }
  EXPECT_EQ(parse(good).sha256(), Checkpoint::read_file(folder.write("m", good)).sha256());
  // The list of tensors takes up to twice the bytes of the header.
  const std::string needed = std::to_string(2 * header.size());
  const std::string available = std::to_string(2 * header.size() - 1);
  EXPECT_EQ(rejection(good, {.max_memory_bytes = 2 * header.size()}), "accepted");
  EXPECT_EQ(rejection(good, {.max_memory_bytes = 2 * header.size() - 1}),
            "m: needs " + needed + " bytes of memory; " + available + " are available");
}

// A matrix of int8, (2, 2), with these scales.
std::string int8_file(const std::vector<float>& scales, const std::string& shape = "[2]",
                      std::string_view name = "w.scale") {
  const std::string scale_bytes = bytes_of(scales);
  const std::string end = std::to_string(scale_bytes.size());
  const std::string header =
      braced(entry(name, "F32", shape, "[0," + end + "]") + "," +
             entry("w", "I8", "[2,2]", "[" + end + "," + std::to_string(scales.size() * 4 + 4) + "]"));
  return safetensors_bytes(header, scale_bytes + bytes_of<std::int8_t>({127, -127, -128, 3}));
}

TEST(Safetensors, Int8WithScalesIsReadAsTheirProduct) {
  const Checkpoint checkpoint = parse(int8_file({0.1f, 0x1p120f}));
  const StoredTensor& w = *checkpoint.find("w");
  EXPECT_EQ(checkpoint.find_scales(w), checkpoint.find("w.scale"));
  EXPECT_EQ(checkpoint.read_float32(w), (std::vector<float>{127 * 0.1f, -127 * 0.1f, -0x1p127f, 3 * 0x1p120f}));
  EXPECT_EQ(checkpoint.share_float32(w).get()[1], -127 * 0.1f);
  const regard::StoredMatrix matrix = checkpoint.share_matrix(w);
  EXPECT_EQ(static_cast<const void*>(matrix.int8), w.bytes.data());
  EXPECT_EQ(matrix(0, 0), 127 * 0.1f);
  EXPECT_EQ(matrix(0, 1), -127 * 0.1f);
  EXPECT_EQ(matrix(1, 1), 3 * 0x1p120f);
}

TEST(Safetensors, RejectsInvalidScales) {
  const auto reading = [](const std::string& bytes, const ModelFileOptions& options = {}) {
    const Checkpoint checkpoint = parse(bytes, options);
    const std::string text =
        regard::rejection<std::runtime_error>([&] { checkpoint.read_float32(*checkpoint.find("w")); });
    EXPECT_EQ(regard::rejection<std::runtime_error>([&] { checkpoint.share_matrix(*checkpoint.find("w")); }), text);
    return text;
  };
  const std::string missing =
      "m: tensor \"w\" is of type I8 without scales; expected a tensor \"w.scale\" of type F32 and shape (2,)";
  EXPECT_EQ(reading(int8_file({1, 1}, "[2]", "v.scale")), missing);
  EXPECT_EQ(reading(int8_file({1}, "[1]")), missing);
  EXPECT_EQ(reading(int8_file({1, 1}, "[1,2]")), missing);
  const std::string expected = "; expected a finite scale of at most 2^120";
  EXPECT_EQ(reading(int8_file({1, 1.5e36f})), "m: tensor \"w\" has the scale 1.5e+36 at [1]" + expected);
  const std::string with_nan = int8_file({std::nanf(""), 1});
  EXPECT_NE(rejection(with_nan).find("tensor \"w.scale\" contains nan at [0]; the option allow_nonfinite"),
            std::string::npos);
  EXPECT_EQ(reading(with_nan, {.allow_nonfinite = true}), "m: tensor \"w\" has the scale nan at [0]" + expected);
}

Checkpoint rounded(const std::vector<float>& matrix, const std::string& shape, ElementType type) {
  const Checkpoint checkpoint =
      parse(safetensors_bytes(braced(entry("w", "F32", shape, "[0," + std::to_string(4 * matrix.size()) + "]")),
                              bytes_of(matrix)),
            {.allow_nonfinite = true});
  const StoredTensor* tensor = &checkpoint.tensors()[0];
  return Checkpoint::read_memory(round_tensors(checkpoint, {&tensor, 1}, type), "rounded");
}

std::vector<int> int8_of(const Checkpoint& checkpoint) {
  std::vector<int> elements;
  for (const std::byte byte : checkpoint.find("w")->bytes) elements.push_back(static_cast<std::int8_t>(byte));
  return elements;
}

TEST(RoundTensors, Int8IsTheFormulaOfTheHeader) {
  // Of row 0 the scale is 1, so that halves are ties; rows 1 and 2 have the scale 0.
  const float tiny = std::numeric_limits<float>::denorm_min();
  const Checkpoint checkpoint = rounded(
      {127, 0.5f, -1.5f, 2.5f, 0, -0.0f, 0, 0, tiny, 1e-36f, 0, 0, -10, 5, 4.9f, 0.01f}, "[4,4]", ElementType::int8);
  EXPECT_EQ(int8_of(checkpoint), (std::vector<int>{127, 0, -2, 2, 0, 0, 0, 0, 0, 0, 0, 0, -127, 64, 62, 0}));
  EXPECT_EQ(checkpoint.read_float32(*checkpoint.find("w.scale")), (std::vector<float>{1, 0, 0, 10.0f / 127}));
  EXPECT_EQ(checkpoint.read_float32(*checkpoint.find("w"))[13], 64 * (10.0f / 127));
  EXPECT_EQ(checkpoint.tensors().size(), 2u);
}

TEST(RoundTensors, LargestElementOfARowBecomes127) {
  std::vector<float> column;
  for (int i = 0; i < 10'000; ++i) column.push_back(std::ldexp(1 + static_cast<float>(i) / 10'000, i % 200 - 100));
  for (const int element : int8_of(rounded(column, "[10000,1]", ElementType::int8))) ASSERT_EQ(element, 127);
}

TEST(RoundTensors, Float16IsRoundedToEven) {
  const Checkpoint checkpoint =
      rounded({1, 1 + 0x1p-11f, 1 + 0x3p-11f, 65519, -0.0f, 0x1p-25f, 0x3p-26f, 0.1f}, "[2,4]", ElementType::float16);
  EXPECT_EQ(checkpoint.find("w")->type, ElementType::float16);
  EXPECT_EQ(checkpoint.read_float32(*checkpoint.find("w")),
            (std::vector<float>{1, 1, 1 + 0x1p-9f, 65504, -0.0f, 0, 0x1p-24f, 0x1.998p-4f}));
}

TEST(RoundTensors, VectorsAreKept) {
  const Checkpoint checkpoint = rounded({0.1f, 0.2f}, "[2]", ElementType::int8);
  EXPECT_EQ(checkpoint.read_float32(checkpoint.tensors()[0]), (std::vector<float>{0.1f, 0.2f}));
  EXPECT_EQ(checkpoint.tensors().size(), 1u);
}

TEST(RoundTensors, MatricesMayBeEmpty) {
  for (const ElementType type : {ElementType::int8, ElementType::float16}) {
    for (const char* shape : {"[0,4]", "[3,0]", "[0,0]"}) {
      const Checkpoint checkpoint = rounded({}, shape, type);
      EXPECT_TRUE(checkpoint.read_float32(*checkpoint.find("w")).empty()) << shape;
    }
  }
}

TEST(RoundTensors, RejectsOtherTypes) {
  for (const ElementType type : {ElementType::float64, ElementType::bfloat16, ElementType::uint8}) {
    EXPECT_EQ(regard::rejection([&] { rounded({1}, "[1,1]", type); }),
              std::string("round_tensors: type is ") + type_name(type) + "; expected int8 or float16");
  }
  EXPECT_EQ(regard::rejection([] { rounded({1}, "[1,1]", ElementType{}); }),
            "round_tensors: type is unknown; expected int8 or float16");
}

TEST(RoundTensors, RejectsWhatCannotBeRounded) {
  const auto reject = [](float x, ElementType type) {
    return regard::rejection<std::runtime_error>([&] { rounded({0, 0, x, 0}, "[2,2]", type); });
  };
  const std::string start = "m: tensor \"w\" contains ";
  EXPECT_EQ(reject(-HUGE_VALF, ElementType::int8), start + "-inf at [1, 0], which cannot be rounded to int8");
  EXPECT_EQ(reject(std::nanf(""), ElementType::float16), start + "nan at [1, 0], which cannot be rounded to float16");
  EXPECT_EQ(reject(65520, ElementType::float16), start + "65520 at [1, 0], which cannot be rounded to float16");
  EXPECT_EQ(reject(2e38f, ElementType::int8), start + "2e+38 at [1, 0], which cannot be rounded to int8");
  const Checkpoint large = rounded({1.6e38f, 0}, "[1,2]", ElementType::int8);
  EXPECT_EQ(large.read_float32(*large.find("w"))[0], 127 * (1.6e38f / 127));
}

}  // namespace
}  // namespace regard::safetensors_test
