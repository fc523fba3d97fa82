// SPDX-License-Identifier: Apache-2.0
//
// Pins the bits of every operator: tests/golden_hashes.txt has one line `name hash` for each result of
// support/golden_operators.h, and every instruction set with fused multiply-add, compiler and build type must reproduce
// all of them.
//
// REGARD_GOLDEN_WRITE=PATH writes the file instead of comparing. A changed line means that the arithmetic has changed,
// which docs/reference/semantics.md section 5 rules out.
// Read next: support/golden_lines.h, docs/developer/adding-a-kernel.md.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "support/data_path.h"
#include "support/golden_operators.h"
#include "support/instruction_sets.h"

namespace regard::golden_test {
namespace {

golden::Lines all_results(const kernels::KernelTable& table) {
  const ActiveTable active(table);
  return golden::all_lines(table);
}

std::map<std::string, std::string> pinned() {
  std::ifstream file(data_path("golden_hashes.txt"));
  std::map<std::string, std::string> hashes;
  std::string name, hash;
  while (file >> name >> hash) EXPECT_TRUE(hashes.emplace(name, hash).second) << name << " occurs twice";
  return hashes;
}

// A test of its own for each instruction set, so that ctest runs them in parallel.
class GoldenOf : public testing::TestWithParam<std::string> {};

std::vector<std::string> names_of_fused_sets() {
  std::vector<std::string> names;
  for (const kernels::KernelTable* table : fused_instruction_sets()) names.emplace_back(table->name);
  return names.empty() ? std::vector<std::string>{"avx2"} : names;
}

TEST_P(GoldenOf, FusedInstructionSetReproducesEveryBit) {
  const auto tables = fused_instruction_sets();
  const auto table = std::ranges::find(tables, GetParam(), &kernels::KernelTable::name);
  if (table == tables.end()) GTEST_SKIP() << "processor lacks " << GetParam();
  if (const char* path = std::getenv("REGARD_GOLDEN_WRITE")) {
    if (table != tables.begin()) return;
    std::ofstream file(path);
    const golden::Lines golden = all_results(**table);
    for (const auto& [name, hash] : golden.lines()) file << name << " " << hash << "\n";
    ASSERT_TRUE(file.flush()) << path;
    return;
  }
  const auto expected = pinned();
  EXPECT_GE(expected.size(), 200u);
  const golden::Lines golden = all_results(**table);
  int faults = 0;
  for (const auto& [name, hash] : golden.lines()) {
    const auto line = expected.find(name);
    if (line != expected.end() && line->second == hash) continue;
    if (++faults <= 20) {
      ADD_FAILURE() << name << " has hash " << hash << ", expected "
                    << (line == expected.end() ? "no such result" : line->second);
    }
  }
  EXPECT_EQ(faults, 0);
  EXPECT_EQ(golden.lines().size(), expected.size()) << "names that the test does not make, or makes twice";
}
INSTANTIATE_TEST_SUITE_P(Sets, GoldenOf, testing::ValuesIn(names_of_fused_sets()),
                         [](const auto& set) { return set.param; });

// Tests the generator and the hash themselves, so that a mismatch is never caused by the input.
TEST(Golden, GeneratorAndHashAreStable) {
  Random random(1);
  EXPECT_EQ(random.bits(), 0x910a2dec89025cc1u);
  for (int n = 0; n < 1000; ++n) {
    const auto x = golden::number<float>(random);
    EXPECT_LT(std::abs(x), 4);
    EXPECT_EQ(std::ldexp(x, 18), std::nearbyint(std::ldexp(x, 18)));
  }
  golden::Lines golden;
  // FNV-1a 64 of no bytes, and of the four bytes of 1.0f and the canonical NaN.
  golden.add<float>("empty", {});
  golden.add<float>("one", {1.0f});
  golden.add<float>("nan", {-std::numeric_limits<float>::quiet_NaN()});
  golden.add<float>("canonical", {std::bit_cast<float>(0x7fc00000u)});
  EXPECT_EQ(golden.lines()[0].second, "cbf29ce484222325");
  EXPECT_EQ(golden.lines()[1].second, "4b72477f9c5c2f98");
  EXPECT_EQ(golden.lines()[2].second, golden.lines()[3].second);
}

}  // namespace
}  // namespace regard::golden_test
