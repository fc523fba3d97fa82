// SPDX-License-Identifier: Apache-2.0
//
// The instruction set that operators use: REGARD_FORCE_ISA, detection, and the floating-point state of each table.
#include "runtime/isa.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "regard/runtime.h"
#include "support/rejection.h"

namespace regard::isa_test {
namespace {

using kernels::Candidate;
using kernels::KernelTable;

// REGARD_INSTRUCTION_SETS of the build, best last.
std::vector<std::string> built_sets() {
  std::istringstream words(REGARD_BUILT_SETS);
  return {std::istream_iterator<std::string>(words), {}};
}

KernelTable named(const char* name) {
  KernelTable table{};
  table.name = name;
  return table;
}

std::string error_of(const char* forced, std::span<const Candidate> tables) {
  return rejection([&] { kernels::choose_table(forced, tables); });
}

TEST(ChooseTable, TakesTheBestAvailableOrTheForcedOne) {
  const KernelTable plain = named("plain"), wide = named("wide"), wider = named("wider");
  const Candidate tables[] = {{&plain, true}, {&wide, true}, {&wider, false}};
  EXPECT_EQ(&kernels::choose_table(nullptr, tables), &wide);
  EXPECT_EQ(&kernels::choose_table("plain", tables), &plain);
  EXPECT_EQ(&kernels::choose_table("wide", tables), &wide);
}

TEST(ChooseTable, TakesASlowerOneByNameOnly) {
  const KernelTable plain = named("plain"), wide = named("wide"), wider = named("wider");
  const Candidate tables[] = {{&plain, true}, {&wide, true}, {&wider, true, true}};
  EXPECT_EQ(&kernels::choose_table(nullptr, tables), &wide);
  EXPECT_EQ(&kernels::choose_table("wider", tables), &wider);
  EXPECT_EQ(error_of("mmx", tables),
            "REGARD_FORCE_ISA is \"mmx\", which is not an instruction set of this build; expected one of: plain, wide, "
            "wider");
}

TEST(ChooseTable, ErrorListsValidNames) {
  const KernelTable plain = named("plain"), wide = named("wide"), wider = named("wider");
  const Candidate tables[] = {{&plain, true}, {&wide, true}, {&wider, false}};
  EXPECT_EQ(error_of("wider", tables),
            "REGARD_FORCE_ISA is \"wider\", which this processor cannot run; expected one of: plain, wide");
  for (const char* unknown : {"", "Wide", "wide ", "sse9"}) {
    EXPECT_EQ(error_of(unknown, tables),
              "REGARD_FORCE_ISA is \"" + std::string(unknown) +
                  "\", which is not an instruction set of this build; expected one of: plain, "
                  "wide");
  }
}

// Restores the environment and the choice.
class ForcedIsa : public testing::Test {
 protected:
  void SetUp() override {
    const char* text = std::getenv("REGARD_FORCE_ISA");
    if (text != nullptr) before_ = text;
  }
  void TearDown() override {
    before_.empty() ? unsetenv("REGARD_FORCE_ISA") : setenv("REGARD_FORCE_ISA", before_.c_str(), 1);
    kernels::set_active(nullptr);
  }
  void force(const char* name) {
    setenv("REGARD_FORCE_ISA", name, 1);
    kernels::set_active(nullptr);
  }

