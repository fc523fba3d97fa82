// SPDX-License-Identifier: Apache-2.0
//
// NPY files: what NumPy writes is read in every type, order and version, what we write has NumPy's bytes, and every
// malformed header is rejected with the offset of the invalid byte.
#include "regard/io/npy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>

#include "support/rejection.h"

namespace regard::npy_test {
namespace {

using namespace std::string_literals;

regard::ByteSource source_of(const std::string& bytes) {
  return [bytes, at = std::size_t{0}](std::span<std::byte> to) mutable {
    const std::size_t count = std::min(to.size(), bytes.size() - at);
    std::memcpy(to.data(), bytes.data() + at, count);
    at += count;
    return count;
  };
}

std::string little_endian(std::size_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i) & 0xff);
  return text;
}

std::string file_of(const std::string& header, const std::string& data, char version = 1) {
  return "\x93NUMPY"s + version + '\0' + little_endian(header.size(), version == 1 ? 2 : 4) + header + data;
}

template <class T>
std::string bytes_of(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

NpyArray read(const std::string& bytes) {
  // Read as a file, whose length is known, and as a pipe: both must give the same result.
  NpyArray pipe = NpyReader(source_of(bytes), "x.npy").read();
  NpyArray file = NpyReader(source_of(bytes), "x.npy", bytes.size()).read();
  EXPECT_EQ(file.shape, pipe.shape);
  EXPECT_EQ(file.strides, pipe.strides);
  return file;
}

std::string error_of(const std::string& bytes, bool known_length) {
  return regard::rejection<std::runtime_error>(
      [&] { NpyReader(source_of(bytes), "x.npy", known_length ? std::optional(bytes.size()) : std::nullopt).read(); });
}

// The error for a file and for a pipe, which must be the same.
std::string error_of(const std::string& bytes) {
  const std::string error = error_of(bytes, true);
  EXPECT_EQ(error, error_of(bytes, false));
  return error;
}

std::string header_of(const std::string& descr, const std::string& shape) {
  return "{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + ", }\n";
}

std::string header_error(const std::string& header) { return error_of(file_of(header, "")); }

TEST(NpyRead, FloatsInBothOrders) {
  const std::vector<float> numbers = {0, 1, 2, 3, 4, 5};
  const NpyArray c = read(file_of(header_of("'<f4'", "(2, 3)"), bytes_of(numbers)));
  EXPECT_EQ(c.type, ElementType::float32);
  EXPECT_EQ(c.shape, (std::vector<Index>{2, 3}));
  EXPECT_EQ(c.strides, (std::vector<Index>{3, 1}));
  EXPECT_EQ(c.elements<float>()[4], 4.0F);

  const std::string fortran = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }";
  const NpyArray f = read(file_of(fortran, bytes_of(numbers)));
  EXPECT_EQ(f.strides, (std::vector<Index>{1, 2}));
}

// Elements are their numbers in row-major order.
TEST(NpyRead, SomeRowsAreReadInBothOrdersWithoutTheOthers) {
  const Index first = 1, count = 3;
  for (const bool fortran : {false, true}) {
    std::vector<float> numbers(2 * 3 * 5 * 4);
    std::vector<Index> steps{60, 20, 4, 1};
    if (fortran) steps = {1, 2, 6, 30};
    const auto for_each = [&](Index rows, const auto& visit) {
      for (Index b = 0; b < 2; ++b)
        for (Index h = 0; h < 3; ++h)
          for (Index i = 0; i < rows; ++i)
            for (Index d = 0; d < 4; ++d) visit(std::array{b, h, i, d});
    };
    const auto place = [](const auto& at, const std::vector<Index>& strides) {
      return static_cast<std::size_t>(at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2] +
                                      at[3] * strides[3]);
    };
    float next = 0;
    for_each(5, [&](const auto& at) { numbers[place(at, steps)] = next++; });
    const std::string header =
        "{'descr': '<f4', 'fortran_order': " + (fortran ? "True"s : "False"s) + ", 'shape': (2, 3, 5, 4), }\n";
    const std::string bytes = file_of(header, bytes_of(numbers));
    std::size_t at = 0, read = 0;
    const auto source = [&](std::span<std::byte> to) {
      std::memcpy(to.data(), bytes.data() + at, to.size());
      at += to.size();
      read += to.size();
      return to.size();
    };
    NpyReader reader(source, "x.npy", bytes.size());
    read = 0;
    const NpyArray rows = reader.read_rows(first, count, [&](std::uint64_t byte) { at = byte; });
    EXPECT_EQ(read, 2 * 3 * 3 * 4 * sizeof(float));
    EXPECT_EQ(rows.shape, (std::vector<Index>{2, 3, count, 4}));
    EXPECT_EQ(rows.strides, fortran ? (std::vector<Index>{1, 2, 6, 18}) : (std::vector<Index>{36, 12, 4, 1}));
    for_each(count, [&](const auto& index) {
      const auto [b, h, i, d] = index;
      EXPECT_EQ(rows.elements<float>()[place(index, rows.strides)],
                static_cast<float>(((b * 3 + h) * 5 + first + i) * 4 + d));
    });
  }
}

