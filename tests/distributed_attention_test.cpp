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

namespace regard::distributed_attention_test {
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
// A call, divided at random among ranks.
template <class T>
struct DividedCase {
  AttentionCase<T> call;
  Random random;
  Index num_ranks;
  std::vector<Index> rows, keys;
  std::string text;

  explicit DividedCase(std::uint64_t seed) : DividedCase(random_attention_case<T>(seed), 0, seed) {}
  // 0 ranks: 2 to 8 of them.
  DividedCase(AttentionCase<T> given, Index ranks_or_any, std::uint64_t seed) : call(std::move(given)), random(seed) {
    num_ranks = ranks_or_any > 0 ? ranks_or_any : random.integer(2, 8);
    rows = random_starts(random, call.L(), num_ranks);
    keys = random_starts(random, call.S(), num_ranks);
    text = "seed " + std::to_string(seed) + ", " + std::to_string(num_ranks) + " ranks: " + call.text;
  }
  template <class View>
  View of_rows(const View& view, Index rank) const {
    return share(view, rows, rank);
  }
  TensorView<const T, 4> query(Index rank) const { return share(call.query.view(), rows, rank); }
  TensorView<const T, 4> key(Index rank) const { return share(call.key.view(), keys, rank); }
  TensorView<const T, 4> value(Index rank) const { return share(call.value.view(), keys, rank); }
  AttentionOptions options(Index rank) const {
    AttentionOptions own = call.options;
    own.mask = share_of(call.options.mask, rows, rank);
    own.bias = share_of(call.options.bias, rows, rank);
    return own;
  }
  AttentionArrays<T> outputs() const {
    return AttentionArrays<T>::dense(call.B(), call.H(), call.L(), call.S(), call.Dv());
  }
  AttentionOutputs outputs_of(AttentionArrays<T>& all, Index rank) const {
    return {.context = of_rows(all.context.view(), rank),
            .row_max = of_rows(all.row_max->view(), rank),
            .row_sum = of_rows(all.row_sum->view(), rank),
            .lse = of_rows(all.lse->view(), rank),
            .weights = of_rows(all.weights->view(), rank),
            .sink_weights = of_rows(all.sink_weights->view(), rank)};
  }
  // Nothing is thrown, nothing is sent that is not received, and nothing is changed before it has been sent.
  void run(const std::function<void(Ranks&)>& of_rank, bool may_use_thread = true) const {
    ThreadNetwork network(num_ranks);
    network.expect_unchanged();
    const std::vector<std::exception_ptr> thrown = on_ranks(network, of_rank, {}, may_use_thread);
    for (std::size_t r = 0; r < thrown.size(); ++r) EXPECT_EQ(text_of(thrown[r]), "") << "rank " << r;
    EXPECT_TRUE(network.is_empty());
  }
};

Runtime one_thread() { return {.num_threads = 1}; }

template <class T>
void expect_same(const AttentionArrays<T>& got, const AttentionArrays<T>& expected) {
  EXPECT_TRUE(same_bits(bits_of(got.context), bits_of(expected.context)));
  EXPECT_TRUE(same_bits(bits_of(*got.weights), bits_of(*expected.weights)));
  EXPECT_TRUE(same_bits(bits_of(*got.row_max), bits_of(*expected.row_max)));
  EXPECT_TRUE(same_bits(bits_of(*got.row_sum), bits_of(*expected.row_sum)));
  EXPECT_TRUE(same_bits(bits_of(*got.lse), bits_of(*expected.lse)));
  EXPECT_TRUE(same_bits(bits_of(*got.sink_weights), bits_of(*expected.sink_weights)));
}

template <class T>
void run_forward_case(std::uint64_t seed) {
  const DividedCase<T> test(seed);
  SCOPED_TRACE(test.text);
  AttentionArrays<T> expected = test.outputs(), got = test.outputs();
  const AttentionCase<T>& call = test.call;
  attention_forward(call.query.view(), call.key.view(), call.value.view(), expected.views(), call.options);
  test.run([&](Ranks& ranks) {
    const Index r = ranks.rank();
    attention_forward(test.query(r), test.key(r), test.value(r), test.outputs_of(got, r), test.options(r), ranks,
                      one_thread());
  });
  expect_same(got, expected);
}

TEST(DistributedAttention, ForwardHasTheBitsOfOneMachine) {
  for (std::uint64_t n = 0; n < num_random_calls(test_size<std::uint64_t>(100, 20)) && !HasFailure(); ++n) {
    run_forward_case<float>(kFirstSeed + n);
    run_forward_case<double>(kFirstSeed + n);
    n % 2 == 0 ? run_forward_case<bfloat16>(kFirstSeed + n) : run_forward_case<float16>(kFirstSeed + n);
  }
}

// Statistics of rows, of heads, and of columns.
template <class Element>
struct Statistics {
  using T = ComputeType<Element>;
  Array<std::int64_t, 4> top_keys;
  Array<T, 4> top_weights, map;
  Array<T, 3> entropy, largest, chosen, distance, mass;
  Array<T, 2> head_entropy, head_largest, head_chosen, head_distance;

