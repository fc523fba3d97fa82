// SPDX-License-Identifier: Apache-2.0
//
// multi_head_attention_backward compared with central differences in double, and float with double; accumulation,
// groups of rows, layouts, threads, empty extents, and rejections before anything is written.
// Read next: src/layers/multi_head_backward.cpp, multi_head_test.cpp.
#include "regard/multi_head_backward.h"

#include "support/attention_cases.h"
#include "support/instruction_sets.h"
#include "support/rejection.h"
#include "support/same_bits.h"

namespace regard::multi_head_backward_test {
namespace {

struct Sizes {
  Index batch, length, keys, width, key_width, heads, key_heads, head_size, value_head_size, output_width;
  bool has_memory, has_projection;
};
constexpr Sizes kSelf{3, 5, 5, 7, 7, 4, 2, 3, 2, 6, false, true};
constexpr Sizes kCross{2, 4, 6, 5, 3, 2, 2, 4, 3, 7, true, true};
constexpr Sizes kWithoutProjection{2, 3, 3, 4, 4, 2, 1, 2, 5, 10, false, false};

// The tensors that have gradients, by name, in the order of MultiHeadGradients.
template <class T>
struct Tensors {
  Array<T, 3> input, memory;
  Array<T, 2> w_query, w_key, w_value, w_output;
  Array<T, 1> b_query, b_key, b_value, b_output;

  Tensors() = default;
  explicit Tensors(const Sizes& s)
      : input({s.batch, s.length, s.width}),
        memory({s.has_memory ? s.batch : 0, s.has_memory ? s.keys : 0, s.has_memory ? s.key_width : 0}),
        w_query({s.width, s.heads * s.head_size}),
        w_key({s.key_width, s.key_heads * s.head_size}),
        w_value({s.key_width, s.key_heads * s.value_head_size}),
        w_output({s.has_projection ? s.heads * s.value_head_size : 0, s.has_projection ? s.output_width : 0}),
        b_query({s.heads * s.head_size}),
        b_key({s.key_heads * s.head_size}),
        b_value({s.key_heads * s.value_head_size}),
        b_output({s.has_projection ? s.output_width : 0}) {}

  template <class F>
  void for_each(F f) {
    f("input", input), f("memory", memory), f("w_query", w_query), f("w_key", w_key), f("w_value", w_value);
    f("w_output", w_output), f("b_query", b_query), f("b_key", b_key), f("b_value", b_value), f("b_output", b_output);
  }
  std::vector<std::uint64_t> bits() {
    std::vector<std::uint64_t> all;
    for_each([&](const char*, const auto& array) {
      const auto more = bits_of(array);
      all.insert(all.end(), more.begin(), more.end());
    });
    return all;
  }
};

// The view, or an absent one if every extent is 0.
template <class Array>
auto view_of(Array& array) {
  auto view = array.view();
  return view.shape == typename decltype(view)::Shape{} ? decltype(view){} : view;
}

MultiHeadAccumulation accumulate_all() { return {true, true, true, true, true, true, true, true, true, true}; }

// A block with random tensors, the results of its forward pass, and a random gradient of its output.
template <class T>
struct Case {
  Sizes s;
  AttentionOptions options;
  Tensors<T> tensors;
  Array<T, 4> query, key, value, context;
  Array<T, 3> row_max, row_sum, output, grad_output;
  AttentionFingerprint fingerprint;