 private:
  std::string before_;
};

TEST_F(ForcedIsa, EveryAvailableOneCanBeForced) {
  for (int i = 0; i < kernels::num_available(); ++i) {
    force(kernels::available(i).name);
    EXPECT_EQ(&kernels::active(), &kernels::available(i));
    EXPECT_EQ(active_instruction_set(), kernels::available(i).name);
  }
}

TEST_F(ForcedIsa, UnknownNameFailsEveryTime) {
  force("mmx");
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(kernels::active(), std::invalid_argument);
    EXPECT_THROW(active_instruction_set(), std::invalid_argument);
    EXPECT_THROW(instruction_sets(), std::invalid_argument);
  }
  setenv("REGARD_FORCE_ISA", "generic", 1);
  EXPECT_EQ(active_instruction_set(), "generic");
}

TEST_F(ForcedIsa, ChoiceIsMadeOnce) {
  force("generic");
  EXPECT_EQ(active_instruction_set(), "generic");
  setenv("REGARD_FORCE_ISA", "mmx", 1);
  EXPECT_EQ(active_instruction_set(), "generic");
}

TEST_F(ForcedIsa, ListsEverySetBestLastWithOneActive) {
  force("generic");
  const std::vector<InstructionSet> sets = instruction_sets();
  const std::vector<std::string> names = built_sets();
  ASSERT_EQ(sets.size(), names.size());
  for (std::size_t i = 0; i < sets.size(); ++i) {
    EXPECT_EQ(sets[i].name, names[i]);
    EXPECT_EQ(sets[i].active, i == 0);
    EXPECT_EQ(sets[i].fused_multiply_add, i > 0);
  }
  EXPECT_TRUE(sets[0].available);
}

// The kernel's list of CPU features serves as an independent source for what the processor and operating system
// support.
TEST(Detection, AgreesWithProcCpuinfo) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  bool intel = false;
  while (std::getline(file, line) && !line.starts_with("flags")) intel |= line.ends_with("GenuineIntel");
  std::istringstream words(line);
  std::set<std::string> flags;
  for (std::string word; words >> word;) flags.insert(word);
  ASSERT_TRUE(flags.contains("sse2"));
  const auto has = [&flags](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (!flags.contains(name)) return false;
    }
    return true;
  };
  const bool avx2 = has({"sse4_2", "popcnt", "avx", "avx2", "bmi1", "bmi2", "fma", "f16c", "movbe", "abm"});
  const bool avx512 = avx2 && has({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"});
  const bool avx512_bf16 = avx512 && has({"avx512_bf16"});
  const std::map<std::string, bool> expected{{"generic", true},
                                             {"avx2", avx2},
                                             {"avx512", avx512},
                                             {"avx512_bf16", avx512_bf16},
                                             {"amx_bf16", avx512 && has({"amx_tile", "amx_bf16"})}};
  const std::vector<std::string> names = built_sets();
  const std::span<const Candidate> candidates = kernels::candidates();
  ASSERT_EQ(candidates.size(), names.size());
  int num_available = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(candidates[i].table->name, names[i]);
    EXPECT_EQ(candidates[i].available, expected.at(names[i])) << names[i];
    EXPECT_EQ(candidates[i].slower, intel && names[i] == "avx512_bf16") << names[i];
    num_available += expected.at(names[i]) ? 1 : 0;
  }
  EXPECT_EQ(kernels::num_available(), num_available);
  EXPECT_THROW(kernels::available(kernels::num_available()), std::invalid_argument);
  EXPECT_THROW(kernels::available(-1), std::invalid_argument);
}

TEST(FloatingPointState, EveryTableSetsDefaultsAndRestoresRoundingAndFlags) {
  const volatile float five = 5.0f, three = 3.0f, smallest = 1.17549435e-38f;
  for (int i = 0; i < kernels::num_available(); ++i) {
    const KernelTable& table = kernels::available(i);
    std::fesetround(FE_UPWARD);
    std::feclearexcept(FE_ALL_EXCEPT);
    std::feraiseexcept(FE_OVERFLOW);
    const float upward = five / three;

    const std::uint64_t state = table.enter_floating_point();
    const float nearest = five / three;
    const float subnormal = smallest / three;
    table.leave_floating_point(state);

    EXPECT_EQ(std::fetestexcept(FE_UNDERFLOW | FE_OVERFLOW), FE_OVERFLOW) << table.name;
    EXPECT_EQ(five / three, upward) << table.name;
    std::fesetround(FE_TONEAREST);
    std::feclearexcept(FE_ALL_EXCEPT);
    EXPECT_EQ(nearest, 0x1.aaaaaap+0f) << table.name;
    EXPECT_EQ(upward, 0x1.aaaaacp+0f) << table.name;
    EXPECT_GT(subnormal, 0.0f) << table.name;
  }
}

}  // namespace
}  // namespace regard::isa_test