  explicit Statistics(const AttentionCase<Element>& call) {
    const std::array<Index, 3> rows{call.B(), call.H(), call.L()};
    top_keys = Array<std::int64_t, 4>({rows[0], rows[1], rows[2], 3});
    top_weights = Array<T, 4>({rows[0], rows[1], rows[2], 3});
    map = Array<T, 4>({rows[0], rows[1], std::min<Index>(2, rows[2]), std::min<Index>(13, call.S())});
    for (auto* array : {&entropy, &largest, &chosen, &distance}) *array = Array<T, 3>(rows);
    mass = Array<T, 3>({rows[0], rows[1], call.S()});
    for (auto* array : {&head_entropy, &head_largest, &head_chosen, &head_distance})
      *array = Array<T, 2>({rows[0], rows[1]});
  }
  AttentionStatistics views(const std::vector<Index>& rows, Index rank, bool of_heads, bool of_rows) {
    AttentionStatistics of{.top_keys = share(top_keys.view(), rows, rank),
                           .top_weights = share(top_weights.view(), rows, rank),
                           .entropy = share(entropy.view(), rows, rank),
                           .largest_weight = share(largest.view(), rows, rank),
                           .chosen_weight = share(chosen.view(), rows, rank),
                           .mean_distance = share(distance.view(), rows, rank)};
    if (!of_rows) of = {.chosen_weight = of.chosen_weight};
    if (of_heads) {
      of.head_entropy = head_entropy.view();
      of.head_largest_weight = head_largest.view();
      of.head_chosen_weight = head_chosen.view();
      of.head_mean_distance = head_distance.view();
    }
    return of;
  }
  std::vector<std::uint64_t> bits() const {
    std::vector<std::uint64_t> all = bits_of(top_keys);
    const auto add = [&](const std::vector<std::uint64_t>& more) { all.insert(all.end(), more.begin(), more.end()); };
    add(bits_of(top_weights));
    for (const auto* array : {&entropy, &largest, &chosen, &distance, &mass}) add(bits_of(*array));
    for (const auto* array : {&head_entropy, &head_largest, &head_chosen, &head_distance}) add(bits_of(*array));
    add(bits_of(map));
    return all;
  }
};

template <class T>
void expect_statistics_of_one_machine(DividedCase<T>& test) {
  const AttentionCase<T>& call = test.call;
  const bool of_heads = test.random.chance(0.5), of_rows = test.random.chance(0.5);
  const bool with_map = call.L() > 0 && call.S() > 0 && test.random.chance(0.5);
  // Of all keys, or of some of the strips.
  std::optional<std::array<Index, 2>> some_keys;
  if (with_map && test.random.chance(0.3)) {
    const Index strips = std::min<Index>(13, call.S()), first = test.random.integer(0, strips);
    some_keys = {first * call.S() / strips, test.random.integer(first, strips) * call.S() / strips};
  }
  std::vector<Index> chosen;  // (1, L, 2)
  for (Index i = 0; i < call.L(); ++i) chosen.insert(chosen.end(), {i / 2, i / 2 + 3});
  const InputView<3> ranges(chosen.data(), {1, call.L(), 2});
  SCOPED_TRACE(test.text);
  AttentionArrays<T> expected = test.outputs(), got = test.outputs();
  Statistics<T> of_one(call), of_ranks(call);
  const auto run = [&](Statistics<T>& statistics, const std::vector<Index>& rows, Index r, auto&& forward) {
    AttentionStatistics views = statistics.views(rows, r, of_heads, of_rows);
    views.chosen_ranges = ranges;
    forward(views);
  };
  run(of_one, {0, call.L()}, 0, [&](const AttentionStatistics& views) {
    attention_with_statistics(call.query.view(), call.key.view(), call.value.view(), expected.views(), views,
                              call.options);
  });
  AttentionColumns columns{.key_mass = of_one.mass.view()};
  if (with_map) columns.pooled_map = of_one.map.view();
  attention_columns(call.query.view(), call.key.view(),
                    {expected.row_max->view(), expected.row_sum->view(), MapCells::means, some_keys}, columns,
                    call.options);
  std::vector<Statistics<T>> of_rank;
  for (Index r = 0; r < test.num_ranks; ++r) of_rank.emplace_back(call);
  test.run([&](Ranks& ranks) {
    const Index r = ranks.rank();
    // What every rank gets whole is written to memory of its own.
    Statistics<T>& own = r == 0 ? of_ranks : of_rank[static_cast<std::size_t>(r)];
    AttentionStatistics views = of_ranks.views(test.rows, r, false, of_rows);
    const AttentionStatistics whole = own.views(test.rows, r, of_heads, of_rows);
    views.chosen_ranges = ranges;
    views.head_entropy = whole.head_entropy;
    views.head_largest_weight = whole.head_largest_weight;
    views.head_chosen_weight = whole.head_chosen_weight;
    views.head_mean_distance = whole.head_mean_distance;
    attention_with_statistics(test.query(r), test.key(r), test.value(r), test.outputs_of(got, r), views,
                              test.options(r), ranks, one_thread());
    AttentionColumns of_keys{.key_mass = share(of_ranks.mass.view(), test.keys, r)};
    if (with_map) of_keys.pooled_map = own.map.view();
    attention_columns(
        test.query(r), test.key(r),
        {test.of_rows(got.row_max->view(), r), test.of_rows(got.row_sum->view(), r), MapCells::means, some_keys},
        of_keys, test.options(r), ranks, one_thread());
  });
  expect_same(got, expected);
  EXPECT_TRUE(same_bits(of_ranks.bits(), of_one.bits()));
  for (std::size_t r = 1; r < of_rank.size(); ++r) {
    EXPECT_TRUE(same_bits(bits_of(of_rank[r].map), bits_of(of_one.map)));
    for (const auto head : {&Statistics<T>::head_entropy, &Statistics<T>::head_largest, &Statistics<T>::head_chosen,
                            &Statistics<T>::head_distance})
      EXPECT_TRUE(same_bits(bits_of(of_rank[r].*head), bits_of(of_one.*head)));
  }
}

template <class T>
void run_statistics_case(std::uint64_t seed) {
  DividedCase<T> test(seed);
  expect_statistics_of_one_machine(test);
}

TEST(DistributedAttention, StatisticsHaveTheBitsOfOneMachine) {
  for (std::uint64_t n = 0; n < num_random_calls(test_size<std::uint64_t>(60, 20)) && !HasFailure(); ++n) {
    run_statistics_case<float>(kFirstSeed + 1000 + n);
    run_statistics_case<double>(kFirstSeed + 1000 + n);
    n % 2 == 0 ? run_statistics_case<bfloat16>(kFirstSeed + 1000 + n)
               : run_statistics_case<float16>(kFirstSeed + 1000 + n);
  }
}

// Memory for all gradients, with the elements to which a call that accumulates adds: the same for the same seed.
template <class T>
GradientArrays<T> random_gradients(const AttentionCase<T>& call, std::uint64_t seed) {
  Random random(seed);
  GradientArrays<T> g = outputs_of(call);
  if (!call.options.bias.absent()) g.bias.emplace(random_broadcast_shape(random, call));
  if (!call.options.sinks.absent()) g.sinks.emplace(std::array{call.H()});
  const auto fill = [&](auto& array) { array.fill([&] { return random.normal(); }); };
  for (auto* array : {&g.query, &g.key, &g.value}) fill(*array);
  if (g.bias) fill(*g.bias);
  if (g.sinks) fill(*g.sinks);
  return g;
}

// Every result must have the bits of one machine. The divided case has another copy of the call.
template <class T>
void expect_backward_of_one_machine(DividedCase<T>& test, const BackwardCase<T>& backward) {
  const auto seed = static_cast<std::uint64_t>(test.random.integer(0, 1 << 30));
  GradientArrays<T> expected = random_gradients(test.call, seed), got = random_gradients(test.call, seed);
  AttentionAccumulation accumulate;
  if (test.random.chance(0.5)) {
    for (bool* add : {&accumulate.grad_query, &accumulate.grad_key, &accumulate.grad_value, &accumulate.grad_bias,
                      &accumulate.grad_sinks})
      *add = test.random.chance(0.7);
  }
  std::vector<GradientArrays<T>> of_rank;
  for (Index r = 0; r < test.num_ranks; ++r) of_rank.push_back(random_gradients(test.call, seed));
  const auto views_of = [&](GradientArrays<T>& arrays) {
    AttentionGradients views = arrays.views();
    views.accumulate = accumulate;
    return views;
  };
  backward.run(views_of(expected));
  const bool may_use_thread = test.random.chance(0.7);
  const bool bias_by_row = got.bias && got.bias->shape()[2] == test.rows.back();
  test.run(
      [&](Ranks& ranks) {
        const Index r = ranks.rank();
        AttentionForwardState saved = backward.saved();
        const auto of_rows = [&](const auto& array) { return test.of_rows(std::as_const(array).view(), r); };
        saved.context = of_rows(backward.forward.context);
        saved.row_max = of_rows(*backward.forward.row_max);
        saved.row_sum = of_rows(*backward.forward.row_sum);
        saved.grad_context = of_rows(backward.grad_context);
        saved.grad_lse = of_rows(backward.grad_lse);
        AttentionGradients written = views_of(of_rank[static_cast<std::size_t>(r)]);
        written.grad_query = share(got.query.view(), test.rows, r);
        written.grad_key = share(got.key.view(), test.keys, r);
        written.grad_value = share(got.value.view(), test.keys, r);
        if (bias_by_row) written.grad_bias = share(got.bias->view(), test.rows, r);
        attention_backward(test.query(r), test.key(r), test.value(r), saved, written, test.options(r), ranks,
                           one_thread());
      },
      may_use_thread);
  // What every rank gets whole.
  for (const GradientArrays<T>& own : of_rank) {
    if (got.bias && !bias_by_row) {
      EXPECT_TRUE(same_bits(bits_of(*own.bias), bits_of(*expected.bias)));
    }
    if (got.sinks) {
      EXPECT_TRUE(same_bits(bits_of(*own.sinks), bits_of(*expected.sinks)));
    }
  }
  if (bias_by_row) {
    EXPECT_TRUE(same_bits(bits_of(*got.bias), bits_of(*expected.bias)));
  }
  EXPECT_TRUE(same_bits(bits_of(got.query), bits_of(expected.query)));
  EXPECT_TRUE(same_bits(bits_of(got.key), bits_of(expected.key)));
  EXPECT_TRUE(same_bits(bits_of(got.value), bits_of(expected.value)));
}

template <class T>
void run_backward_case(std::uint64_t seed) {
  DividedCase<T> test(seed);
  SCOPED_TRACE(test.text);
  test.call.options.dropout = test.random.chance(0.3) ? 0.25 : 0;
  AttentionCase<T> same = random_attention_case<T>(seed);
  same.options.dropout = test.call.options.dropout;
  expect_backward_of_one_machine(test, BackwardCase<T>(std::move(same), seed));
}

TEST(DistributedAttention, BackwardHasTheBitsOfOneMachine) {
  for (std::uint64_t n = 0; n < num_random_calls(test_size<std::uint64_t>(60, 20)) && !HasFailure(); ++n) {
    run_backward_case<float>(kFirstSeed + 2000 + n);
    run_backward_case<double>(kFirstSeed + 2000 + n);
    n % 2 == 0 ? run_backward_case<bfloat16>(kFirstSeed + 2000 + n) : run_backward_case<float16>(kFirstSeed + 2000 + n);
  }
}

// Sums without terms.
TEST(DistributedAttention, GradientsWithoutBatchEntriesOrHeadsAreZero) {
  for (const Index H : {2, 0}) {
    const Index B = H == 0 ? 1 : 0;
    ThreadNetwork network(3);
    const auto thrown = on_ranks(network, [&](Ranks& ranks) {
      const Tensor<float, 4> query({B, H, 3, 4}), key({B, 2, 6, 4});
      const Tensor<float, 3> state({B, H, 3});
      const std::vector<float> sinks(static_cast<std::size_t>(H), 1.0F);
      Tensor<float, 4> grad_key({B, 2, 6, 4}), grad_value({B, 2, 6, 4});
      Tensor<float, 1> grad_sinks({H});
      const auto fill = [](auto& gradient) { std::fill_n(gradient.data(), gradient.size(), 5.0F); };
      fill(grad_key), fill(grad_value), fill(grad_sinks);
      attention_backward(query, key, key, {.context = query, .row_max = state, .row_sum = state, .grad_context = query},
                         {.grad_key = grad_key, .grad_value = grad_value, .grad_sinks = grad_sinks},
                         {.sinks = InputView<1>(sinks)}, ranks, one_thread());
      const auto is_zero = [](const auto& gradient) {
        return std::all_of(gradient.data(), gradient.data() + gradient.size(), [](float x) { return x == 0; });
      };
      EXPECT_TRUE(is_zero(grad_key) && is_zero(grad_value) && is_zero(grad_sinks));
    });
    for (const auto& error : thrown) EXPECT_EQ(text_of(error), "");
  }
}

// The same elements as another type, in a layout of its own.
template <class E>
Array<E, 4> converted(const Array<float, 4>& from, Random& random) {
  Array<E, 4> to(from.shape(), random_layout<4>(random, true));
  from.for_each_index([&](const auto& at) { to.set(at, E(from.get(at))); });
  return to;
}

// Query, key, value, context and gradients each have a type of their own.
template <class Query, class Key, class Value, class Context, class Gradient>
void run_types_case(std::uint64_t seed) {
  DividedCase<float> test(seed);
  SCOPED_TRACE(test.text);
  const AttentionCase<float>& call = test.call;
  const auto query = converted<Query>(call.query, test.random);
  const auto key = converted<Key>(call.key, test.random);
  const auto value = converted<Value>(call.value, test.random);
  const auto grad_context = normal_array<Value, 4>(test.random, {call.B(), call.H(), call.L(), call.Dv()});
  struct Results {
    Array<Context, 4> context;
    Array<float, 3> row_max, row_sum;
    Array<Gradient, 4> grad_query, grad_key, grad_value;
    explicit Results(const AttentionCase<float>& of)
        : context({of.B(), of.H(), of.L(), of.Dv()}),
          row_max({of.B(), of.H(), of.L()}),
          row_sum(row_max.shape()),
          grad_query(of.query.shape()),
          grad_key(of.key.shape()),
          grad_value(of.value.shape()) {}
    std::vector<std::vector<std::uint64_t>> bits() const {
      return {bits_of(context),    bits_of(row_max),  bits_of(row_sum),
              bits_of(grad_query), bits_of(grad_key), bits_of(grad_value)};
    }
  };
  // The forward pass, then the backward pass of its results, for the rows and keys of a rank or for all.
  const auto run = [&](Results& results, const AttentionOptions& options, const auto& rows, const auto& keys,
                       auto&... ranks) {
    const AttentionOutputs outputs{.context = rows(results.context.view()),
                                   .row_max = rows(results.row_max.view()),
                                   .row_sum = rows(results.row_sum.view())};
    attention_forward(rows(query.view()), keys(key.view()), keys(value.view()), outputs, options, ranks...,
                      one_thread());
    const Results& saved = results;
    attention_backward(rows(query.view()), keys(key.view()), keys(value.view()),
                       {.context = rows(saved.context.view()),
                        .row_max = rows(saved.row_max.view()),
                        .row_sum = rows(saved.row_sum.view()),
                        .grad_context = rows(grad_context.view()),
                        .fingerprint = kUncheckedFingerprint},
                       {.grad_query = rows(results.grad_query.view()),
                        .grad_key = keys(results.grad_key.view()),
                        .grad_value = keys(results.grad_value.view())},
                       options, ranks..., one_thread());
  };
  Results expected(call), got(call);
  const auto all = [](const auto& view) { return view; };
  run(expected, call.options, all, all);
  test.run([&](Ranks& ranks) {
    const auto part_of = [&](const std::vector<Index>& starts) {
      return [&](const auto& view) { return share(view, starts, ranks.rank()); };
    };
    run(got, test.options(ranks.rank()), part_of(test.rows), part_of(test.keys), ranks);
  });
  EXPECT_EQ(got.bits(), expected.bits());
}

TEST(DistributedAttention, EachArrayMayHaveAnotherType) {
  using B = bfloat16;
  using F = float16;
  for (std::uint64_t n = 0; n < num_random_calls(test_size<std::uint64_t>(10, 4)) && !HasFailure(); ++n) {
    run_types_case<float, B, B, float, float>(kFirstSeed + 3000 + n);
    run_types_case<B, B, B, float, float>(kFirstSeed + 3100 + n);
    run_types_case<B, float, F, B, B>(kFirstSeed + 3200 + n);
    run_types_case<F, B, F, F, float>(kFirstSeed + 3300 + n);
  }
}

// Many blocks of rows and several ranges of keys for each rank. Kind 6: two heads whose sums take more than 8 MiB.
template <class T>
AttentionCase<T> long_case(int kind) {
  Random random(static_cast<std::uint64_t>(kind) + 9);
  AttentionCase<T> call;
  const Index H = kind == 6 ? 4 : 2, Hkv = kind == 6 ? 2 : 1, L = kind == 2 ? 480 : kind == 6 ? 180 : 300;
  const Index S = kind == 2 ? 480 : kind == 6 ? 8400 : 800, D = kind == 6 ? 250 : test_size(160, 40);
  call.query = normal_array<T, 4>(random, {1, H, L, D});
  call.key = normal_array<T, 4>(random, {1, Hkv, S, D});
  call.value = normal_array<T, 4>(random, {1, Hkv, S, D});
  call.options.query_offset = QueryAlignment::bottom_right;
  call.options.causal = kind != 1;
  if (kind == 2) call.options.window.left = 100;
  if (kind == 3) {
    call.query_starts = {0, 130, 131, L};
    call.key_starts = {0, 500, 520, S};
    call.options.query_starts = call.query_starts;
    call.options.key_starts = call.key_starts;
  }
  if (kind == 4) {
    call.block_mask = Array<bool, 4>({1, H, L / 12, S / 20});
    call.block_mask.fill([&] { return random.chance(0.6); });
    call.options.block_mask = std::as_const(call.block_mask).view();
    call.options.block_size = {12, 20};
  }
  if (kind == 5) {
    call.mask = Array<bool, 4>({1, 1, L, S});
    call.mask.fill([&] { return random.chance(0.6); });
    call.options.mask = std::as_const(call.mask).view();
    call.bias_f32 = normal_array<float, 4>(random, {1, H, L, S});
    call.options.bias = std::as_const(call.bias_f32).view();
    for (Index h = 0; h < H; ++h) call.sinks.push_back(static_cast<ComputeType<T>>(h));
    call.options.sinks = call.sinks;
  }
  return call;
}

TEST(DistributedAttention, BackwardOfLongSequencesHasTheBitsOfOneMachine) {
  for (int kind = 0; kind < 7; ++kind) {
    DividedCase<float> test(long_case<float>(kind), kind < 2 || kind == 6 ? 3 : 6,
                            kFirstSeed + static_cast<std::uint64_t>(kind));
    SCOPED_TRACE("options " + std::to_string(kind) + ", " + test.text);
    expect_backward_of_one_machine(test, BackwardCase<float>(long_case<float>(kind)));
    if (kind > 2) continue;
    DividedCase<bfloat16> narrow(long_case<bfloat16>(kind), 4, kFirstSeed + static_cast<std::uint64_t>(kind));
    expect_backward_of_one_machine(narrow, BackwardCase<bfloat16>(long_case<bfloat16>(kind)));
  }
}

TEST(DistributedAttention, StatisticsOfLongSequencesHaveTheBitsOfOneMachine) {
  for (int kind = 0; kind < 6 && !HasFailure(); ++kind) {
    for (Index num_ranks = 2; num_ranks <= 8; ++num_ranks) {
      const auto seed = kFirstSeed + static_cast<std::uint64_t>(10 * kind + num_ranks);
      DividedCase<float> test(long_case<float>(kind), num_ranks, seed);
      if (num_ranks == 4) test.call.query.set({0, 1, 17, 0}, std::numeric_limits<float>::quiet_NaN());
      expect_statistics_of_one_machine(test);
      if (num_ranks != 5) continue;
      DividedCase<double> wide(long_case<double>(kind), num_ranks, seed);
      expect_statistics_of_one_machine(wide);
    }
  }
}

// With one key/value head, four ranks receive what they need for equal work: rows with their state for columns, and
// keys for means over heads.
TEST(DistributedAttention, StatisticsOfOneHeadAreDividedAmongAllRanks) {
  const Index H = 2, L = 1024, D = 16, num_ranks = 4, own = L / num_ranks;
  constexpr Index kAgreement = 3 * 2048;
  const auto received = [&](const std::function<void(Ranks&)>& run) {
    ThreadNetwork network(num_ranks);
    for (const auto& error : on_ranks(network, run)) EXPECT_EQ(text_of(error), "");
    std::vector<Index> bytes;
    for (Index r = 0; r < num_ranks; ++r) bytes.push_back(network.received(r));
    return bytes;
  };
  const Tensor<float, 4> query({1, H, own, D}), key({1, 1, own, D});
  Tensor<float, 3> row_max({1, H, own}), row_sum(row_max);
  std::fill_n(row_sum.data(), row_sum.size(), 1.0F);
  for (const bool causal : {false, true}) {
    const std::vector<Index> columns = received([&](Ranks& ranks) {
      Tensor<float, 3> mass({1, H, own});
      attention_columns(query, key, {row_max, row_sum}, {.key_mass = mass}, {.causal = causal}, ranks, one_thread());
    });
    // With a causal mask, ranks compute the keys from 0, 128, 320 and 512 on, and do not need the rows before them.
    const std::vector<Index> rows = causal ? std::vector<Index>{768, 640, 448, 256} : std::vector<Index>(4, 768);
    for (std::size_t r = 0; r < 4; ++r) {
      const Index bytes = rows[r] * H * (D + 2) * 4, keys_and_mass = own * (D + H) * 4;
      EXPECT_GE(columns[r], bytes) << "rank " << r << ", causal " << causal;
      EXPECT_LE(columns[r], bytes + keys_and_mass + kAgreement) << "rank " << r << ", causal " << causal;
    }
  }
  const std::vector<Index> means = received([&](Ranks& ranks) {
    Tensor<float, 4> context({1, H, own, D});
    Tensor<float, 2> entropy({1, H});
    attention_with_statistics(query, key, key, {.context = context}, {.head_entropy = entropy}, {}, ranks,
                              one_thread());
  });
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_GE(means[r], 3 * own * 2 * D * 4) << "rank " << r;
    EXPECT_LE(means[r], 3 * own * 2 * D * 4 + kAgreement) << "rank " << r;
  }
}

