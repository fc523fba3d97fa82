// SPDX-License-Identifier: Apache-2.0
//
// attention_backward: every mask, option, layout and type of the forward pass, on every instruction set.
//
//   random calls         attention_cases.h, against the plain loops of backward_reference.h
//   central differences  of the forward pass in long double: the definition of a gradient
//   PyTorch              autograd in double (tests/backward/make_torch.py)
//   parts of the rows    attention_backward_continued, against one call
//
// Read next: attention_backward_bits_test.cpp, src/attention/attention_backward.cpp,
// docs/derivations/attention_backward.md.
#include <fstream>
#include <map>
#include <sstream>

#include "regard/attention_backward_continued.h"
#include "support/backward_cases.h"
#include "support/data_path.h"

namespace regard::attention_backward_test {
namespace {

template <class T>
class Backward : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Backward, Types);

template <class T>
void run_case(std::uint64_t seed) {
  BackwardCase<T> test(random_attention_case<T>(seed), seed);
  const AttentionCase<T>& call = test.call;
  SCOPED_TRACE("seed " + std::to_string(seed) + ": " + call.text);
  Random random(seed + 1);
  std::array<Index, 4> bias_shape{};
  if (has_bias(call)) {
    bias_shape = {call.B(), call.H(), call.L(), call.S()};
    for (Index& extent : bias_shape) extent = random.chance(0.4) ? 1 : extent;
  }
  const auto forward = reference::attention<T>(call.query.view(), call.key.view(), call.value.view(), call.options);
  const auto expected = reference::attention_backward(call, forward, test.grad_context, test.grad_lse, bias_shape);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    test.run_forward();
    GradientArrays<T> g;
    g.query = Array<T, 4>(call.query.shape(), random_layout<4>(random, true));
    g.key = Array<T, 4>(call.key.shape(), random_layout<4>(random, true));
    g.value = Array<T, 4>(call.value.shape(), random_layout<4>(random, true));
    if (has_bias(call)) g.bias = Array<T, 4>(bias_shape, random_layout<4>(random, true));
    if (!call.sinks.empty()) g.sinks = Array<T, 1>({call.H()});
    test.run(g);
    expect_gradients(g, expected);
    for (auto* array : {&g.query, &g.key, &g.value}) EXPECT_TRUE(array->surroundings_untouched());
  });
}

TYPED_TEST(Backward, RandomCallsMatchTheReference) {
  for (std::uint64_t seed = 20260701; seed < 20260701 + num_random_calls(400); ++seed) run_case<TypeParam>(seed);
}

// The loss Σ grad_context · context + Σ grad_lse · lse, from the formula in long double.
long double loss(const AttentionCase<double>& call, const Array<double, 4>& grad_context,
                 const Array<double, 3>& grad_lse) {
  const auto forward =
      reference::attention<double>(call.query.view(), call.key.view(), call.value.view(), call.options);
  long double sum = 0;
  const std::vector<double> of_context = grad_context.values(), of_lse = grad_lse.values();
  for (std::size_t n = 0; n < of_context.size(); ++n) sum += of_context[n] * forward.context[n];
  for (std::size_t n = 0; n < of_lse.size(); ++n) {
    if (of_lse[n] != 0) sum += of_lse[n] * forward.lse[n];
  }
  return sum;
}

