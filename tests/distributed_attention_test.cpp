// SPDX-License-Identifier: Apache-2.0
//
// Attention over several ranks, which are threads here: random calls with every option, random shares of rows and keys,
// some of them empty. Every result must have the bits of one machine. What is sent is compared with the plan, and
// mistakes and failures with what every rank must say.
#include "regard/distributed/attention.h"
#include "support/attention_cases.h"
#include "support/attention_checks.h"
#include "support/backward_cases.h"
#include "support/same_bits.h"
#include "support/thread_ranks.h"

namespace regard {
namespace {

constexpr std::uint64_t kFirstSeed = 20261126;

std::vector<Index> random_starts(Random& random, Index length, Index ranks) {
  std::vector<Index> starts{0};
  for (Index r = 1; r < ranks; ++r) starts.push_back(random.integer(0, length));
  starts.push_back(length);
  std::sort(starts.begin(), starts.end());
  return starts;
}

// The rows or keys of a rank, on axis 2.
template <class View>
View share(View view, const std::vector<Index>& starts, Index rank) {
  if (view.absent()) return view;
  const Index first = starts[static_cast<std::size_t>(rank)];
  view.data += first * view.strides[2];
  view.shape[2] = starts[static_cast<std::size_t>(rank) + 1] - first;
  return view;
}
InputView<4> share_of(InputView<4> view, const std::vector<Index>& starts, Index rank) {
  if (view.absent() || view.shape[2] != starts.back()) return view;
  const Index first = starts[static_cast<std::size_t>(rank)];
  view.data = static_cast<const std::byte*>(view.data) + first * view.strides[2] * type_bytes(view.type);
  view.shape[2] = starts[static_cast<std::size_t>(rank) + 1] - first;
  return view;
}
AttentionOptions options_of(const AttentionOptions& options, const std::vector<Index>& row_starts, Index rank) {
  AttentionOptions own = options;
  own.mask = share_of(options.mask, row_starts, rank);
  own.bias = share_of(options.bias, row_starts, rank);
  return own;
}

void expect_success(const std::vector<std::exception_ptr>& thrown) {
  for (std::size_t r = 0; r < thrown.size(); ++r) EXPECT_EQ(text_of(thrown[r]), "") << "rank " << r;
}

template <class T>
void run_forward_case(std::uint64_t seed) {
  const AttentionCase<T> call = random_attention_case<T>(seed);
  if (call.S() > 500) return;
  Random random(seed);
  const Index num_ranks = random.integer(2, 8);
  const std::vector<Index> rows = random_starts(random, call.L(), num_ranks);
  const std::vector<Index> keys = random_starts(random, call.S(), num_ranks);
  SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(num_ranks) + " ranks: " + call.text);
  AttentionArrays<T> expected = AttentionArrays<T>::dense(call.B(), call.H(), call.L(), call.S(), call.Dv());
  AttentionArrays<T> got = AttentionArrays<T>::dense(call.B(), call.H(), call.L(), call.S(), call.Dv());
  attention_forward(call.query.view(), call.key.view(), call.value.view(), expected.views(), call.options);
  ThreadNetwork network(num_ranks);
  expect_success(on_ranks(network, [&](Ranks& ranks) {
    const Index r = ranks.rank();
    attention_forward(share(call.query.view(), rows, r), share(call.key.view(), keys, r),
                      share(call.value.view(), keys, r),
                      {.context = share(got.context.view(), rows, r),
                       .row_max = share(got.row_max->view(), rows, r),
                       .row_sum = share(got.row_sum->view(), rows, r),
                       .lse = share(got.lse->view(), rows, r),
                       .weights = share(got.weights->view(), rows, r),
                       .sink_weights = share(got.sink_weights->view(), rows, r)},
                      options_of(call.options, rows, r), ranks, {.num_threads = 1});
  }));
  EXPECT_TRUE(network.is_empty());
  EXPECT_TRUE(same_bits(bits_of(got.context), bits_of(expected.context)));
  EXPECT_TRUE(same_bits(bits_of(*got.weights), bits_of(*expected.weights)));
  EXPECT_TRUE(same_bits(bits_of(*got.row_max), bits_of(*expected.row_max)));
  EXPECT_TRUE(same_bits(bits_of(*got.row_sum), bits_of(*expected.row_sum)));
  EXPECT_TRUE(same_bits(bits_of(*got.lse), bits_of(*expected.lse)));
  EXPECT_TRUE(same_bits(bits_of(*got.sink_weights), bits_of(*expected.sink_weights)));
}

TEST(DistributedAttention, ForwardHasTheBitsOfOneMachine) {
  for (std::uint64_t n = 0; n < num_random_calls(120); ++n) {
    run_forward_case<float>(kFirstSeed + n);
    run_forward_case<double>(kFirstSeed + n);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace regard