TEST(DistributedAttention, MistakesInColumnsAreFoundByAllRanks) {
  const Tensor<float, 4> query({1, 2, 3, 4}), key({1, 1, 2, 4});
  const Tensor<float, 3> state({1, 2, 3});
  const auto expect = [&](const std::string& text, ElementType type, Index strips, std::array<Index, 2> keys) {
    ThreadNetwork network(3);
    const auto thrown = on_ranks(network, [&](Ranks& ranks) {
      Tensor<double, 4> map({1, 2, 2, strips});
      const OutputView<4> view(map.data(), type, map.shape(), dense_strides(map.shape()));
      attention_columns(query, key, {state, state, MapCells::means, keys}, {.pooled_map = view}, {}, ranks,
                        one_thread());
    });
    for (const auto& error : thrown) EXPECT_EQ(text_of(error), "attention_columns: " + text);
  };
  expect("pooled_map has 2 × 7 strips; expected 1 to 9 of rows and 1 to 6 of columns", ElementType::float32, 7, {0, 6});
  expect("keys is 0 … 5; expected whole strips of the 3 of pooled_map", ElementType::float32, 3, {0, 5});
  expect("rank 0: keys is 4 … 7; expected an interval of 0 … 6", ElementType::float32, 3, {4, 7});
  expect("rank 0: pooled_map has type float64; expected float32", ElementType::float64, 3, {0, 6});
}

