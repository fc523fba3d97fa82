// SPDX-License-Identifier: Apache-2.0
//
// Ranks, which are threads here: sums with the same bits for any number of ranks, mistakes that all ranks report, and
// ranks that fail, leave or fall silent while others wait for them.
#include "regard/distributed/ranks.h"

#include "regard/distributed/attention.h"
#include "support/arrays.h"
#include "support/same_bits.h"
#include "support/test_size.h"
#include "support/thread_ranks.h"

namespace regard::ranks_test {
namespace {

using namespace std::chrono_literals;

template <class T>
class SumInOrder : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(SumInOrder, Types);

TYPED_TEST(SumInOrder, HasTheSameBitsForAnyNumberOfRanks) {
  using T = TypeParam;
  const Index num_terms = 7, size = 150'000;  // more than two pieces
  Random random(1);
  std::vector<T> terms;
  for (Index i = 0; i < num_terms * size; ++i) terms.push_back(static_cast<T>(random.normal()));
  std::vector<T> expected(static_cast<std::size_t>(size));
  for (Index n = 0; n < num_terms; ++n) {
    for (Index j = 0; j < size; ++j)
      expected[static_cast<std::size_t>(j)] += terms[static_cast<std::size_t>(n * size + j)];
  }
  for (const std::vector<Index>& starts :
       {std::vector<Index>{0, 7}, {0, 3, 7}, {0, 0, 5, 7}, {0, 1, 2, 7, 7}, {0, 1, 2, 3, 4, 5, 6, 7, 7}}) {
    const auto num_ranks = static_cast<Index>(starts.size()) - 1;
    ThreadNetwork network(num_ranks);
    const auto thrown = on_ranks(network, [&](Ranks& ranks) {
      const auto r = static_cast<std::size_t>(ranks.rank());
      const TensorView<const T, 2> own(terms.data() + starts[r] * size, {starts[r + 1] - starts[r], size});
      std::vector<T> sum(static_cast<std::size_t>(size), static_cast<T>(5));
      sum_in_order(own, std::span<T>(sum), ranks);
      EXPECT_TRUE(same_bits(bits_of(sum), bits_of(expected))) << num_ranks << " ranks";
    });
    for (const auto& error : thrown) EXPECT_EQ(text_of(error), "");
    for (Index r = 0; r < num_ranks; ++r)
      EXPECT_LE(network.received(r), 2 * size * static_cast<Index>(sizeof(T)) + 2000 * num_ranks);
  }
}

// What every rank of a call throws.
std::vector<std::string> texts_of(Index num_ranks, const std::function<void(Ranks&)>& run,
                                  const RanksOptions& options = {}, bool may_use_thread = true) {
  ThreadNetwork network(num_ranks);
  std::vector<std::string> texts;
  for (const auto& error : on_ranks(network, run, options, may_use_thread)) texts.push_back(text_of(error));
  return texts;
}
std::vector<std::string> all(Index num_ranks, const std::string& text) {
  return std::vector<std::string>(static_cast<std::size_t>(num_ranks), text);
}

void attend(Ranks& ranks, const AttentionOptions& options = {}, Index rows = 5, Index size = 4) {
  Tensor<float, 4> query({1, 2, rows, size}), key({1, 2, 6, 4}), context({1, 2, rows, 4});
  attention_forward(query, key, key, {.context = context}, options, ranks, {.num_threads = 1});
}

TEST(Ranks, AMistakeIsReportedByAllRanks) {
  EXPECT_EQ(texts_of(3, [](Ranks& ranks) { attend(ranks, {.scale = ranks.rank() == 2 ? 0.5 : 0.25}); }),
            all(3, "attention_forward: rank 2: scale is 0.5; expected 0.25, as on rank 0"));
  EXPECT_EQ(texts_of(3, [](Ranks& ranks) { attend(ranks, {.causal = ranks.rank() == 1}); }),
            all(3, "attention_forward: rank 1: causal is true; expected false, as on rank 0"));
  EXPECT_EQ(texts_of(2, [](Ranks& ranks) { attend(ranks, {.soft_cap = -1.0}); }),
            all(2, "attention_forward: rank 0: soft_cap is -1; expected a positive number"));
  EXPECT_EQ(
      texts_of(3, [](Ranks& ranks) { attend(ranks, {}, 5, ranks.rank() == 1 ? 3 : 4); }),
      all(3, "attention_forward: rank 1: query is float32 (1, 2, …, 3); expected float32 (1, 2, …, 4), as on rank 0"));
  EXPECT_EQ(texts_of(2,
                     [](Ranks& ranks) {
                       Tensor<float, 4> query({1, 2, 3, 4}), context({1, 2, ranks.rank() == 1 ? 4 : 3, 4});
                       attention_forward(query, query, query, {.context = context}, {}, ranks);
                     }),
            all(2, "attention_forward: rank 1: context has shape (1, 2, 4, 4); expected (1, 2, 3, 4)"));
  EXPECT_EQ(texts_of(2,
                     [](Ranks& ranks) {
                       std::vector<float> sum(ranks.rank() == 1 ? 4 : 5);
                       ranks.rank() == 0 ? attend(ranks) : sum_in_order({}, std::span<float>(sum), ranks);
                     }),
            all(2, "rank 1 calls sum_in_order; expected attention_forward, which rank 0 calls"));
}

TEST(Ranks, ACallIsPossibleAfterAMistake) {
  for (const bool may_use_thread : {true, false}) {
    EXPECT_EQ(texts_of(
                  3,
                  [](Ranks& ranks) {
                    EXPECT_THROW(attend(ranks, {.dropout = 2}), InvalidArgument);
                    attend(ranks);
                  },
                  {}, may_use_thread),
              all(3, ""));
  }
}

TEST(Ranks, ACallThatOneRankCannotMakeIsRejectedOnAll) {
  EXPECT_EQ(texts_of(3,
                     [](Ranks& ranks) {
                       if (ranks.rank() == 1) reject_call("attention_forward", "there is no file", ranks);
                       attend(ranks);
                     }),
            all(3, "attention_forward: rank 1: there is no file"));
  EXPECT_EQ(texts_of(1, [](Ranks& ranks) { reject_call("attention_forward", "there is no file", ranks); }),
            all(1, "attention_forward: rank 0: there is no file"));
}

TEST(Ranks, NumbersAreExchangedBeforeACall) {
  EXPECT_EQ(texts_of(3,
                     [](Ranks& ranks) {
                       EXPECT_EQ(exchange_numbers("attend", 10 + ranks.rank(), ranks),
                                 (std::vector<Index>{10, 11, 12}));
                       ranks.rank() == 2 ? reject_call("attend", "no key", ranks)
                                         : static_cast<void>(exchange_numbers("attend", 0, ranks));
                     }),
            all(3, "attend: rank 2: no key"));
}

TEST(Ranks, ARankThatLeavesEndsTheCallsOfTheOthers) {
  EXPECT_EQ(texts_of(3,
                     [](Ranks& ranks) {
                       attend(ranks);
                       if (ranks.rank() != 1) attend(ranks);
                     }),
            (std::vector<std::string>{"rank 1 of 3 has left: it makes no further calls", "",
                                      "rank 1 of 3 has left: it makes no further calls"}));
  EXPECT_EQ(texts_of(3,
                     [](Ranks& ranks) {
                       if (ranks.rank() == 0) throw std::runtime_error("no file");
                       attend(ranks);
                     }),
            (std::vector<std::string>{"no file", "rank 0 of 3 has left because of an exception",
                                      "rank 0 of 3 has left because of an exception"}));
}

// Rank 2 hears from rank 0 that rank 1 has left, before the message in which rank 1 says so arrives. Rank 1 waits until
// both others have answered that message.
TEST(Ranks, ARankThatHasLeftIsReleasedBeforeItsMessageArrives) {
  constexpr int kControlTag = 1;
  for (const bool may_use_thread : {true, false}) {
    ThreadNetwork network(3);
    network.hold(1, 2, kControlTag);
    const auto begin = std::chrono::steady_clock::now();
    const auto thrown = on_ranks(
        network,
        [](Ranks& ranks) {
          attend(ranks);
          if (ranks.rank() != 1) attend(ranks);
        },
        {.timeout = 60s}, may_use_thread);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
    EXPECT_EQ(text_of(thrown[1]), "");
    for (const std::size_t r : {std::size_t{0}, std::size_t{2}})
      EXPECT_EQ(text_of(thrown[r]), "rank 1 of 3 has left: it makes no further calls");
  }
}

TEST(Ranks, ARankThatFailsWithinACallNamesItself) {
  const auto texts = texts_of(3, [](Ranks& ranks) {
    Tensor<float, 4> query({1, 2, 5, 4}), context({1, 2, 5, 4});
    Runtime runtime;
    if (ranks.rank() == 1) runtime.progress = [](Index, Index) { throw std::runtime_error("the screen broke"); };
    attention_forward(query, query, query, {.context = context}, {}, ranks, runtime);
    // The others may have finished; the next call fails.
    attention_forward(query, query, query, {.context = context}, {}, ranks);
  });
  EXPECT_EQ(texts[1], "the screen broke");
  for (const std::size_t r : {std::size_t{0}, std::size_t{2}}) {
    EXPECT_TRUE(texts[r] == "rank 1 of 3 failed: the screen broke" ||
                texts[r] == "rank 1 of 3 has left because of an exception")
        << texts[r];
  }
}

TEST(Ranks, ACancelledRankNamesItself) {
  std::stop_source source;
  source.request_stop();
  const auto texts = texts_of(3, [&](Ranks& ranks) {
    Tensor<float, 4> query({1, 2, 5, 4}), context({1, 2, 5, 4});
    const Runtime runtime{.stop = ranks.rank() == 2 ? source.get_token() : std::stop_token()};
    attention_forward(query, query, query, {.context = context}, {}, ranks, runtime);
  });
  EXPECT_EQ(texts[2], "a call over several ranks was stopped");
  for (const std::size_t r : {std::size_t{0}, std::size_t{1}})
    EXPECT_EQ(texts[r], "rank 2 of 3 failed: the call was cancelled");
}

TEST(Ranks, ASilentRankIsNamedAfterTheTimeout) {
  for (const bool may_use_thread : {true, false}) {
    ThreadNetwork network(4);
    const auto thrown = on_ranks(
        network,
        [&](Ranks& ranks) {
          attend(ranks);
          if (ranks.rank() == 3) network.cut(3);
          const auto begin = std::chrono::steady_clock::now();
          try {
            attend(ranks);
          } catch (const RankError& error) {
            const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
            EXPECT_GT(waited, 0.2s);
            EXPECT_LT(waited, 10s);
            EXPECT_TRUE(ranks.rank() == 3 || error.rank() == 3);
            EXPECT_EQ(error_code(error), ErrorCode::rank_failed);
            // Nothing can be done with these ranks any more.
            EXPECT_THROW(attend(ranks), RankError);
            throw;
          }
        },
        {.timeout = 0.3s}, may_use_thread);
    for (std::size_t r = 0; r < 3; ++r)
      EXPECT_EQ(text_of(thrown[r]), "rank 3 of 4 does not respond: nothing received for 0.3 s");
  }
}

// Sums that travel from rank to rank: a rank falls silent at each of its messages in turn, and all others name it. Only
// after its last messages may they have everything that they need; the call that follows then fails.
void expect_named_at_every_message(Index num_ranks, Index silent, const std::function<void(Ranks&)>& call) {
  ThreadNetwork whole(num_ranks);
  for (const auto& error : on_ranks(whole, call)) ASSERT_EQ(text_of(error), "");
  const Index num_messages = whole.sent(silent);
  ASSERT_GE(num_messages, 10);
  for (Index message = 0; message < num_messages; message += test_size<Index>(3, 15)) {
    ThreadNetwork network(num_ranks);
    network.cut_at(silent, message);
    const auto thrown = on_ranks(
        network,
        [&](Ranks& ranks) {
          call(ranks);
          attend(ranks);
        },
        {.timeout = 0.3s}, message % 2 == 0);
    const std::string number = std::to_string(silent);
    for (Index r = 0; r < num_ranks; ++r) {
      if (r == silent) continue;
      EXPECT_EQ(text_of(thrown[static_cast<std::size_t>(r)]),
                "rank " + number + " of " + std::to_string(num_ranks) + " does not respond: nothing received for 0.3 s")
          << "rank " << r << ", message " << message << " of " << num_messages;
    }
  }
}

TEST(Ranks, ARankThatFallsSilentWithinTheSumsOfKeyGradientsIsNamed) {
  const auto backward = [](Ranks& ranks) {
    const Index own = ranks.rank() == 0 ? 60 : 120;
    const Tensor<float, 4> query({1, 2, own, 8}), key({1, 1, 1200, 8});
    Tensor<float, 3> row_max({1, 2, own}), row_sum(row_max);
    std::fill_n(row_sum.data(), row_sum.size(), 1.0F);
    Tensor<float, 4> grad_key(key.shape());
    attention_backward(query, key, key,
                       {.context = query, .row_max = row_max, .row_sum = row_sum, .grad_context = query},
                       {.grad_key = grad_key}, {}, ranks, {.num_threads = 1});
  };
  for (Index silent = 0; silent < 3; ++silent) expect_named_at_every_message(3, silent, backward);
}

TEST(Ranks, ARankThatFallsSilentWithinAnOrderedSumIsNamed) {
  const auto sum = [](Ranks& ranks) {
    constexpr Index kSize = 400'000;  // several pieces
    const std::vector<float> terms(static_cast<std::size_t>(2 * kSize), 1.0F);
    std::vector<float> total(static_cast<std::size_t>(kSize));
    sum_in_order(TensorView<const float, 2>(terms.data(), {2, kSize}), std::span<float>(total), ranks);
  };
  for (Index silent = 0; silent < 3; ++silent) expect_named_at_every_message(3, silent, sum);
}

// With a communication thread, a rank that computes is not silent.
TEST(Ranks, ARankThatIsBusyIsNotSilent) {
  EXPECT_EQ(texts_of(3,
                     [](Ranks& ranks) {
                       if (ranks.rank() == 1) std::this_thread::sleep_for(1s);
                       attend(ranks);
                     },
                     {.timeout = 0.3s}),
            all(3, ""));
}

TEST(Ranks, ASingleRankStartsNoThread) {
  Ranks ranks;
  EXPECT_EQ(ranks.num_ranks(), 1);
  EXPECT_EQ(ranks.rank(), 0);
  attend(ranks);
  EXPECT_THROW(Ranks(nullptr, {.timeout = 0s}), InvalidArgument);
}

}  // namespace
}  // namespace regard::ranks_test