TEST(NpyRead, EveryTypeInBothByteOrders) {
  const auto check = [](const std::string& code, ElementType type, auto number) {
    std::string bytes(reinterpret_cast<const char*>(&number), sizeof(number));
    const NpyArray little = read(file_of(header_of("'<" + code + "'", "(1,)"), bytes));
    std::reverse(bytes.begin(), bytes.end());
    const NpyArray big = read(file_of(header_of("'>" + code + "'", "(1,)"), bytes));
    EXPECT_EQ(little.type, type);
    EXPECT_EQ(*little.elements<decltype(number)>(), number);
    EXPECT_EQ(*big.elements<decltype(number)>(), number);
  };
  check("f4", ElementType::float32, 1.25F);
  check("f8", ElementType::float64, -0.1);
  check("i4", ElementType::int32, std::int32_t{-70000});
  check("i8", ElementType::int64, std::int64_t{1} << 40);
}

// 1.5, −2⁻²⁴ (the smallest), ∞ and 65504 (the largest).
TEST(NpyRead, Float16IsConverted) {
  const std::string little = "\x00\x3e\x01\x80\x00\x7c\xff\x7b"s, big = "\x3e\x00\x80\x01\x7c\x00\x7b\xff"s;
  for (const auto& [order, bytes] : {std::pair{"<", little}, {">", big}}) {
    const NpyArray array = read(file_of(header_of("'" + std::string(order) + "f2'", "(2, 2)"), bytes));
    EXPECT_EQ(array.type, ElementType::float32);
    EXPECT_EQ(std::vector<float>(array.elements<float>(), array.elements<float>() + 4),
              (std::vector<float>{1.5F, -0x1p-24F, std::numeric_limits<float>::infinity(), 65504}));
  }
  EXPECT_EQ(error_of(file_of(header_of("'<f2'", "(2, 2)"), little + "x"), true),
            "x.npy: byte 78: the file holds 9 bytes of data; shape (2, 2) of float16 has 8");
  EXPECT_EQ(read(file_of(header_of("'<f2'", "(0,)"), "")).shape, std::vector<Index>{0});
}

TEST(NpyRead, BoolIsZeroOrOne) {
  const NpyArray array = read(file_of(header_of("'|b1'", "(3,)"), "\0\1\xff"s));
  EXPECT_EQ(array.type, ElementType::boolean);
  EXPECT_EQ(std::memcmp(array.data.get(), "\0\1\1", 3), 0);
}

TEST(NpyRead, EveryVersion) {
  for (char version : {'\1', '\2', '\3'}) {
    EXPECT_EQ(read(file_of(header_of("'<f4'", "()"), "\0\0\x80\x3f"s, version)).elements<float>()[0], 1.0F);
  }
  EXPECT_EQ(error_of(file_of(header_of("'<f4'", "()"), "abcd", '\4')),
            "x.npy: byte 6: version 4.0 is unknown; expected 1.0, 2.0 or 3.0");
  EXPECT_EQ(error_of("\x93NUMPY\0\0"s), "x.npy: byte 6: version 0.0 is unknown; expected 1.0, 2.0 or 3.0");
}

TEST(NpyRead, KeysInAnyOrderAndQuotes) {
  const NpyArray array =
      read(file_of("{ \"shape\":(2,),\"fortran_order\" : False , 'descr':\"f8\"}", bytes_of<double>({1, 2})));
  EXPECT_EQ(array.shape, std::vector<Index>{2});
  EXPECT_EQ(array.elements<double>()[1], 2.0);
}