TEST(DistributedAttention, ABiasIsSummedOverRowsOnAllRanksOrNone) {
  ThreadNetwork network(3);
  const auto thrown = on_ranks(network, [&](Ranks& ranks) {
    const Tensor<float, 4> query({1, 2, 3, 4}), key({1, 2, 6, 4}), bias({1, 2, 1, 18});
    const Tensor<float, 3> state({1, 2, 3});
    Tensor<float, 4> grad_bias({1, 2, ranks.rank() == 1 ? 1 : 3, 18});
    attention_backward(query, key, key, {.context = query, .row_max = state, .row_sum = state, .grad_context = query},
                       {.grad_bias = grad_bias}, {.bias = bias}, ranks, one_thread());
  });
  for (const auto& error : thrown) {
    EXPECT_EQ(text_of(error),
              "attention_backward: rank 1: grad_bias is summed over rows; expected one entry for each, as on rank 0");
  }
}

// A cache with the keys and values first[b] … first[b] + count[b] − 1 of each sequence.
template <class K, class T>
KvCache<K> cache_of(const KvCacheShape& shape, const Array<T, 4>& key, const Array<T, 4>& value,
                    const std::vector<Index>& first, const std::vector<Index>& count) {
  KvCache<K> cache(shape);
  for (std::size_t b = 0; b < first.size(); ++b) {
    const auto part = [&](const TensorView<const T, 4>& view) {
      return TensorView<const T, 3>(view.pointer(static_cast<Index>(b), 0, first[b], 0),
                                    {view.shape[1], count[b], view.shape[3]},
                                    {view.strides[1], view.strides[2], view.strides[3]});
    };
    cache.append(static_cast<Index>(b), part(key.view()), part(value.view()));
  }
  return cache;
}