// Options and lengths that give a few hundred values, so that each can be varied.
std::vector<BackwardCase<double>> small_cases() {
  std::vector<BackwardCase<double>> cases;
  for (int variant = 0; variant < 4; ++variant) {
    Random random(static_cast<std::uint64_t>(variant) + 7);
    AttentionCase<double> call;
    call.query = normal_array<double, 4>(random, {2, 4, 5, 3});
    call.key = normal_array<double, 4>(random, {2, 2, 7, 3});
    call.value = normal_array<double, 4>(random, {2, 2, 7, 2});
    call.bias_f64 = normal_array<double, 4>(random, {1, 4, 5, 7});
    call.sinks = {0.5, -1, 0, 2};
    call.alibi_slopes = {0.5, 0.25, 0.125, 1};
    auto& options = call.options;
    options.query_offset = QueryAlignment::bottom_right;
    options.causal = variant > 0;
    if (variant > 1) {
      options.bias = std::as_const(call.bias_f64).view();
      options.sinks = call.sinks;
      options.soft_cap = 0.8;
    }
    if (variant > 2) {
      options.alibi_slopes = call.alibi_slopes;
      options.window.left = 2;
      options.scale = -0.6;
    }
    cases.emplace_back(std::move(call), 3);
    // The spans refer to vectors whose memory has moved.
    if (variant > 1) cases.back().call.options.sinks = cases.back().call.sinks;
    if (variant > 2) cases.back().call.options.alibi_slopes = cases.back().call.alibi_slopes;
  }
  return cases;
}

// Moves every value of an input by ±h and compares the change of the loss with the gradient, within 10⁻⁶ of the
// largest.
template <int Rank>
void expect_central_differences(const char* name, BackwardCase<double>& test, Array<double, Rank>& input,
                                const Array<double, Rank>& gradient) {
  constexpr double h = 1e-4;
  const std::vector<double> g = gradient.values();
  double largest = 0;
  for (const double x : g) largest = std::max(largest, std::abs(x));
  std::size_t n = 0;
  input.for_each_index([&](const auto& at) {
    const double x = input.get(at);
    input.set(at, x + h);
    const long double above = loss(test.call, test.grad_context, test.grad_lse);
    input.set(at, x - h);
    const long double below = loss(test.call, test.grad_context, test.grad_lse);
    input.set(at, x);
    EXPECT_NEAR(g[n], static_cast<double>((above - below) / static_cast<long double>((x + h) - (x - h))),
                1e-6 * largest)
        << name << " " << n;
    ++n;
  });
}

TEST(BackwardInDouble, GradientsMatchCentralDifferences) {
  for (BackwardCase<double>& test : small_cases()) {
    AttentionCase<double>& call = test.call;
    GradientArrays<double> g = outputs_of(call);
    const bool all = has_bias(call);
    if (all) g.bias = Array<double, 4>(call.bias_f64.shape());
    if (all) g.sinks = Array<double, 1>({4});
    test.run(g);
    expect_central_differences("query", test, call.query, g.query);
    expect_central_differences("key", test, call.key, g.key);
    expect_central_differences("value", test, call.value, g.value);
    if (!all) continue;
    expect_central_differences("bias", test, call.bias_f64, *g.bias);
    for (std::size_t head = 0; head < 4; ++head) {
      constexpr double h = 1e-4;
      const double x = call.sinks[head];
      call.sinks[head] = x + h;
      const long double above = loss(call, test.grad_context, test.grad_lse);
      call.sinks[head] = x - h;
      const long double below = loss(call, test.grad_context, test.grad_lse);
      call.sinks[head] = x;
      EXPECT_NEAR(g.sinks->get({static_cast<Index>(head)}), static_cast<double>((above - below) / 2e-4L), 1e-6);
    }
  }
}

// ---- PyTorch

// The values written by make_torch.py.
template <int Rank>
Array<double, Rank> numbers(Index k, const typename TensorView<double, Rank>::Shape& shape) {
  Array<double, Rank> array(shape);
  Index n = 0;
  array.fill([&] { return static_cast<double>((n++ * (37 + 2 * k) + 11 * k) % 101) / 50 - 1; });
  return array;
}

struct TorchCase {
  const char* name;
  Index batch, heads, key_heads, queries, keys, head_size, columns;
  bool causal;
  std::optional<double> soft_cap;
  bool has_bias, has_sinks;
};