TEST(NpyRead, EmptyAndManyAxes) {
  EXPECT_EQ(read(file_of(header_of("'<f4'", "(0, 5)"), "")).shape, (std::vector<Index>{0, 5}));
  EXPECT_EQ(read(file_of(header_of("'|b1'", "(1, 1, 1, 1, 1, 1, 1, 1)"), "\1")).shape.size(), 8u);
  EXPECT_EQ(header_error(header_of("'|b1'", "(1, 1, 1, 1, 1, 1, 1, 1, 1)")),
            "x.npy: byte 85: the shape has more than 8 axes");
}

TEST(NpyRead, LargerThanTheFirstChunkOfAPipe) {
  std::vector<double> numbers(400000);  // 3.2 MB: a pipe is read in chunks of 1, 2 and the rest
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
  const std::string bytes = file_of(header_of("'<f8'", "(400000,)"), bytes_of(numbers));
  const NpyArray pipe = NpyReader(source_of(bytes), "x.npy").read();
  const double* const read = pipe.elements<double>();
  EXPECT_TRUE(bytes_of(std::vector<double>(read, read + numbers.size())) == bytes_of(numbers));
}

TEST(NpyReject, OtherKindsOfFiles) {
  EXPECT_EQ(error_of(""), "x.npy: byte 0: the file is empty; expected an NPY file (numpy.save)");
  for (const char* bytes : {"\x93", "\x93NUMP", "PK\3\4....", "{\"a\": 1}"}) {
    EXPECT_EQ(error_of(bytes),
              "x.npy: byte 0: the file does not begin with the NPY magic string; expected an NPY file (numpy.save)");
  }
  EXPECT_EQ(error_of("\x93NUMPY"), "x.npy: byte 6: the file ends inside the version of an NPY file");
  EXPECT_EQ(error_of("\x93NUMPY\1\0\7"s), "x.npy: byte 9: the file ends inside the header's length of an NPY file");
  EXPECT_EQ(error_of("\x93NUMPY\1\0\x76\0{'d"s), "x.npy: byte 13: the file ends inside the header of an NPY file");
}

TEST(NpyReject, LongHeaders) {
  // The longest header that is supported, and one byte more, in version 2, whose length field has 32 bits.
  std::string header = header_of("'<f4'", "(1,)");
  header.resize(64 * 1024, ' ');
  EXPECT_EQ(read(file_of(header, "abcd", 2)).shape, std::vector<Index>{1});
  header += ' ';
  EXPECT_EQ(error_of(file_of(header, "abcd", 2)),
            "x.npy: byte 8: the header is 65537 bytes long; at most 65536 are supported");
  EXPECT_EQ(error_of("\x93NUMPY\2\0\xff\xff\xff\xff"s),
            "x.npy: byte 8: the header is 4294967295 bytes long; at most 65536 are supported");
}

TEST(NpyReject, UnsupportedTypesByName) {
  const auto type_error = [](const std::string& descr) { return header_error(header_of(descr, "(1,)")); };
  EXPECT_EQ(type_error("'|O'"),
            "x.npy: byte 20: type '|O' contains Python objects, which are never read; save numbers");
  EXPECT_EQ(type_error("[('a', '<f4'), ('b', '<i4')]"),
            "x.npy: byte 20: structured types are not supported; expected one of float16, float32, float64, int32, "
            "int64 or bool");
  const auto named = [](const std::string& type, const std::string& name) {
    return "x.npy: byte 20: type '" + type + "' (" + name +
           ") is not supported; expected float16, float32, float64, int32, int64 or bool";
  };
  EXPECT_EQ(type_error("'<c16'"), named("<c16", "complex128"));
  EXPECT_EQ(type_error("'|u1'"), named("|u1", "uint8"));
  EXPECT_EQ(type_error("'<U7'"), named("<U7", "text"));
  EXPECT_EQ(type_error("'<M8[ns]'"), named("<M8[ns]", "datetime"));
  EXPECT_EQ(type_error("'<V2'"), named("<V2", "bfloat16 or raw bytes"));
  EXPECT_EQ(type_error("'q'"), named("q", "unknown"));
  EXPECT_EQ(type_error("''"), named("", "unknown"));
}