// Options of a decoding call, one set per number.
template <class T>
struct DecodeOptions {
  Array<bool, 4> mask, block_mask;
  Array<T, 4> bias;
  Array<std::int32_t, 2> query_segments, key_segments;
  std::vector<T> slopes, sinks;
  std::vector<Index> prefix, offsets;
  AttentionOptions options;

  DecodeOptions(int kind, Index B, Index H, Index L, Index S) {
    Random random(static_cast<std::uint64_t>(kind) + 5);
    options.causal = kind % 2 == 0;
    if (kind == 1) options.window.left = 1500;
    if (kind == 2) {
      for (Index h = 0; h < H; ++h) slopes.push_back(static_cast<T>(std::exp2(-h - 6)));
      for (Index h = 0; h < H; ++h) sinks.push_back(static_cast<T>(h));
      options.alibi_slopes = slopes;
      options.sinks = sinks;
    }
    if (kind == 3) {
      mask = Array<bool, 4>({1, H, L, S});
      mask.fill([&] { return random.chance(0.6); });
      options.mask = std::as_const(mask).view();
      bias = normal_array<T, 4>(random, {B, 1, 1, S});
      options.bias = std::as_const(bias).view();
    }
    if (kind == 4) {
      block_mask = Array<bool, 4>({B, 1, (L + 1) / 2, (S + 299) / 300});
      block_mask.fill([&] { return random.chance(0.6); });
      options.block_mask = std::as_const(block_mask).view();
      options.block_size = {2, 300};
      prefix = {1100, 700};
      options.prefix = prefix;
      offsets = {900, 2100};
      options.query_offset = InputView<1>(offsets);
    }
    if (kind == 5) {
      query_segments = Array<std::int32_t, 2>({B, L});
      key_segments = Array<std::int32_t, 2>({B, S});
      for (auto* segments : {&query_segments, &key_segments}) segments->fill([&] { return random.integer(0, 1); });
      options.query_segments = std::as_const(query_segments).view();
      options.key_segments = std::as_const(key_segments).view();
      options.soft_cap = 5.0;
    }
  }
};

