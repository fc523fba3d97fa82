// SPDX-License-Identifier: Apache-2.0
//
// plan(): the workspace that it reports is exactly the peak that the call then uses, for every operator, hundreds of
// random calls, threads and types, and the call takes nothing else from operator new; a plan touches no output, and
// needs no memory however large the call.
// Read next: attention_memory_test.cpp.
#include "regard/plan.h"
#include "regard/adamw.h"
#include "regard/attention_backward.h"
#include "regard/attention_statistics.h"
#include "regard/cross_entropy.h"
#include "regard/embedding.h"
#include "regard/kv_cache.h"
#include "regard/layer_norm.h"
#include "regard/linear.h"
#include "regard/multi_head_backward.h"
#include "regard/rms_norm.h"
#include "regard/rotary.h"
#include "support/attention_cases.h"
#include "support/attention_checks.h"
#include "support/counted_news.h"
#include "support/counting_memory.h"
#include "support/rejection.h"

namespace regard::plan_test {
namespace {

using Call = std::function<void(const Runtime&)>;

// Plans the call, runs it, and compares the memory that it used.
Plan expect_to_the_byte(const Call& call, Runtime runtime = {}) {
  const Plan made = plan(call, runtime);
  CountingMemory counting;
  runtime.workspace = &counting;
  const std::size_t before = num_news;
  call(runtime);
  EXPECT_EQ(num_news - before, 0u);
  EXPECT_EQ(made.workspace_bytes, counting.largest);
  EXPECT_EQ(counting.in_use, 0u);
  return made;
}

template <class T>
class Plans : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Plans, Types);

TYPED_TEST(Plans, RandomAttentionCalls) {
  using T = TypeParam;
  for (std::uint64_t seed = 0; seed < num_random_calls(400); ++seed) {
    const AttentionCase<T> call = random_attention_case<T>(seed);
    SCOPED_TRACE(call.text);
    AttentionArrays<T> outputs =
        AttentionArrays<T>::dense(call.B(), call.H(), call.L(), call.S(), call.Dv(), seed % 3 == 0);
    const Runtime runtime{.num_threads = static_cast<int>(seed % 5)};
    AttentionFingerprint fingerprint;
    AttentionOutputs views = outputs.views();
    views.fingerprint = &fingerprint;
    expect_to_the_byte(
        [&](const Runtime& r) {
          attention_forward(call.query.view(), call.key.view(), call.value.view(), views, call.options, r);
        },
        runtime);
    Array<T, 4> grad_query(call.query.view().shape), grad_key(call.key.view().shape),
        grad_value(call.value.view().shape);
    expect_to_the_byte(
        [&](const Runtime& r) {
          attention_backward(
              call.query.view(), call.key.view(), call.value.view(),
              {.context = outputs.context.view(),
               .row_max = outputs.row_max->view(),
               .row_sum = outputs.row_sum->view(),
               .grad_context = outputs.context.view(),
               .fingerprint = fingerprint},
              AttentionGradients{
                  .grad_query = grad_query.view(), .grad_key = grad_key.view(), .grad_value = grad_value.view()},
              call.options, r);
        },
        runtime);
    Array<T, 3> mass({call.B(), call.H(), call.S()});
    expect_to_the_byte(
        [&](const Runtime& r) {
          attention_columns(call.query.view(), call.key.view(),
                            {.row_max = outputs.row_max->view(), .row_sum = outputs.row_sum->view()},
                            {.key_mass = mass.view()}, call.options, r);
        },
        runtime);
    Array<T, 2> entropy({call.B(), call.H()});
    expect_to_the_byte(
        [&](const Runtime& r) {
          attention_with_statistics(call.query.view(), call.key.view(), call.value.view(),
                                    {.context = outputs.context.view()}, {.head_entropy = entropy.view()}, call.options,
                                    r);
        },
        runtime);
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

TYPED_TEST(Plans, LongHeadsAndManyHeads) {
  using T = TypeParam;
  struct Shape {
    Index B, H, Hkv, L, S;
  };
  for (const Shape& s : {Shape{1, 1, 1, 1, 5000}, Shape{2, 8, 2, 1, 3000}, Shape{1, 64, 64, 128, 128},
                         Shape{4, 16, 4, 70, 70}, Shape{1, 2, 1, 3000, 3000}}) {
    auto inputs = AttentionInputs<T>::normal(1, s.B, s.H, s.Hkv, s.L, s.S, 16, 16);
    Array<T, 4> context({s.B, s.H, s.L, 16});
    AttentionOptions options;
    options.causal = true;
    options.query_offset = QueryAlignment::bottom_right;
    for (int threads = 1; threads < 4; ++threads) {
      SCOPED_TRACE(testing::Message() << "H " << s.H << " L " << s.L << " S " << s.S << ", " << threads << " threads");
      const Plan made = expect_to_the_byte(
          [&](const Runtime& r) {
            attention_forward(inputs.query.view(), inputs.key.view(), inputs.value.view(), {.context = context.view()},
                              options, r);
          },
          {.num_threads = threads});
      ASSERT_EQ(made.operators.size(), 1u);
      EXPECT_EQ(made.operators[0].name, "attention_forward");
      // One row of 5000 keys is 160,000 products, too few for a second thread.
      EXPECT_EQ(made.operators[0].num_threads, s.S == 5000 ? 1 : threads);
      EXPECT_FALSE(made.operators[0].strategy.empty());
      // Row i attends to keys 0 … i + S − L.
      const double pairs = static_cast<double>(s.L) * static_cast<double>(2 * (s.S - s.L) + s.L + 1) / 2;
      EXPECT_EQ(made.operators[0].operations, 2 * pairs * static_cast<double>(s.B * s.H * 32));
      const double bytes = static_cast<double>(16 * s.B * (2 * s.H * s.L + 2 * s.Hkv * s.S)) * sizeof(T);
      EXPECT_EQ(made.operators[0].bytes, bytes);
    }
  }
}

TYPED_TEST(Plans, Decoding) {
  using T = TypeParam;
  const KvCacheShape shape{
      .num_sequences = 3, .num_kv_heads = 2, .head_size = 16, .value_head_size = 16, .capacity = 4096};
  KvCache<T> cache(shape);
  auto tokens = AttentionInputs<T>::normal(3, 1, 2, 2, 1, 4000, 16, 16);
  const TensorView<const T, 4> keys = std::as_const(tokens.key).view(), values = std::as_const(tokens.value).view();
  for (Index s = 0; s < 3; ++s) {
    const Index length = 4000 - 900 * s;
    cache.append(s, {keys.data, {2, length, 16}, {keys.strides[1], keys.strides[2], keys.strides[3]}},
                 {values.data, {2, length, 16}, {values.strides[1], values.strides[2], values.strides[3]}});
  }
  for (Index queries : {1, 7, 40}) {
    auto inputs = AttentionInputs<T>::normal(4, 3, 8, 2, queries, 1, 16, 16);
    Array<T, 4> context({3, 8, queries, 16});
    AttentionOptions options;
    options.query_offset = QueryAlignment::bottom_right;
    for (int threads = 1; threads < 4; ++threads) {
      const Plan made = expect_to_the_byte(
          [&](const Runtime& r) {
            attention_decode(inputs.query.view(), cache, {.context = context.view()}, options, r);
          },
          {.num_threads = threads});
      ASSERT_EQ(made.operators.size(), 1u);
      EXPECT_EQ(made.operators[0].name, "attention_decode");
      EXPECT_EQ(made.operators[0].bytes,
                static_cast<double>(sizeof(T)) * 16 * (2 * 9300 * 2 + 2 * 3 * 8 * static_cast<double>(queries)));
      EXPECT_EQ(made.operators[0].operations, 2.0 * (4000 + 3100 + 2200) * static_cast<double>(queries * 8 * 32));
    }
  }
}

TYPED_TEST(Plans, LinearLayersAndBlocks) {
  using T = TypeParam;
  Random random(1);
  auto input = normal_array<T, 2>(random, {300, 48});
  auto parameters = normal_array<T, 2>(random, {48, 130});
  auto bias = normal_array<T, 1>(random, {130});
  Array<T, 2> output({300, 130}), normed({300, 48});
  const Plan linear = expect_to_the_byte(
      [&](const Runtime& r) { linear_forward<T>(input.view(), parameters.view(), bias.view(), output.view(), r); });
  ASSERT_EQ(linear.operators.size(), 1u);
  EXPECT_EQ(linear.operators[0].operations, 2.0 * 300 * 48 * 130);
  const PackedLinear<T> packed(parameters.view());
  expect_to_the_byte([&](const Runtime& r) {
    linear_forward<T>(input.view(), packed, bias.view(), output.view(), {.activation = Activation::gelu}, r);
  });
  Array<bfloat16, 2> narrow_input({300, 48}), narrow_parameters({48, 130}), narrow_output({300, 130});
  narrow_input.fill([&] { return static_cast<float>(random.normal()); });
  narrow_parameters.fill([&] { return static_cast<float>(random.normal()); });
  expect_to_the_byte([&](const Runtime& r) {
    linear_forward<bfloat16>(narrow_input.view(), narrow_parameters.view(), {}, narrow_output.view(), r);
  });
  auto gain = normal_array<T, 1>(random, {48});
  Array<T, 1> grad_gain({48}), grad_bias({48});
  expect_to_the_byte([&](const Runtime& r) {
    layer_norm_forward<T>(input.view(), {}, gain.view(), gain.view(), normed.view(), 1e-5, r);
  });
  expect_to_the_byte([&](const Runtime& r) {
    layer_norm_backward<T>(input.view(), {}, gain.view(), std::as_const(input).view(),
                           {.grad_input = normed.view(), .grad_gain = grad_gain.view(), .grad_bias = grad_bias.view()},
                           1e-5, r);
  });
  expect_to_the_byte(
      [&](const Runtime& r) { rms_norm_forward<T>(input.view(), {}, gain.view(), normed.view(), 1e-5, r); });
  expect_to_the_byte([&](const Runtime& r) {
    rms_norm_backward<T>(input.view(), {}, gain.view(), std::as_const(input).view(),
                         {.grad_gain = grad_gain.view(), .rows_per_group = 7}, 1e-5, r);
  });
  EXPECT_THROW(plan([&](const Runtime& r) { PackedLinear<T>(parameters.view(), r); }), std::logic_error);
}

TYPED_TEST(Plans, ActivationsAndRotations) {
  using T = TypeParam;
  Random random(2);
  auto input = normal_array<T, 2>(random, {300, 70}), gate = normal_array<T, 2>(random, {300, 70});
  Array<T, 2> output({300, 70}), other({300, 70});
  const Plan forward = expect_to_the_byte(
      [&](const Runtime& r) { activation_forward<T>(input.view(), output.view(), Activation::silu, r); });
  ASSERT_EQ(forward.operators.size(), 1u);
  EXPECT_EQ(forward.operators[0].name, "activation_forward");
  EXPECT_EQ(forward.operators[0].bytes, 2.0 * 300 * 70 * sizeof(T));
  const Plan backward = expect_to_the_byte([&](const Runtime& r) {
    activation_backward<T>(input.view(), gate.view(), {.grad_input = output.view(), .accumulate = true},
                           Activation::gelu, r);
  });
  EXPECT_EQ(backward.operators[0].bytes, 4.0 * 300 * 70 * sizeof(T));
  expect_to_the_byte([&](const Runtime& r) { swiglu_forward<T>(gate.view(), input.view(), output.view(), r); });
  const Plan gradients = expect_to_the_byte([&](const Runtime& r) {
    swiglu_backward<T>(gate.view(), input.view(), input.view(), {.grad_gate = output.view(), .grad_up = other.view()},
                       r);
  });
  EXPECT_EQ(gradients.operators[0].bytes, 5.0 * 300 * 70 * sizeof(T));
  auto query = normal_array<T, 4>(random, {2, 3, 100, 34});
  Array<T, 4> rotated({2, 3, 100, 34});
  const std::vector<Index> positions(200, 5);
  for (const int threads : {1, 3}) {
    const Plan rotary = expect_to_the_byte(
        [&](const Runtime& r) { rotary_forward<T>(query.view(), rotated.view(), {.first_position = 3}, r); },
        {.num_threads = threads});
    EXPECT_EQ(rotary.operators[0].bytes, 2.0 * 2 * 3 * 100 * 34 * sizeof(T));
    expect_to_the_byte(
        [&](const Runtime& r) {
          rotary_backward<T>(transposed(query.view(), 1, 2), transposed(rotated.view(), 1, 2),
                             {.size = 20, .positions = {positions.data(), {2, 3}}}, true, r);
        },
        {.num_threads = threads});
  }
}

TYPED_TEST(Plans, Optimizers) {
  using T = TypeParam;
  std::vector<T> parameters(50000, 1), gradients(50000), first_moment(50000), second_moment(50000);
  const Plan adamw = expect_to_the_byte(
      [&](const Runtime& r) { adamw_step<T>(parameters, gradients, first_moment, second_moment, {.step = 1}, r); });
  ASSERT_EQ(adamw.operators.size(), 1u);
  EXPECT_EQ(adamw.operators[0].bytes, 7.0 * 50000 * sizeof(T));
}

TYPED_TEST(Plans, LossesAndEmbeddings) {
  using T = TypeParam;
  Random random(2);
  auto logits = normal_array<T, 2>(random, {300, 130});
  Array<Index, 1> targets({300});
  targets.fill([&] { return random.integer(0, 129); });
  Layout<2> turned = Layout<2>::dense();
  std::swap(turned.order[0], turned.order[1]);
  for (const Layout<2>& layout : {Layout<2>::dense(), turned}) {
    Array<T, 2> grad_logits({300, 130}, layout), grad_table({130, 130}, layout);
    Array<T, 1> row_loss({300});
    const Plan loss = expect_to_the_byte([&](const Runtime& r) {
      cross_entropy_forward<T>(logits.view(), targets.view(),
                               {.row_loss = row_loss.view(), .grad_logits = grad_logits.view()}, {}, r);
    });
    ASSERT_EQ(loss.operators.size(), 1u);
    EXPECT_EQ(loss.operators[0].bytes, 2.0 * 300 * 130 * sizeof(T));
    for (const bool accumulate : {false, true}) {
      expect_to_the_byte([&](const Runtime& r) {
        embedding_forward<T>(logits.view(), targets.view(), grad_logits.view(), {.accumulate = accumulate}, r);
      });
      expect_to_the_byte([&](const Runtime& r) {
        embedding_backward<T>(targets.view(), logits.view(),
                              {.grad_table = grad_table.view(), .accumulate = accumulate}, r);
      });
    }
  }
}

// In a layout that has rows (B·L, E), and in one that must be copied.
TYPED_TEST(Plans, MultiHeadBlocksAndTheirGradients) {
  using T = TypeParam;
  constexpr Index B = 2, H = 4, L = 70, D = 8, E = 24;
  Random random(3);
  auto square = normal_array<T, 2>(random, {E, H * D}), back = normal_array<T, 2>(random, {H * D, E});
  const MultiHeadParameters<T> block{.num_heads = H,
                                     .w_query = square.view(),
                                     .w_key = square.view(),
                                     .w_value = square.view(),
                                     .w_output = back.view()};
  Layout<3> turned = Layout<3>::dense();
  std::swap(turned.order[0], turned.order[1]);
  for (const Layout<3>& layout : {Layout<3>::dense(), turned}) {
    auto input = relaid(normal_array<T, 3>(random, {B, L, E}), layout);
    Array<T, 3> output({B, L, E}, layout), grad_input({B, L, E}, layout), row_max({B, H, L}), row_sum({B, H, L});
    Array<T, 4> query({B, H, L, D}), key({B, H, L, D}), value({B, H, L, D}), context({B, H, L, D});
    Array<T, 2> grad_w_query({E, H * D}), grad_w_output({H * D, E});
    expect_to_the_byte([&](const Runtime& r) {
      multi_head_attention_forward<T>(
          input.view(), {}, block,
          {output.view(), query.view(), key.view(), value.view(), context.view(), row_max.view(), row_sum.view()}, {},
          r);
    });
    for (const bool accumulate : {false, true}) {
      const Plan gradients = expect_to_the_byte([&](const Runtime& r) {
        multi_head_attention_backward<T>(
            input.view(), {}, block,
            {query.view(), key.view(), value.view(), context.view(), row_max.view(), row_sum.view()}, output.view(),
            {.grad_input = grad_input.view(),
             .grad_w_query = grad_w_query.view(),
             .grad_w_output = grad_w_output.view(),
             .accumulate = {.grad_input = accumulate}},
            {}, r);
      });
      EXPECT_EQ(gradients.operators.size(), 7u);
    }
  }
}

TYPED_TEST(Plans, PartialsAndTheirMerge) {
  using T = TypeParam;
  auto inputs = AttentionInputs<T>::normal(9, 1, 2, 2, 100, 2500, 8, 8);
  Array<T, 5> sums({3, 1, 2, 100, 8});
  Array<T, 4> row_max({3, 1, 2, 100}), row_sum({3, 1, 2, 100}), context({1, 2, 100, 8});
  AttentionOptions options;
  options.query_offset = QueryAlignment::top_left;
  expect_to_the_byte([&](const Runtime& r) {
    attention_partials(inputs.query.view(), inputs.key.view(), inputs.value.view(),
                       {.accumulator = sums.view(), .row_max = row_max.view(), .row_sum = row_sum.view()}, options, r);
  });
  expect_to_the_byte([&](const Runtime& r) {
    attention_merge({.accumulator = sums.view(), .row_max = row_max.view(), .row_sum = row_sum.view()}, {},
                    {.context = context.view()}, r);
  });
}

// A view of the given number of elements at an invalid address: a plan reads no element.
template <int Rank>
TensorView<float, Rank> nowhere(const std::array<Index, static_cast<std::size_t>(Rank)>& shape, int place) {
  return {reinterpret_cast<float*>(static_cast<std::uintptr_t>(place + 1) << 43), shape};
}

// At most a packed copy of keys and values, a partial of Dv + 2 values for each chunk and query row if there are
// several chunks, and 4 MiB per thread.
TEST(Plan, WorkspaceIsWithinItsBound) {
  std::size_t calls = 0;
  for (Index L : {1, 7, 60, 61, 200, 1024, 16384, 1'000'000}) {
    for (Index S : {1, 100, 1024, 3000, 16384, 100'000, 1'000'000}) {
      for (const std::array<Index, 4>& shape :
           {std::array<Index, 4>{1, 1, 1, 64}, {1, 8, 8, 64}, {2, 32, 8, 128}, {1, 64, 1, 8}, {3, 2, 2, 256}}) {
        const Index B = shape[0], H = shape[1], Hkv = shape[2], D = shape[3];
        for (int threads : {1, 2, 16}) {
          AttentionOptions options;
          options.causal = L % 2 == 0;
          options.query_offset = QueryAlignment::bottom_right;
          const Plan made = plan(
              [&](const Runtime& r) {
                attention_forward(
                    nowhere<4>({B, H, L, D}, 0), nowhere<4>({B, Hkv, S, D}, 1), nowhere<4>({B, Hkv, S, D}, 2),
                    {.context = nowhere<4>({B, H, L, D}, 3), .lse = nowhere<3>({B, H, L}, 4)}, options, r);
              },
              {.num_threads = threads});
          const auto up = [](Index n) { return (n + 31) / 32 * 32; };
          const Index packed = B * Hkv * (up(S) * (D + up(D)) * 4 + up(S) / 32 + 192);
          const Index chunks = attention_num_chunks(S);
          const Index partials = chunks > 1 ? B * H * L * chunks * (D + 2) * 4 : 0;
          const Index bound = packed + partials + threads * (Index{4} << 20);
          ASSERT_LE(static_cast<Index>(made.workspace_bytes), bound)
              << "B " << B << " H " << H << " Hkv " << Hkv << " L " << L << " S " << S << " D " << D << " threads "
              << threads;
          ++calls;
        }
      }
    }
  }
  EXPECT_EQ(calls, 8u * 7u * 5u * 3u);
}

// Heads with a single task, which one thread processes: more threads must not cause them to be packed whole.
TEST(Plan, FewRowsOverVeryLongKeysNeedNoMoreMemoryWithMoreThreads) {
  for (const Index D : {1, 7, 33}) {
    for (const Index L : {1, 12, 60}) {
      for (const Index heads : {1, 3}) {
        for (const Index S : {Index{10'000'000}, Index{100'000'000}, (Index{1} << 31) + 7}) {
          const auto bytes_with = [&](int threads) {
            const AttentionOptions options{.query_offset = QueryAlignment::bottom_right};
            return plan(
                       [&](const Runtime& r) {
                         attention_forward(nowhere<4>({1, heads, L, D}, 0), nowhere<4>({1, heads, S, D}, 1),
                                           nowhere<4>({1, heads, S, D}, 2),
                                           {.context = nowhere<4>({1, heads, L, D}, 3)}, options, r);
                       },
                       {.num_threads = threads})
                .workspace_bytes;
          };
          const std::size_t alone = bytes_with(1);
          for (const int threads : {2, 4, 16})
            EXPECT_LE(bytes_with(threads), (alone + (std::size_t{4} << 20)) * static_cast<std::size_t>(heads))
                << "D " << D << " L " << L << " H " << heads << " S " << S << " threads " << threads;
        }
      }
    }
  }
}

TYPED_TEST(Plans, FewRowsOverKeysPackedByBlock) {
  using T = TypeParam;
  const Index S = 400'003, L = 13;
  auto inputs = AttentionInputs<T>::normal(5, 1, 1, 1, L, S, 1, 1);
  const AttentionOptions options{.causal = true, .query_offset = QueryAlignment::bottom_right};
  std::vector<std::vector<T>> contexts;
  for (const int threads : {1, 2, 3}) {
    Array<T, 4> context({1, 1, L, 1});
    const Plan made = expect_to_the_byte(
        [&](const Runtime& r) {
          attention_forward(inputs.query.view(), inputs.key.view(), inputs.value.view(), {.context = context.view()},
                            options, r);
        },
        {.num_threads = threads});
    EXPECT_LT(made.workspace_bytes, 1u << 21);
    contexts.push_back(context.values());
    EXPECT_EQ(contexts.back(), contexts.front());
  }
  // The bits of heads that are packed whole, by all threads: the same rows among others.
  Array<T, 4> query({1, 1, 61, 1}), context({1, 1, 61, 1});
  query.for_each_index([&](const auto& at) { query.set(at, inputs.query.get({0, 0, at[2] % L, 0})); });
  const std::vector<Index> offset{S - L};
  AttentionOptions whole = options;
  whole.query_offset = std::span<const Index>(offset);
  const Plan made = expect_to_the_byte(
      [&](const Runtime& r) {
        attention_forward(query.view(), inputs.key.view(), inputs.value.view(), {.context = context.view()}, whole, r);
      },
      {.num_threads = 2});
  EXPECT_GT(made.workspace_bytes, static_cast<std::size_t>(33 * S) * sizeof(T));
  std::vector<T> first = context.values();
  first.resize(static_cast<std::size_t>(L));
  EXPECT_EQ(first, contexts.front());
}

// Divided by rows in the forward pass, by chunks of keys with one row, and by pieces of keys in the backward pass: with
// a head size of 32, delta alone would not be worth a second thread.
TEST(Plan, OneHeadOverLongKeysUsesEveryThread) {
  constexpr Index S = 16384, D = 32;
  const auto threads_of = [](const Call& call, int threads) {
    const Plan made = plan(call, {.num_threads = threads});
    EXPECT_EQ(made.operators.size(), 1u);
    return made.operators.empty() ? 0 : made.operators[0].num_threads;
  };
  const std::array<Index, 4> all{1, 1, S, D}, one{1, 1, 1, D};
  const auto key = nowhere<4>(all, 1), value = nowhere<4>(all, 2), context = nowhere<4>(all, 3);
  const AttentionOptions newest{.query_offset = QueryAlignment::bottom_right};
  const Array<float, 3> tokens({1, S, D});
  KvCache<float> cache({.num_sequences = 1, .num_kv_heads = 1, .head_size = D, .value_head_size = D, .capacity = S});
  cache.append(0, tokens.view(), tokens.view());
  for (const bool causal : {false, true}) {
    const AttentionOptions options{.causal = causal};
    const Call forward = [&](const Runtime& r) {
      attention_forward(nowhere<4>(all, 0), key, value, {.context = context}, options, r);
    };
    const Call backward = [&](const Runtime& r) {
      attention_backward(
          nowhere<4>(all, 0), key, value,
          {.context = context,
           .row_max = nowhere<3>({1, 1, S}, 4),
           .row_sum = nowhere<3>({1, 1, S}, 5),
           .grad_context = nowhere<4>(all, 6)},
          AttentionGradients{
              .grad_query = nowhere<4>(all, 7), .grad_key = nowhere<4>(all, 8), .grad_value = nowhere<4>(all, 9)},
          options, r);
    };
    for (const int threads : {1, 2, 3, 4, 6, 16}) EXPECT_EQ(threads_of(forward, threads), threads) << causal;
    for (const int threads : {1, 2, 3, 4, 6, 16}) EXPECT_EQ(threads_of(backward, threads), threads) << causal;
  }
  for (const int threads : {1, 2, 3, 4, 6, 16}) {
    const Call row = [&](const Runtime& r) {
      attention_forward(nowhere<4>(one, 0), key, value, {.context = nowhere<4>(one, 3)}, newest, r);
    };
    const Call decode = [&](const Runtime& r) {
      attention_decode(nowhere<4>(one, 0), cache, {.context = nowhere<4>(one, 3)}, newest, r);
    };
    EXPECT_EQ(threads_of(row, threads), threads);
    EXPECT_EQ(threads_of(decode, threads), threads);
  }
}

TEST(Plan, DoesNotTouchOutputs) {
  auto inputs = AttentionInputs<float>::normal(2, 200, 200, 8);
  const auto marked = [](auto array) {
    array.fill([] { return 7; });
    return array;
  };
  auto context = marked(Array<float, 4>({1, 1, 200, 8}));
  auto weights = marked(Array<float, 4>({1, 1, 200, 200}));
  auto map = marked(Array<float, 4>({1, 1, 4, 4}));
  auto mass = marked(Array<float, 3>({1, 1, 200}));
  auto row_max = marked(Array<float, 3>({1, 1, 200})), row_sum = marked(Array<float, 3>({1, 1, 200}));
  auto entropy = marked(Array<float, 2>({1, 1}));
  int progress = 0;
  const Plan made = plan(
      [&](const Runtime& r) {
        attention_with_statistics(inputs.query.view(), inputs.key.view(), inputs.value.view(),
                                  {.context = context.view(),
                                   .row_max = row_max.view(),
                                   .row_sum = row_sum.view(),
                                   .weights = weights.view()},
                                  {.head_entropy = entropy.view()}, {}, r);
        attention_columns(inputs.query.view(), inputs.key.view(),
                          {.row_max = row_max.view(), .row_sum = row_sum.view()},
                          {.key_mass = mass.view(), .pooled_map = map.view()}, {}, r);
      },
      {.progress = [&](Index, Index) { ++progress; }});
  ASSERT_EQ(made.operators.size(), 3u);
  EXPECT_EQ(made.operators[0].name, "attention_with_statistics");
  EXPECT_EQ(made.operators[1].name, "attention_weights");
  EXPECT_EQ(made.operators[2].name, "attention_columns");
  EXPECT_EQ(progress, 0);
  for (float x : context.values()) ASSERT_EQ(x, 7);
  for (float x : weights.values()) ASSERT_EQ(x, 7);
  for (float x : map.values()) ASSERT_EQ(x, 7);
  for (float x : mass.values()) ASSERT_EQ(x, 7);
  for (float x : row_max.values()) ASSERT_EQ(x, 7);
  for (float x : entropy.values()) ASSERT_EQ(x, 7);
}

TEST(Plan, NamesTheInstructionSet) {
  on_every_instruction_set([](const kernels::KernelTable& table) {
    const Plan made = plan([](const Runtime&) {});
    EXPECT_EQ(made.instruction_set, table.name);
    EXPECT_FALSE(made.why.empty());
    EXPECT_EQ(made.workspace_bytes, 0u);
    EXPECT_TRUE(made.operators.empty());
  });
}

TEST(Plan, ReportsTheErrorsOfTheCall) {
  const auto inputs = AttentionInputs<float>::normal(2, 3, 4, 8);
  const Call call = [&](const Runtime& r) {
    attention_forward(inputs.query.view(), inputs.key.view(), inputs.value.view(), {}, {}, r);
  };
  EXPECT_EQ(rejection<std::invalid_argument>([&] { plan(call); }), rejection<std::invalid_argument>([&] { call({}); }));
  EXPECT_EQ(rejection<std::logic_error>([&] { plan([&](const Runtime&) { plan(call); }); }),
            "plan: called inside a plan");
  // After an error, calls compute normally again.
  EXPECT_EQ(plan([](const Runtime&) {}).workspace_bytes, 0u);
}

}  // namespace
}  // namespace regard::plan_test