TEST(NpyReject, MalformedHeaders) {
  const std::string good = "'descr': '<f4', 'fortran_order': False, 'shape': (1,)";
  const auto error = [](const std::string& text) {
    const std::string whole = header_error(text);
    EXPECT_TRUE(whole.starts_with("x.npy: byte ")) << whole;
    return whole.substr(whole.find(": ", 8) + 2);
  };
  EXPECT_EQ(error(""), "expected the header's opening {");
  EXPECT_EQ(error("{" + good), "expected a comma or the header's closing }");
  EXPECT_EQ(error("{" + good + "} + 1"), "unexpected characters after the header's closing }");
  EXPECT_EQ(error("{" + good + "}\0"s), "unexpected characters after the header's closing }");
  EXPECT_EQ(error("{" + good + ", 'x': 1}"), "key 'x' is unknown; expected descr, fortran_order and shape");
  EXPECT_EQ(error("{" + good + ", 'shape': (1,)}"), "key 'shape' occurs twice");
  EXPECT_EQ(error("{'descr': '<f4', 'shape': (1,)}"), "the header has no 'fortran_order'");
  EXPECT_EQ(error("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}"), "fortran_order is neither True nor False");
  EXPECT_EQ(error("{descr: '<f4'}"), "expected a key in quotes");
  EXPECT_EQ(error("{'descr' '<f4'}"), "expected a colon after the key");
  EXPECT_EQ(error("{'descr': '<f4}"), "unterminated quote");
  EXPECT_EQ(error("{'de\\x73cr': '<f4'}"), "a key contains an invalid character");
  EXPECT_EQ(error("{'descr': '\x1b]0;'}"), "a type contains an invalid character");
  EXPECT_EQ(error(header_of("'<f4'", "(3)")), "expected a tuple as the shape: (n,) for one axis");
  EXPECT_EQ(error(header_of("'<f4'", "[3]")), "expected a tuple such as (2, 3) as the shape");
  EXPECT_EQ(error(header_of("'<f4'", "(2 3)")), "expected a comma or ) in the shape");
  for (const char* extent : {"(-1,)", "(01,)", "(0x2,)", "(,)", "(1, ,)", "('1',)", "(True,)"}) {
    EXPECT_NE(error(header_of("'<f4'", extent)).find("expected"), std::string::npos) << extent;
  }
}

TEST(NpyReject, ImpossibleSizesBeforeAllocating) {
  const auto size_error = [](const std::string& shape) { return header_error(header_of("'<f8'", shape)); };
  const auto too_large = [](const std::string& shape) {
    return "x.npy: byte 60: shape " + shape + " does not fit in 63 bits";
  };
  EXPECT_EQ(size_error("(4294967296, 4294967296)"), too_large("(4294967296, 4294967296)"));
  EXPECT_EQ(size_error("(2305843009213693952,)"), too_large("(2305843009213693952,)"));
  EXPECT_EQ(size_error("(0, 9223372036854775807)"), too_large("(0, 9223372036854775807)"));
  EXPECT_EQ(size_error("(9223372036854775808,)"), "x.npy: byte 61: extent 9223372036854775808 does not fit in 63 bits");

  // A petabyte that a short file cannot contain and a pipe never delivers.
  const std::string petabyte = file_of(header_of("'<f8'", "(140737488355328,)"), "abc");
  EXPECT_EQ(error_of(petabyte, true),
            "x.npy: byte 85: the file holds 3 bytes of data; shape (140737488355328,) of float64 has 1125899906842624");
  EXPECT_EQ(error_of(petabyte, false), "x.npy: byte 85: the file ends after 3 of 1125899906842624 bytes of data");
}

TEST(NpyReject, DataOfTheWrongLength) {
  const std::string header = header_of("'<f4'", "(2,)");
  const std::string whole = file_of(header, "abcdefgh");
  const std::size_t data = whole.size() - 8;
  const std::string at = "x.npy: byte ";
  EXPECT_EQ(error_of(whole.substr(0, data + 7), true),
            at + std::to_string(data + 7) + ": the file holds 7 bytes of data; shape (2,) of float32 has 8");
  EXPECT_EQ(error_of(whole + "i", true),
            at + std::to_string(data + 8) + ": the file holds 9 bytes of data; shape (2,) of float32 has 8");
  EXPECT_EQ(error_of(whole.substr(0, data + 7), false),
            at + std::to_string(data + 7) + ": the file ends after 7 of 8 bytes of data");
  EXPECT_EQ(error_of(whole + "i", false),
            at + std::to_string(data + 8) + ": the file has extra bytes after the last element of shape (2,)");
}

// Every prefix of a valid file is rejected, with an offset inside it.
TEST(NpyReject, EveryPrefixOfAValidFile) {
  const std::string whole = file_of(header_of("'<f4'", "(2, 3)"), std::string(24, 'x'));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    for (bool known : {true, false}) {
      const std::string error = error_of(whole.substr(0, length), known);
      ASSERT_TRUE(error.starts_with("x.npy: byte ")) << length << ": " << error;
      EXPECT_LE(std::stoul(error.substr(12)), length) << error;
    }
  }
}