template <class K, class Query = ComputeType<K>, class Context = Query>
void run_decode_cases() {
  using T = ComputeType<K>;
  const Index B = 2, H = 6, Hkv = 2, L = 3, D = 5, Dv = 7, S = 4173;
  Random random(3);
  const Array<Query, 4> query = normal_array<Query, 4>(random, {B, H, L, D});
  const Array<T, 4> key = normal_array<T, 4>(random, {B, Hkv, S, D}),
                    value = normal_array<T, 4>(random, {B, Hkv, S, Dv});
  const KvCacheShape shape{
      .num_sequences = B, .num_kv_heads = Hkv, .head_size = D, .value_head_size = Dv, .capacity = S};
  // Keys by rank and sequence.
  const std::vector<std::vector<std::vector<Index>>> all_shares{
      {{1024, 2048}, {3149, 77}},
      {{0, 1024}, {2048, 0}, {1024, 1024}, {1101, 5}},
      {{4173, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}},
  };
  for (const auto& shares : all_shares) {
    const auto num_ranks = static_cast<Index>(shares.size());
    std::vector<Index> totals(2);
    for (const auto& of_rank : shares) {
      for (std::size_t b = 0; b < 2; ++b) totals[b] += of_rank[b];
    }
    const KvCache<K> whole = cache_of<K>(shape, key, value, {0, 0}, totals);
    for (int kind = 0; kind < 6; ++kind) {
      if (!runs_case(static_cast<std::size_t>(kind) + shares.size() / 3, 3)) continue;
      SCOPED_TRACE("options " + std::to_string(kind) + ", " + std::to_string(num_ranks) + " ranks");
      const DecodeOptions<T> of(kind, B, H, L, *std::max_element(totals.begin(), totals.end()));
      AttentionArrays<Context> expected = AttentionArrays<Context>::dense(B, H, L, 0, Dv);
      const auto outputs = [](AttentionArrays<Context>& arrays) {
        AttentionOutputs views = arrays.views();
        views.weights = {};
        return views;
      };
      attention_decode(query.view(), whole, outputs(expected), of.options);
      std::vector<AttentionArrays<Context>> got;
      for (Index r = 0; r < num_ranks; ++r) got.push_back(AttentionArrays<Context>::dense(B, H, L, 0, Dv));
      ThreadNetwork network(num_ranks);
      const auto thrown = on_ranks(network, [&](Ranks& ranks) {
        const auto r = static_cast<std::size_t>(ranks.rank());
        std::vector<Index> first(2);
        for (std::size_t before = 0; before < r; ++before) {
          for (std::size_t b = 0; b < 2; ++b) first[b] += shares[before][b];
        }
        const KvCache<K> cache = cache_of<K>(shape, key, value, first, shares[r]);
        attention_decode(query.view(), cache, outputs(got[r]), of.options, ranks, one_thread());
      });
      for (std::size_t r = 0; r < thrown.size(); ++r) {
        EXPECT_EQ(text_of(thrown[r]), "") << "rank " << r;
        expect_same(got[r], expected);
      }
      EXPECT_TRUE(network.is_empty());
    }
  }
}