TEST(BackwardInDouble, MatchesPyTorchAutograd) {
  std::map<std::string, std::vector<double>> expected;
  std::ifstream file(data_path("backward/torch.txt"));
  std::string line, name;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "case") {
      words >> name;
      continue;
    }
    for (std::string x; words >> x;) expected[name + " " + word].push_back(std::stod(x));
  }
  std::size_t compared = 0;
  const auto compare = [&](const std::string& title, const std::vector<double>& got) {
    const std::vector<double>& numbers_there = expected[title];
    ASSERT_EQ(got.size(), numbers_there.size()) << title;
    for (std::size_t n = 0; n < got.size(); ++n) EXPECT_NEAR(got[n], numbers_there[n], 1e-13) << title << " " << n;
    ++compared;
  };
  for (const TorchCase& c : {TorchCase{"plain", 1, 1, 1, 3, 5, 4, 3, false, {}, false, false},
                             TorchCase{"grouped", 2, 4, 2, 5, 7, 6, 5, true, {}, true, false},
                             TorchCase{"all", 1, 2, 1, 6, 9, 5, 4, true, 0.75, true, true}}) {
    AttentionCase<double> call;
    call.query = numbers<4>(0, {c.batch, c.heads, c.queries, c.head_size});
    call.key = numbers<4>(1, {c.batch, c.key_heads, c.keys, c.head_size});
    call.value = numbers<4>(2, {c.batch, c.key_heads, c.keys, c.columns});
    call.bias_f64 = numbers<4>(5, {1, c.heads, 1, c.keys});
    const std::vector<double> sinks = numbers<1>(6, {c.heads}).values();
    call.options.causal = c.causal;
    call.options.query_offset = QueryAlignment::bottom_right;
    call.options.soft_cap = c.soft_cap;
    if (c.has_bias) call.options.bias = std::as_const(call.bias_f64).view();
    if (c.has_sinks) call.options.sinks = sinks;
    BackwardCase<double> test(std::move(call));
    test.grad_context = numbers<4>(3, {c.batch, c.heads, c.queries, c.columns});
    test.grad_lse = numbers<3>(4, {c.batch, c.heads, c.queries});
    GradientArrays<double> g = outputs_of(test.call);
    if (c.has_bias) g.bias = Array<double, 4>({1, c.heads, 1, c.keys});
    if (c.has_sinks) g.sinks = Array<double, 1>({c.heads});
    test.run(g);
    const std::string prefix = c.name + std::string(" ");
    compare(prefix + "query", g.query.values());
    compare(prefix + "key", g.key.values());
    compare(prefix + "value", g.value.values());
    if (g.bias) compare(prefix + "bias", g.bias->values());
    if (g.sinks) compare(prefix + "sinks", g.sinks->values());
  }
  EXPECT_EQ(compared, expected.size());
}

// ---- some of the rows

// Some of the rows, or heads, of a view.
template <class View>
View part_of(View view, std::size_t axis, Index first, Index count) {
  view.data += first * view.strides[axis];
  view.shape[axis] = count;
  return view;
}