// The bytes written by numpy.save (NumPy 2.4); cli/attend_test.py compares more shapes with NumPy itself.
TEST(NpyWrite, MatchesNumpyBytes) {
  const std::string expected = "\x93NUMPY\1\0\x76\0{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"s;
  const std::string header = regard::npy_header(ElementType::float32, std::vector<Index>{2, 3});
  EXPECT_EQ(header.substr(0, expected.size()), expected);
  EXPECT_EQ(header.size(), 128u);
  EXPECT_EQ(header.substr(expected.size()), std::string(128 - expected.size() - 1, ' ') + "\n");
  EXPECT_EQ(regard::npy_header(ElementType::boolean, {}).substr(10, 57),
            "{'descr': '|b1', 'fortran_order': False, 'shape': (), }  ");
}

TEST(NpyWrite, RejectsUnsupportedTypes) {
  EXPECT_EQ(regard::rejection([] { regard::npy_header(ElementType::uint8, {}); }),
            "npy_header: type is uint8; expected float32, float64, int32, int64 or bool");
}

TEST(NpyWrite, RoundTrips) {
  for (ElementType type :
       {ElementType::float32, ElementType::float64, ElementType::int32, ElementType::int64, ElementType::boolean}) {
    for (const std::vector<Index>& shape : {std::vector<Index>{}, {0}, {7}, {2, 3}, {1, 2, 3, 4}}) {
      Index count = regard::type_bytes(type);
      for (Index extent : shape) count *= extent;
      const NpyArray array = read(regard::npy_header(type, shape) + std::string(static_cast<std::size_t>(count), '\1'));
      EXPECT_EQ(array.type, type);
      EXPECT_EQ(array.shape, shape);
    }
  }
}

TEST(NpyMatrix, ReadsOneToThreeAxesAsDoubles) {
  const std::string numbers = bytes_of<std::int32_t>({1, 2, 3, 4, 5, 6});
  struct Case {
    std::vector<Index> shape;
    Index heads, rows, columns;
  };
  for (const Case& one : {Case{{6}, 1, 1, 6}, Case{{2, 3}, 1, 2, 3}, Case{{3, 2, 1}, 3, 2, 1}}) {
    const regard::Matrix m = regard::read_npy(regard::npy_header(ElementType::int32, one.shape) + numbers, "m.npy");
    EXPECT_EQ(std::tuple(m.num_heads, m.num_rows, m.num_columns), std::tuple(one.heads, one.rows, one.columns));
    EXPECT_EQ(m.has_heads, one.shape.size() == 3);
    EXPECT_EQ(m.numbers, (std::vector<double>{1, 2, 3, 4, 5, 6}));
  }
}

TEST(NpyMatrix, ReadsColumnMajorInTheOrderOfRows) {
  const std::string file =
      file_of("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3), }\n", bytes_of<double>({1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(regard::read_npy(file, "m.npy").numbers, (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

TEST(NpyMatrix, RejectsOtherNumbersOfAxesByName) {
  for (const auto& [shape, text] : {std::pair{std::vector<Index>{}, "()"}, {{1, 1, 1, 1}, "(1, 1, 1, 1)"}}) {
    EXPECT_EQ(regard::rejection<std::runtime_error>([&, extents = shape] {
                regard::read_npy(regard::npy_header(ElementType::float64, extents) + std::string(8, '\0'), "m.npy");
              }),
              "m.npy: has shape "s + text + "; expected (rows, columns), or (heads, rows, columns)");
  }
}

TEST(NpyMatrix, WritesNumpyBytesAndRoundTrips) {
  regard::Matrix m = regard::matrix_of({{0.1, -0.0}, {std::numeric_limits<double>::infinity(), 1e-320}});
  EXPECT_EQ(regard::write_npy(m),
            regard::npy_header(ElementType::float64, std::vector<Index>{2, 2}) + bytes_of<double>(m.numbers));
  m.has_heads = true;
  m.num_heads = 2;
  m.num_rows = 1;
  const regard::Matrix again = regard::read_npy(regard::write_npy(m), "m.npy");
  EXPECT_EQ(std::tuple(again.num_heads, again.num_rows, again.num_columns, again.has_heads), std::tuple(2, 1, 2, true));
  EXPECT_EQ(again.numbers, m.numbers);
}

}  // namespace
}  // namespace regard::npy_test