TEST(DistributedDecode, HasTheBitsOfOneCache) {
  run_decode_cases<float>();
  run_decode_cases<double>();
  run_decode_cases<bfloat16>();
  run_decode_cases<float16>();
  run_decode_cases<std::int8_t>();
}

TEST(DistributedDecode, QueryAndContextMayHave16Bits) {
  run_decode_cases<bfloat16, bfloat16>();
  run_decode_cases<bfloat16, bfloat16, float>();
  run_decode_cases<float16, float16>();
  run_decode_cases<float, bfloat16>();
  run_decode_cases<std::int8_t, float16>();
}

TEST(DistributedDecode, SumsBeyondTheLargestNumberAreMergedAsOnOneMachine) {
  const KvCacheShape shape{
      .num_sequences = 1, .num_kv_heads = 1, .head_size = 4, .value_head_size = 4, .capacity = 2100};
  Random random(8);
  const auto query = normal_array<float, 4>(random, {1, 2, 1, 4}),
             key = normal_array<float, 4>(random, {1, 1, 2100, 4});
  Array<float, 4> value({1, 1, 2100, 4});
  value.fill([] { return 3e38; });
  const KvCache<float> whole = cache_of<float>(shape, key, value, {0}, {2100});
  Array<float, 4> expected({1, 2, 1, 4});
  attention_decode(query.view(), whole, {.context = expected.view()});
  ASSERT_LT(expected.get({0, 0, 0, 0}), std::numeric_limits<float>::infinity());
  ThreadNetwork network(3);
  const auto thrown = on_ranks(network, [&](Ranks& ranks) {
    const Index r = ranks.rank();
    const KvCache<float> cache = cache_of<float>(shape, key, value, {1024 * r}, {r < 2 ? 1024 : 52});
    Array<float, 4> got({1, 2, 1, 4});
    attention_decode(query.view(), cache, {.context = got.view()}, {}, ranks, one_thread());
    EXPECT_TRUE(same_bits(bits_of(got), bits_of(expected)));
  });
  for (const auto& error : thrown) EXPECT_EQ(text_of(error), "");
}