TYPED_TEST(Backward, SumsContinuedOverPartsOfTheRowsHaveTheBitsOfOneCall) {
  using T = TypeParam;
  const Index L = 190, S = 2100, H = 4, group = 2;
  BackwardCase<T> test(long_causal_case<T>(L, S));
  AttentionCase<T>& call = test.call;
  call.bias_f32 = Array<float, 4>({1, 1, L, S});
  call.bias_f32.fill([n = 0]() mutable { return (n++ % 17) * 0.25; });
  call.options.bias = std::as_const(call.bias_f32).view();
  call.sinks = {0, 1, -1, 2};
  call.options.sinks = call.sinks;
  test.run_forward();
  GradientArrays<T> expected = outputs_of(call), got = outputs_of(call);
  expected.bias = Array<T, 4>({1, 1, 1, S});
  expected.sinks = Array<T, 1>({H});
  test.run(expected);

  for (auto* sums : {&got.key, &got.value}) sums->fill([] { return 0; });
  std::vector<double> bias(static_cast<std::size_t>(S)), sinks(static_cast<std::size_t>(H));
  const std::vector<Index> starts =
      backward_key_starts(call.query.view(), call.key.view(), call.value.view(), test.saved(), call.options, 1000);
  EXPECT_EQ(starts, (std::vector<Index>{0, 1536, S}));
  for (Index head = 0; head < H; ++head) {
    for (const Index first : {0, 60, 180}) {
      const Index count = first == 0 ? 60 : first == 60 ? 120 : 10;
      const auto rows = [&](const auto& view) { return part_of(part_of(view, 1, head, 1), 2, first, count); };
      const auto of_head = [&](const auto& view) { return part_of(view, 1, head / group, 1); };
      const AttentionForwardState saved{.context = rows(std::as_const(test.forward.context).view()),
                                        .row_max = rows(std::as_const(*test.forward.row_max).view()),
                                        .row_sum = rows(std::as_const(*test.forward.row_sum).view()),
                                        .grad_context = rows(test.grad_context.view()),
                                        .grad_lse = rows(test.grad_lse.view())};
      AttentionOptions options = call.options;
      options.query_offset = S - L + first;
      options.bias = part_of(std::as_const(call.bias_f32).view(), 2, first, count);
      options.sinks = std::span(call.sinks).subspan(static_cast<std::size_t>(head), 1);
      std::vector<Index> order;
      attention_backward_continued(rows(call.query.view()), of_head(call.key.view()), of_head(call.value.view()), saved,
                                   {.grad_query = rows(got.query.view()),
                                    .key_sums = of_head(got.key.view()),
                                    .value_sums = of_head(got.value.view()),
                                    .bias_sums = TensorView<double, 4>(bias.data(), {1, 1, 1, S}),
                                    .sink_sums = TensorView<double, 1>(sinks.data() + head, {1}),
                                    .key_starts = starts,
                                    .before_range = [&](Index range) { order.push_back(range); },
                                    .after_range = [&](Index range) { order.push_back(10 + range); }},
                                   options);
      EXPECT_EQ(order, (std::vector<Index>{0, 10, 1, 11}));
    }
  }
  got.bias = Array<T, 4>({1, 1, 1, S});
  got.sinks = Array<T, 1>({H});
  write_gradient(TensorView<double, 4>(bias.data(), {1, 1, 1, S}), got.bias->view(), false);
  write_gradient(TensorView<double, 1>(sinks.data(), {H}), got.sinks->view(), false);
  EXPECT_TRUE(same_bits(all_bits(got), all_bits(expected)));
}

TEST(BackwardContinued, MistakesAreRejected) {
  const Tensor<float, 4> query({1, 2, 60, 8}), key({1, 1, 90, 8});
  const Tensor<float, 3> state({1, 2, 60});
  Tensor<float, 4> sums({1, 1, 90, 8});
  const auto call = [&](const ContinuedGradients& gradients) {
    attention_backward_continued(
        query, key, key, {.context = query, .row_max = state, .row_sum = state, .grad_context = query}, gradients);
  };
  const auto expect_text = [](const auto& run, const char* text) {
    try {
      run();
      ADD_FAILURE() << "nothing was thrown; expected " << text;
    } catch (const InvalidArgument& error) {
      EXPECT_STREQ(error.what(), text);
    }
  };
  const std::vector<Index> starts{0, 64, 90};
  expect_text([&] { call({.key_sums = sums, .key_starts = starts}); },
              "attention_backward_continued: key_starts is invalid; expected starts from backward_key_starts");
  Tensor<bfloat16, 4> narrow({1, 1, 90, 8});
  expect_text([&] { call({.key_sums = narrow}); },
              "attention_backward_continued: key_sums has type bfloat16; expected float32");
  Tensor<double, 1> sinks({2});
  expect_text([&] { call({.sink_sums = sinks}); },
              "attention_backward_continued: sink_sums is given without sinks; expected both");
  Tensor<double, 4> wide({1, 1, 90, 8});
  expect_text([&] { write_gradient(sums, wide, false); },
              "write_gradient: output has type float64; expected a type that is computed as float32, like gradient");
}

}  // namespace
}  // namespace regard::attention_backward_test
