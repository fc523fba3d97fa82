// SPDX-License-Identifier: Apache-2.0
//
// Matrices from CSV: what is accepted, and the line and column of everything that is rejected.
// Read next: src/io/csv.cpp.
#include "regard/io/csv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/rejection.h"

namespace regard::csv_test {
namespace {

std::string rejection(std::string_view text) {
  return regard::rejection<std::runtime_error>([&] { read_csv(text, "m.csv"); });
}

TEST(Csv, ReadsRowsWithAnyLineEnd) {
  const std::vector<double> expected = {1, -0.5, 3e2, 4, 5, 6};
  for (const char* text : {"1,-.5,3e2\n4,5,6\n", "1,-.5,3e2\r\n4,5,6\r\n", "1,-.5,3e2\r4,5,6",
                           "\xEF\xBB\xBF"
                           "1,-.5,3e2\n4,5,6",
                           "\"1\", -0.5 ,+300\n4,\t5,\"6\"\n\n\n"}) {
    const Matrix m = read_csv(text, "m.csv");
    EXPECT_EQ(m.num_rows, 2) << text;
    EXPECT_EQ(m.num_columns, 3) << text;
    EXPECT_EQ(m.numbers, expected) << text;
  }
}

TEST(Csv, ReadsNonFiniteNumbers) {
  const Matrix m = read_csv("inf,-inf,nan\n", "m.csv");
  EXPECT_EQ(m.numbers[0], std::numeric_limits<double>::infinity());
  EXPECT_EQ(m.numbers[1], -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(m.numbers[2]));
}

TEST(Csv, ReportsLineAndColumnOfEveryError) {
  EXPECT_EQ(rejection(""), "m.csv: line 1, column 1: the file is empty");
  EXPECT_EQ(rejection("\r\n \n"), "m.csv: line 1, column 1: the file is empty");
  EXPECT_EQ(rejection("1,2\n3\n"), "m.csv: line 2, column 2: the row has 1 cells and the first row has 2");
  EXPECT_EQ(rejection("1,2\n3,4,5\n"), "m.csv: line 2, column 3: the row has 3 cells and the first row has 2");
  EXPECT_EQ(rejection("1,2\n3,\n"), "m.csv: line 2, column 2: the cell is empty");
  EXPECT_EQ(rejection("1,2\n\n3,4\n"), "m.csv: line 2, column 1: the cell is empty");
  EXPECT_EQ(rejection("a,b\n1,2\n"), "m.csv: line 1, column 1: \"a\" is not a number; header rows are not supported");
  EXPECT_EQ(rejection("1,\"2,5\"\n"), "m.csv: line 1, column 2: \"2,5\" has a decimal comma; use a decimal point");
  EXPECT_EQ(rejection("1;2\n"), "m.csv: line 1, column 1: \"1;2\" contains semicolons; separate cells with commas");
  EXPECT_EQ(rejection("1 2\n"), "m.csv: line 1, column 1: \"1 2\" contains spaces or tabs; separate cells with commas");
  EXPECT_EQ(rejection("1\t-2e3\n"),
            "m.csv: line 1, column 1: \"1\\u{9}-2e3\" contains spaces or tabs; separate cells with commas");
  EXPECT_EQ(rejection("1,2\n3,x\n"), "m.csv: line 2, column 2: \"x\" is not a number");
  EXPECT_EQ(rejection("1,1e999\n"), "m.csv: line 1, column 2: \"1e999\" is out of range for double");
  EXPECT_EQ(rejection("1,\"2\n"), "m.csv: line 1, column 2: unterminated quote");
  EXPECT_EQ(rejection("\"1\"x,2\n"), "m.csv: line 1, column 1: text follows the closing quote");
  EXPECT_EQ(rejection("1,2\n3,\xff\n"), "m.csv: line 2, column 2: byte 6 (0xff) is not valid UTF-8");
  EXPECT_EQ(rejection("++1\n"), "m.csv: line 1, column 1: \"++1\" is not a number; header rows are not supported");
  EXPECT_EQ(rejection("0x10\n"), "m.csv: line 1, column 1: \"0x10\" is not a number; header rows are not supported");
  EXPECT_EQ(rejection("=1+1\n"), "m.csv: line 1, column 1: \"=1+1\" is not a number; header rows are not supported");
}

TEST(Csv, EscapesQuotedText) {
  EXPECT_EQ(rejection("\x1b]0;x\x07\n"),
            "m.csv: line 1, column 1: \"\\u{1b}]0;x\\u{7}\" is not a number; header rows are not supported");
  EXPECT_EQ(rejection("\xe2\x80\xae"
                      "1\n"),
            "m.csv: line 1, column 1: \"\\u{202e}1\" is not a number; header rows are not supported");
}

}  // namespace
}  // namespace regard::csv_test