TEST(DistributedDecode, AppendFillsOneRankAfterTheOther) {
  Random random(4);
  const Index H = 4, Hkv = 2, D = 8, S = 3000;
  const auto query = normal_array<float, 4>(random, {1, H, 1, D});
  const auto key = normal_array<float, 4>(random, {1, Hkv, S, D}),
             value = normal_array<float, 4>(random, {1, Hkv, S, D});
  const KvCacheShape shape{
      .num_sequences = 1, .num_kv_heads = Hkv, .head_size = D, .value_head_size = D, .capacity = 1100};
  KvCacheShape large = shape;
  large.capacity = S;
  ThreadNetwork network(3);
  const auto thrown = on_ranks(network, [&](Ranks& ranks) {
    KvCache<float> cache(shape), whole(large);
    Array<float, 4> got({1, H, 1, D}), expected({1, H, 1, D});
    Index next = 0;
    for (const Index count : {Index{1}, Index{1000}, Index{23}, Index{1}, Index{1500}, Index{475}}) {
      const auto part = [&](const Array<float, 4>& of) {
        TensorView<const float, 4> view = std::as_const(of).view();
        view.data = view.pointer(0, 0, next, 0);
        view.shape[2] = count;
        return view;
      };
      whole.append(part(key), part(value));
      append(cache, part(key), part(value), ranks);
      next += count;
      attention_decode(query.view(), whole, {.context = expected.view()}, {.causal = true});
      attention_decode(query.view(), cache, {.context = got.view()}, {.causal = true}, ranks, one_thread());
      EXPECT_TRUE(same_bits(bits_of(got), bits_of(expected))) << next;
    }
    const Index length = ranks.rank() < 2 ? 1024 : 952;
    EXPECT_EQ(cache.length(0), length);
    TensorView<const float, 4> many = std::as_const(key).view();
    many.shape[2] = 149;
    try {
      append(cache, many, many, ranks);
      ADD_FAILURE() << "149 keys fitted";
    } catch (const InvalidArgument& error) {
      EXPECT_STREQ(error.what(), "append: sequence 0 needs room for 1 more keys; expected caches with enough capacity");
    }
    EXPECT_EQ(cache.length(0), length);
  });
  for (const auto& error : thrown) EXPECT_EQ(text_of(error), "");
}

}  // namespace
}  // namespace regard::distributed_attention_test