  explicit Case(const Sizes& sizes, const AttentionOptions& given = {}, std::uint64_t seed = 1)
      : s(sizes), options(given), tensors(sizes) {
    Random random(seed);
    tensors.for_each([&](const char*, auto& array) { array.fill([&] { return random.normal(); }); });
    grad_output = normal_array<T, 3>(random, {s.batch, s.length, s.output_width});
    query = Array<T, 4>({s.batch, s.heads, s.length, s.head_size});
    key = Array<T, 4>({s.batch, s.key_heads, s.keys, s.head_size});
    value = Array<T, 4>({s.batch, s.key_heads, s.keys, s.value_head_size});
    context = Array<T, 4>({s.batch, s.heads, s.length, s.value_head_size});
    row_max = Array<T, 3>({s.batch, s.heads, s.length});
    row_sum = Array<T, 3>({s.batch, s.heads, s.length});
    output = Array<T, 3>({s.batch, s.length, s.output_width});
    forward();
  }
  MultiHeadParameters<T> parameters() const {
    const Tensors<T>& t = tensors;
    return {.num_heads = s.heads,
            .num_kv_heads = s.key_heads,
            .w_query = t.w_query.view(),
            .w_key = t.w_key.view(),
            .w_value = t.w_value.view(),
            .w_output = view_of(t.w_output),
            .b_query = t.b_query.view(),
            .b_key = t.b_key.view(),
            .b_value = t.b_value.view(),
            .b_output = view_of(t.b_output)};
  }
  void forward() {
    multi_head_attention_forward<T>(std::as_const(tensors.input).view(), view_of(std::as_const(tensors.memory)),
                                    parameters(),
                                    {.output = output.view(),
                                     .query = query.view(),
                                     .key = key.view(),
                                     .value = value.view(),
                                     .context = context.view(),
                                     .row_max = row_max.view(),
                                     .row_sum = row_sum.view(),
                                     .fingerprint = &fingerprint},
                                    options);
  }
  MultiHeadForwardState<T> saved() const {
    return {query.view(), key.view(), value.view(), context.view(), row_max.view(), row_sum.view(), fingerprint};
  }
  static MultiHeadGradients<T> views(Tensors<T>& g) {
    return {.grad_input = g.input.view(),
            .grad_memory = view_of(g.memory),
            .grad_w_query = g.w_query.view(),
            .grad_w_key = g.w_key.view(),
            .grad_w_value = g.w_value.view(),
            .grad_w_output = view_of(g.w_output),
            .grad_b_query = g.b_query.view(),
            .grad_b_key = g.b_key.view(),
            .grad_b_value = g.b_value.view(),
            .grad_b_output = view_of(g.b_output)};
  }
  void run(const MultiHeadGradients<T>& gradients, const Runtime& runtime = {}) const {
    multi_head_attention_backward<T>(tensors.input.view(), view_of(tensors.memory), parameters(), saved(),
                                     grad_output.view(), gradients, options, runtime);
  }
  Tensors<T> gradients() const {
    Tensors<T> g(s);
    run(views(g));
    return g;
  }
  long double loss() {
    forward();
    long double sum = 0;
    output.for_each_index([&](const auto& at) {
      sum += static_cast<long double>(output.get(at)) * static_cast<long double>(grad_output.get(at));
    });
    return sum;
  }
};

AttentionOptions causal() { return {.causal = true, .query_offset = QueryAlignment::top_left}; }

std::vector<std::pair<Sizes, AttentionOptions>> all_kinds() {
  return {
      {kSelf, causal()}, {kCross, {}}, {kWithoutProjection, causal()}, {kCross, {.dropout = 0.3, .dropout_seed = 5}}};
}

// Calls f(a, b) for the arrays of two sets of tensors.
template <class T, class U, class F>
void for_each_pair(Tensors<T>& a, Tensors<U>& b, F f) {
  f("input", a.input, b.input), f("memory", a.memory, b.memory), f("w_query", a.w_query, b.w_query);
  f("w_key", a.w_key, b.w_key), f("w_value", a.w_value, b.w_value), f("w_output", a.w_output, b.w_output);
  f("b_query", a.b_query, b.b_query), f("b_key", a.b_key, b.b_key), f("b_value", a.b_value, b.b_value);
  f("b_output", a.b_output, b.b_output);
}

TEST(MultiHeadBackwardInDouble, GradientsMatchCentralDifferences) {
  for (const auto& [sizes, options] : all_kinds()) {
    Case<double> test(sizes, options);
    Tensors<double> g = test.gradients();
    for_each_pair(test.tensors, g, [&](const char* name, auto& array, const auto& gradient) {
      // The largest of all: the gradient of b_key is 0, because it shifts all scores of a row alike.
      double largest = 1;
      gradient.for_each_index([&](const auto& at) { largest = std::max(largest, std::abs(gradient.get(at))); });
      constexpr double h = 1e-4;
      array.for_each_index([&](const auto& at) {
        const double x = array.get(at);
        array.set(at, x + h);
        const long double above = test.loss();
        array.set(at, x - h);
        const long double below = test.loss();
        array.set(at, x);
        const double expected = static_cast<double>((above - below) / static_cast<long double>((x + h) - (x - h)));
        ASSERT_NEAR(gradient.get(at), expected, 1e-6 * largest) << name;
      });
      test.forward();
    });
  }
}

TEST(MultiHeadBackwardInFloat, IsCloseToDouble) {
  for (const auto& [sizes, options] : all_kinds()) {
    Case<double> exact(sizes, options);
    Tensors<double> expected = exact.gradients();
    on_every_instruction_set([&](const kernels::KernelTable&) {
      Case<float> test(sizes, options);
      for_each_pair(test.tensors, exact.tensors, [&](const char*, auto& narrow, const auto& wide) {
        narrow.for_each_index([&](const auto& at) { narrow.set(at, static_cast<float>(wide.get(at))); });
      });
      test.grad_output.for_each_index(
          [&](const auto& at) { test.grad_output.set(at, static_cast<float>(exact.grad_output.get(at))); });
      test.forward();
      Tensors<float> g = test.gradients();
      for_each_pair(g, expected, [&](const char* name, const auto& got, const auto& wide) {
        got.for_each_index(
            [&](const auto& at) { ASSERT_NEAR(static_cast<double>(got.get(at)), wide.get(at), 3e-4) << name; });
      });
    });
  }
}

template <class T>
class MultiHeadBackward : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(MultiHeadBackward, Types);

TYPED_TEST(MultiHeadBackward, AccumulationAddsToExistingValues) {
  using T = TypeParam;
  for (const auto& [sizes, options] : all_kinds()) {
    const Case<T> test(sizes, options);
    Tensors<T> fresh = test.gradients(), sums(sizes), old(sizes);
    Random random(2);
    for_each_pair(sums, old, [&](const char*, auto& a, auto& b) {
      a.fill([&] { return random.normal(); });
      a.for_each_index([&](const auto& at) { b.set(at, a.get(at)); });
    });
    MultiHeadGradients<T> views = Case<T>::views(sums);
    views.accumulate = accumulate_all();
    test.run(views);
    for_each_pair(old, fresh, [&](const char*, auto& a, const auto& b) {
      a.for_each_index([&](const auto& at) { a.set(at, a.get(at) + b.get(at)); });
    });
    EXPECT_TRUE(same_bits(sums.bits(), old.bits()));
  }
}

// A batch in one call, and its entries in two calls: gradients of parameters have the same bits.
TYPED_TEST(MultiHeadBackward, GroupsHaveTheBitsOfSeveralCalls) {
  using T = TypeParam;
  for (Sizes sizes : {kSelf, kCross}) {
    sizes.batch = 5;
    const Case<T> test(sizes, sizes.has_memory ? AttentionOptions{} : causal());
    Tensors<T> whole(sizes), parts(sizes);
    MultiHeadGradients<T> views = Case<T>::views(whole);
    views.rows_per_group = sizes.length;
    test.run(views);
    for (const auto& [begin, end] : {std::pair<Index, Index>{0, 2}, {2, 5}}) {
      const auto slice = [&](const auto& view) { return view.absent() ? view : sliced(view, 0, begin, end); };
      MultiHeadGradients<T> of_part = Case<T>::views(parts);
      of_part.grad_input = slice(of_part.grad_input);
      of_part.grad_memory = slice(of_part.grad_memory);
      of_part.rows_per_group = sizes.length;
      if (begin > 0) {
        of_part.accumulate = accumulate_all();
        of_part.accumulate.grad_input = of_part.accumulate.grad_memory = false;
      }
      MultiHeadForwardState<T> saved = test.saved();
      saved = {slice(saved.query),   slice(saved.key),     slice(saved.value),
               slice(saved.context), slice(saved.row_max), slice(saved.row_sum)};
      multi_head_attention_backward<T>(slice(test.tensors.input.view()), slice(view_of(test.tensors.memory)),
                                       test.parameters(), saved, slice(test.grad_output.view()), of_part, test.options);
    }
    EXPECT_TRUE(same_bits(parts.bits(), whole.bits()));
  }
}

TYPED_TEST(MultiHeadBackward, LayoutsAndThreadsDoNotChangeBits) {
  using T = TypeParam;
  Random random(3);
  for (const auto& [sizes, options] : all_kinds()) {
    const Case<T> dense(sizes, options);
    Tensors<T> expected = dense.gradients();
    for (int n = 0; n < 12; ++n) {
      Case<T> strided(sizes, options);
      Tensors<T> g(sizes), old(sizes);
      const bool accumulate = n % 3 == 0;
      const auto relay = [&]<int Rank>(Array<T, Rank>& array, bool is_output) {
        Layout<Rank> layout = random_layout<Rank>(random, is_output);
        layout.repeated = {};
        array = relaid(array, layout);
      };
      strided.tensors.for_each([&](const char*, auto& array) { relay(array, false); });
      g.for_each([&](const char*, auto& array) {
        array.fill([&] { return 0; });
        relay(array, true);
      });
      for (auto* array : {&strided.query, &strided.key, &strided.value, &strided.context}) relay(*array, false);
      for (auto* array : {&strided.row_max, &strided.row_sum, &strided.grad_output}) relay(*array, false);
      MultiHeadGradients<T> views = Case<T>::views(g);
      if (accumulate) views.accumulate = accumulate_all();
      strided.run(views, {.num_threads = n % 2 == 0 ? 1 : 5});
      for_each_pair(g, expected, [&](const char* name, auto& got, const auto& wanted) {
        got.for_each_index([&](const auto& at) { ASSERT_EQ(got.get(at), wanted.get(at)) << name << " of call " << n; });
        EXPECT_TRUE(got.surroundings_untouched()) << name;
      });
    }
  }
  // Large enough for several tasks.
  Sizes large = kSelf;
  large.length = large.keys = 150;
  large.width = large.key_width = 80;
  const Case<T> test(large, causal());
  Tensors<T> one(large), five(large);
  test.run(Case<T>::views(one), {.num_threads = 1});
  test.run(Case<T>::views(five), {.num_threads = 5});
  EXPECT_TRUE(same_bits(five.bits(), one.bits()));
}

TYPED_TEST(MultiHeadBackward, EachGradientAloneHasTheSameBits) {
  using T = TypeParam;
  for (const auto& [sizes, options] : all_kinds()) {
    const Case<T> test(sizes, options);
    Tensors<T> expected = test.gradients(), got(sizes);
    const MultiHeadGradients<T> all = Case<T>::views(got);
    const auto run_alone = [&](auto member) {
      MultiHeadGradients<T> views;
      views.*member = all.*member;
      test.run(views);
    };
    using G = MultiHeadGradients<T>;
    run_alone(&G::grad_input), run_alone(&G::grad_memory);
    for (const auto member : {&G::grad_w_query, &G::grad_w_key, &G::grad_w_value, &G::grad_w_output}) run_alone(member);
    for (const auto member : {&G::grad_b_query, &G::grad_b_key, &G::grad_b_value, &G::grad_b_output}) run_alone(member);
    EXPECT_TRUE(same_bits(got.bits(), expected.bits()));
  }
}

TYPED_TEST(MultiHeadBackward, EmptyExtentsGiveGradientsOfZero) {
  using T = TypeParam;
  // No batch entries, no queries, no keys.
  for (const auto& change : std::vector<std::function<void(Sizes&)>>{
           [](Sizes& s) { s.batch = 0; }, [](Sizes& s) { s.length = 0; }, [](Sizes& s) { s.keys = 0; }}) {
    Sizes sizes = kCross;
    change(sizes);
    const Case<T> test(sizes);
    Tensors<T> g(sizes);
    MultiHeadGradients<T> views = Case<T>::views(g);
    views.rows_per_group = sizes.length;
    test.run(views);
    g.for_each([&](const char* name, const auto& array) {
      // Without keys, the output is b_output, and nothing else matters.
      if (std::string(name) == "b_output" && sizes.keys == 0) return;
      array.for_each_index([&](const auto& at) { EXPECT_EQ(array.get(at), 0) << name; });
    });
  }
}

TEST(MultiHeadBackwardErrors, AreReportedBeforeAnythingIsWritten) {
  const auto expect = [](const Sizes& sizes, const std::string& text, auto change) {
    Case<float> test(sizes, sizes.has_memory ? AttentionOptions{} : causal());
    Tensors<float> g(sizes);
    g.for_each([](const char*, auto& array) { array.fill([] { return 7; }); });
    const std::vector<std::uint64_t> before = g.bits();
    MultiHeadParameters<float> parameters = test.parameters();
    MultiHeadForwardState<float> saved = test.saved();
    MultiHeadGradients<float> gradients = Case<float>::views(g);
    AttentionOptions options = test.options;
    change(parameters, saved, gradients, options, test);
    EXPECT_EQ(rejection([&] {
                multi_head_attention_backward<float>(test.tensors.input.view(),
                                                     view_of(std::as_const(test.tensors.memory)), parameters, saved,
                                                     std::as_const(test.grad_output).view(), gradients, options);
              }),
              "multi_head_attention_backward: " + text);
    EXPECT_EQ(g.bits(), before) << text;
  };
  expect(kSelf, "w_query has shape (6, 12); expected (7, 12)",
         [](auto& parameters, auto&, auto&, auto&, auto&) { parameters.w_query.shape[0] = 6; });
  expect(kSelf, "query is missing; expected (3, 4, 5, 3)",
         [](auto&, auto& saved, auto&, auto&, auto&) { saved.query = {}; });
  expect(kSelf, "context has shape (3, 4, 5, 3); expected (3, 4, 5, 2)",
         [](auto&, auto& saved, auto&, auto&, auto&) { saved.context.shape[3] = 3; });
  expect(kSelf, "row_sum is missing; expected (3, 4, 5)",
         [](auto&, auto& saved, auto&, auto&, auto&) { saved.row_sum = {}; });
  expect(kSelf, "grad_output has shape (3, 5, 7); expected (3, 5, 6)",
         [](auto&, auto&, auto&, auto&, auto& test) { test.grad_output = Array<float, 3>({3, 5, 7}); });
  expect(kSelf, "grad_w_key has shape (7, 5); expected (7, 6)",
         [](auto&, auto&, auto& gradients, auto&, auto&) { gradients.grad_w_key.shape[1] = 5; });
  expect(kSelf, "grad_memory is given without memory; expected both or neither",
         [](auto&, auto&, auto& gradients, auto&, auto&) { gradients.grad_memory = gradients.grad_input; });
  expect(kWithoutProjection, "grad_b_output is given without w_output; expected both or neither",
         [](auto&, auto&, auto& gradients, auto&, auto&) { gradients.grad_b_output = gradients.grad_b_query; });
  expect(kSelf, "grad_w_query overlaps w_value; expected separate memory",
         [](auto& parameters, auto&, auto& gradients, auto&, auto&) {
           parameters.w_value.data = gradients.grad_w_query.data;
         });
  expect(kSelf, "rows_per_group is -1; expected at least 0",
         [](auto&, auto&, auto& gradients, auto&, auto&) { gradients.rows_per_group = -1; });
  expect(kCross, "rows_per_group is 6; expected a multiple of the 4 queries, because memory is given",
         [](auto&, auto&, auto& gradients, auto&, auto&) { gradients.rows_per_group = 6; });
  expect(kSelf, "causal differs from the forward call that wrote the fingerprint; expected the same options",
         [](auto&, auto&, auto&, auto& options, auto&) { options.causal = false; });
}

}  // namespace
}  // namespace regard::multi_head_backward_test
