// SPDX-License-Identifier: Apache-2.0
//
// Ten thousand random calls each for float and double: shapes, layouts, options and poison of attention_cases.h, run on
// every instruction set with outputs in random layouts, and compared with reference.h within the bounds of
// docs/reference/semantics.md section 4. No byte between an output's elements may change, and attention_weights of
// chosen rows must match all weights bit by bit. A failure prints the seed that reproduces the call.
#include "support/attention_cases.h"
#include "support/attention_checks.h"

namespace regard::attention_random_test {
namespace {

constexpr std::uint64_t kFirstSeed = 20260701;
constexpr std::uint64_t kShards = 20;

std::uint64_t num_calls() {
  const std::uint64_t calls = num_random_calls(10'000);
  // With fewer calls, a shard would have nothing to do.
  EXPECT_GE(calls, kShards);
  return calls;
}

template <class T>
AttentionArrays<T> random_outputs(Random& random, const AttentionCase<T>& call) {
  AttentionArrays<T> outputs;
  const std::array<Index, 3> rows{call.B(), call.H(), call.L()};
  outputs.context = Array<T, 4>({rows[0], rows[1], rows[2], call.Dv()}, random_layout<4>(random, true));
  for (auto* output : {&outputs.row_max, &outputs.row_sum, &outputs.lse, &outputs.sink_weights}) {
    if (random.chance(0.6)) *output = Array<T, 3>(rows, random_layout<3>(random, true));
  }
  if (random.chance(0.4)) {
    outputs.weights = Array<T, 4>({rows[0], rows[1], rows[2], call.S()}, random_layout<4>(random, true));
  }
  return outputs;
}

// Weights and scores of chosen rows: the weights match all weights bit by bit, the scores match the reference.
template <class T>
void check_chosen_rows(Random& random, const AttentionCase<T>& call, AttentionArrays<T>& outputs,
                       const reference::Attention<T>& expected) {
  std::vector<RowRange> ranges;
  std::vector<Index> rows;
  for (Index n = random.integer(1, 3); n > 0; --n) {
    const Index begin = random.integer(0, call.L()), end = random.integer(begin, call.L());
    ranges.push_back({begin, end});
    for (Index i = begin; i < end; ++i) rows.push_back(i);
  }
  const std::array<Index, 4> shape{call.B(), call.H(), static_cast<Index>(rows.size()), call.S()};
  Array<T, 4> weights(shape, random_layout<4>(random, true)), scores(shape, random_layout<4>(random, true));
  attention_weights(call.query.view(), call.key.view(),
                    {.row_max = outputs.row_max->view(), .row_sum = outputs.row_sum->view(), .rows = ranges},
                    weights.view(), call.options);
  attention_weights(call.query.view(), call.key.view(), {.rows = ranges, .kind = WeightsKind::scores}, scores.view(),
                    call.options);
  int faults = 0;
  weights.for_each_index([&](const std::array<Index, 4>& at) {
    const std::array<Index, 4> whole{at[0], at[1], rows[static_cast<std::size_t>(at[2])], at[3]};
    const T weight = weights.get(at), of_whole = outputs.weights->get(whole);
    const Index r = expected.row(whole[0], whole[1], whole[2]);
    const auto score = expected.scores[static_cast<std::size_t>(r * call.S() + at[3])];
    if (!identical(weight, of_whole) && ++faults < 6) {
      ADD_FAILURE() << "weight of row " << whole[2] << ", key " << at[3] << ": " << weight << ", whole " << of_whole;
    }
    if (!agrees<T>(scores.get(at), score, expected.score_bound(r)) && ++faults < 6) {
      ADD_FAILURE() << "score of row " << whole[2] << ", key " << at[3] << ": " << scores.get(at) << ", expected "
                    << score;
    }
  });
  EXPECT_TRUE(weights.surroundings_untouched());
  EXPECT_TRUE(scores.surroundings_untouched());
}

template <class T>
void run_case(std::uint64_t seed) {
  const AttentionCase<T> call = random_attention_case<T>(seed);
  SCOPED_TRACE("seed " + std::to_string(seed) + ": " + call.text);
  const auto expected = reference::attention<T>(call.query.view(), call.key.view(), call.value.view(), call.options);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    Random random(~seed);
    AttentionArrays<T> outputs = random_outputs<T>(random, call);
    attention_forward(call.query.view(), call.key.view(), call.value.view(), outputs.views(), call.options,
                      {.num_threads = static_cast<int>(random.integer(1, 2))});
    matches_reference(outputs, expected);
    if (outputs.weights && outputs.row_max && outputs.row_sum) check_chosen_rows(random, call, outputs, expected);
    EXPECT_TRUE(outputs.context.surroundings_untouched());
    EXPECT_TRUE(!outputs.weights || outputs.weights->surroundings_untouched());
    for (auto* rows : {&outputs.row_max, &outputs.row_sum, &outputs.lse, &outputs.sink_weights}) {
      EXPECT_TRUE(!*rows || (*rows)->surroundings_untouched());
    }
  });
}

class RandomCalls : public testing::TestWithParam<std::uint64_t> {
 protected:
  template <class T>
  void run_shard() {
    const std::uint64_t calls = num_calls();
    for (std::uint64_t n = GetParam(); n < calls; n += kShards) run_case<T>(kFirstSeed + n);
  }
};

TEST_P(RandomCalls, FloatMatchesTheReference) { run_shard<float>(); }
TEST_P(RandomCalls, DoubleMatchesTheReference) { run_shard<double>(); }

INSTANTIATE_TEST_SUITE_P(Shard, RandomCalls, testing::Range(std::uint64_t{0}, kShards));

}  // namespace
}  // namespace regard::attention_random_test
