// SPDX-License-Identifier: Apache-2.0
//
// linear_backward compared with plain loops in a wider type, in every layout and on every instruction set; threads do
// not change bits; mistakes are rejected.
// Read next: linear_test.cpp.
#include "regard/linear_backward.h"

#include "support/arrays.h"
#include "support/instruction_sets.h"
#include "support/rejection.h"
#include "support/same_bits.h"

namespace regard::linear_backward_test {
namespace {

template <class T>
class LinearBackward : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(LinearBackward, Types);

template <class T>
Array<T, 2> random_matrix(Random& random, const std::array<Index, 2>& shape, const Layout<2>& layout) {
  const auto values = normal_array<ComputeType<T>, 2>(random, shape);
  Array<T, 2> matrix(shape, layout);
  values.for_each_index([&](const auto& at) { matrix.set(at, T(values.get(at))); });
  return matrix;
}

template <class T>
struct Call {
  Array<T, 2> input, weight, grad_output, grad_input, grad_weight;
  Array<T, 1> grad_bias;

  Call() = default;
  Call(Index rows, Index inputs, Index outputs, const Layout<2>& layout = Layout<2>::dense()) {
    Random random(7);
    input = random_matrix<T>(random, {rows, inputs}, layout);
    weight = random_matrix<T>(random, {inputs, outputs}, layout);
    grad_output = random_matrix<T>(random, {rows, outputs}, layout);
    grad_input = Array<T, 2>({rows, inputs}, layout);
    grad_weight = Array<T, 2>({inputs, outputs}, layout);
    grad_bias = Array<T, 1>({outputs});
  }
  LinearGradients<T> views() {
    return {.grad_input = grad_input.view(), .grad_weight = grad_weight.view(), .grad_bias = grad_bias.view()};
  }
  void run(const Runtime& runtime = {}) {
    linear_backward<T>(std::as_const(input).view(), std::as_const(weight).view(), std::as_const(grad_output).view(),
                       views(), runtime);
  }
};

template <class T, int Rank>
void expect_close(const Array<T, Rank>& got, const reference::Linear<T>& expected, Index chain) {
  const std::vector<T> x = got.values();
  ASSERT_EQ(x.size(), expected.output.size());
  for (std::size_t n = 0; n < x.size(); ++n) {
    EXPECT_LE(std::abs(static_cast<reference::Wide<T>>(x[n]) - expected.output[n]),
              reference::kUnit<T> * static_cast<reference::Wide<T>>(chain + 2) * expected.magnitude[n])
        << n;
  }
}

template <class T>
TensorView<const T, 2> transposed(const Array<T, 2>& array) {
  const auto view = array.view();
  return {view.data, {view.shape[1], view.shape[0]}, {view.strides[1], view.strides[0]}};
}

TYPED_TEST(LinearBackward, MatchesPlainLoops) {
  using T = TypeParam;
  Layout<2> turned = Layout<2>::dense();
  std::swap(turned.order[0], turned.order[1]);
  turned.gap = 3;
  turned.lead_bytes = 5;
  for (const auto& layout : {Layout<2>::dense(), turned}) {
    for (const auto& [rows, inputs, outputs] :
         {std::array<Index, 3>{1, 1, 1}, {61, 33, 65}, {130, 17, 7}, {0, 3, 4}, {5, 3, 0}, {300, 5, 40}}) {
      on_every_instruction_set([&](const kernels::KernelTable&) {
        Call<T> call(rows, inputs, outputs, layout);
        call.run();
        const auto grad = std::as_const(call.grad_output).view();
        expect_close(call.grad_input, reference::linear<T>(grad, transposed(call.weight), {}), outputs);
        expect_close(call.grad_weight, reference::linear<T>(transposed(call.input), grad, {}), rows);
        Array<T, 2> ones({1, rows});
        ones.fill([] { return 1; });
        expect_close(call.grad_bias, reference::linear<T>(std::as_const(ones).view(), grad, {}), 1);
        EXPECT_TRUE(call.grad_input.surroundings_untouched() && call.grad_weight.surroundings_untouched());
      });
    }
  }
}

TYPED_TEST(LinearBackward, AccumulationAddsToExistingValues) {
  using T = TypeParam;
  Layout<2> turned = Layout<2>::dense();
  std::swap(turned.order[0], turned.order[1]);
  turned.lead_bytes = 5;
  for (const auto& layout : {Layout<2>::dense(), turned}) {
    for (const auto& [rows, inputs, outputs] : {std::array<Index, 3>{130, 17, 70}, {0, 3, 4}}) {
      on_every_instruction_set([&](const kernels::KernelTable&) {
        const auto filled = [&] {
          Call<T> call(rows, inputs, outputs, layout);
          Random random(8);
          for (auto* array : {&call.grad_input, &call.grad_weight})
            *array = relaid(normal_array<T, 2>(random, array->shape()), layout);
          call.grad_bias = normal_array<T, 1>(random, {outputs});
          return call;
        };
        Call<T> fresh(rows, inputs, outputs, layout);
        fresh.run();
        const Call<T> old = filled();
        for (const int accumulated : {1, 2, 4, 7}) {
          Call<T> call = filled();
          LinearGradients<T> views = call.views();
          views.accumulate = {.grad_input = (accumulated & 1) != 0,
                              .grad_weight = (accumulated & 2) != 0,
                              .grad_bias = (accumulated & 4) != 0};
          linear_backward<T>(std::as_const(call.input).view(), std::as_const(call.weight).view(),
                             std::as_const(call.grad_output).view(), views);
          const auto expect = [&](const auto& got, const auto& before, const auto& gradient, bool added) {
            got.for_each_index([&](const auto& at) {
              EXPECT_EQ(got.get(at), added ? before.get(at) + gradient.get(at) : gradient.get(at));
            });
          };
          expect(call.grad_input, old.grad_input, fresh.grad_input, views.accumulate.grad_input);
          expect(call.grad_weight, old.grad_weight, fresh.grad_weight, views.accumulate.grad_weight);
          expect(call.grad_bias, old.grad_bias, fresh.grad_bias, views.accumulate.grad_bias);
          EXPECT_TRUE(call.grad_input.surroundings_untouched() && call.grad_weight.surroundings_untouched());
        }
      });
    }
  }
}

TYPED_TEST(LinearBackward, ThreadsDoNotChangeBits) {
  using T = TypeParam;
  std::vector<std::uint64_t> input, weight, bias;
  for (const int threads : {1, 2, 5}) {
    Call<T> call(200, 300, 130);
    Runtime runtime;
    runtime.num_threads = threads;
    call.run(runtime);
    if (input.empty()) input = bits_of(call.grad_input);
    if (weight.empty()) weight = bits_of(call.grad_weight);
    if (bias.empty()) bias = bits_of(call.grad_bias);
    EXPECT_TRUE(same_bits(bits_of(call.grad_input), input));
    EXPECT_TRUE(same_bits(bits_of(call.grad_weight), weight));
    EXPECT_TRUE(same_bits(bits_of(call.grad_bias), bias));
  }
}

// The gradients of the parameters, with groups of rows, of rows first … first + count − 1; accumulated if asked.
template <class T, class Output>
void parameter_gradients(const Call<T>& call, Index first, Index count, Index rows_per_group, bool accumulate,
                         Array<Output, 2>& grad_weight, Array<Output, 1>& grad_bias) {
  LinearGradients<Output> gradients;
  gradients.grad_weight = grad_weight.view();
  gradients.grad_bias = grad_bias.view();
  gradients.accumulate = {.grad_weight = accumulate, .grad_bias = accumulate};
  gradients.rows_per_group = rows_per_group;
  const auto rows = [&](const Array<T, 2>& of) { return sliced(of.view(), 0, first, first + count); };
  if constexpr (std::same_as<T, Output>) {
    linear_backward<T>(rows(call.input), {}, rows(call.grad_output), gradients);
  } else {
    linear_backward(rows(call.input), {}, rows(call.grad_output), gradients);
  }
}

template <class T, class Output = T>
void expect_groups_are_summed_in_order(Index rows, Index group) {
  const Call<T> call(rows, 17, 70);
  const auto check = [&](const kernels::KernelTable&) {
    Layout<2> turned = Layout<2>::dense();
    std::swap(turned.order[0], turned.order[1]);
    for (const auto& layout : {Layout<2>::dense(), turned}) {
      // One call; a call for each group, accumulated; and the sums of the groups, added here.
      Array<Output, 2> whole({17, 70}, layout), called({17, 70}, layout), one({17, 70}, layout), added({17, 70});
      Array<Output, 1> whole_bias({70}), called_bias({70}), one_bias({70}), added_bias({70});
      parameter_gradients(call, 0, rows, group, false, whole, whole_bias);
      for (Index first = 0; first < rows; first += group) {
        const Index count = std::min(group, rows - first);
        parameter_gradients(call, first, count, group, first > 0, called, called_bias);
        parameter_gradients(call, first, count, 0, false, one, one_bias);
        const auto add = [&](auto& sum, const auto& more) {
          sum.for_each_index([&](const auto& at) {
            sum.set(at, first == 0 ? more.get(at) : static_cast<Output>(sum.get(at) + more.get(at)));
          });
        };
        add(added, one);
        add(added_bias, one_bias);
      }
      EXPECT_TRUE(same_bits(bits_of(whole), bits_of(called)) && same_bits(bits_of(whole), bits_of(added)));
      EXPECT_TRUE(same_bits(bits_of(whole_bias), bits_of(called_bias)));
      EXPECT_TRUE(same_bits(bits_of(whole_bias), bits_of(added_bias)));
      // Accumulated onto existing values, group after group.
      parameter_gradients(call, 0, rows, group, true, whole, whole_bias);
      for (Index first = 0; first < rows; first += group)
        parameter_gradients(call, first, std::min(group, rows - first), group, true, called, called_bias);
      EXPECT_TRUE(same_bits(bits_of(whole), bits_of(called)) && same_bits(bits_of(whole_bias), bits_of(called_bias)));
    }
  };
  on_every_instruction_set(check);
  if constexpr (!std::same_as<T, bfloat16>) return;
  on_every_dot_table(check);
  on_every_amx_table(check);
}

TYPED_TEST(LinearBackward, GroupsOfRowsAreSummedInOrder) {
  for (const auto& [rows, group] : {std::pair<Index, Index>{12, 4}, {130, 64}, {7, 3}, {600, 300}, {4200, 300}, {5, 9}})
    expect_groups_are_summed_in_order<TypeParam>(rows, group);
}

TEST(LinearBackwardTypes, GroupsOfBfloat16RowsAreSummedInOrder) {
  for (const auto& [rows, group] : {std::pair<Index, Index>{12, 4}, {130, 64}, {7, 3}, {90, 33}, {5, 9}})
    expect_groups_are_summed_in_order<bfloat16, float>(rows, group);
}

TEST(LinearBackwardRejections, NameTheArgument) {
  Call<float> call(2, 3, 4);
  LinearGradients<float> views = call.views();
  const auto input = std::as_const(call.input).view(), weight = std::as_const(call.weight).view();
  const auto grad = std::as_const(call.grad_output).view();
  const auto run = [&](TensorView<const float, 2> i, TensorView<const float, 2> p) {
    return rejection([&] { linear_backward<float>(i, p, grad, views); });
  };
  EXPECT_EQ(run(input, weight), "accepted");
  EXPECT_EQ(run({}, weight), "linear_backward: input is missing; expected (2, 3) for grad_weight");
  EXPECT_EQ(run(input, {}), "linear_backward: weight is missing; expected (3, 4) for grad_input");
  EXPECT_EQ(run(input, transposed(call.weight)), "linear_backward: weight has shape (4, 3); expected (3, 4)");
  views.rows_per_group = -1;
  EXPECT_EQ(run(input, weight), "linear_backward: rows_per_group is -1; expected at least 0");
  views.rows_per_group = 0;
  views.grad_weight = {};
  EXPECT_EQ(run({}, weight), "accepted");
  views.grad_bias.shape[0] = 3;
  EXPECT_EQ(run({}, weight), "linear_backward: grad_bias has shape (3); expected (4)");
  views.grad_bias = {};
  views.grad_input.data = const_cast<float*>(grad.data);
  EXPECT_EQ(run({}, weight), "linear_backward: grad_input overlaps grad_output; expected separate memory");
}

TEST(LinearBackwardTypes, NarrowGradientsEqualWideOnesRoundedOnce) {
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    if (table.bf16_dot || table.bf16_amx) return;
    Call<float> wide(70, 20, 33);
    Call<bfloat16> narrow;
    const auto round = [](Array<float, 2>& from) {
      Array<bfloat16, 2> to(from.shape());
      to.for_each_index([&](const auto& at) {
        to.set(at, bfloat16(from.get(at)));
        from.set(at, static_cast<float>(to.get(at)));
      });
      return to;
    };
    narrow.input = round(wide.input);
    narrow.weight = round(wide.weight);
    narrow.grad_output = round(wide.grad_output);
    narrow.grad_input = Array<bfloat16, 2>({70, 20});
    narrow.grad_weight = Array<bfloat16, 2>({20, 33});
    narrow.grad_bias = Array<bfloat16, 1>({33});
    narrow.run();
    wide.run();
    EXPECT_TRUE(same_bits(bits_of(narrow.grad_input), bits_of(round(wide.grad_input))));
    EXPECT_TRUE(same_bits(bits_of(narrow.grad_weight), bits_of(round(wide.grad_weight))));
    // When accumulating, the sum of floats is rounded, not the gradient before it.
    const std::vector<bfloat16> old_input = narrow.grad_input.values(), old_weight = narrow.grad_weight.values(),
                                old_bias = narrow.grad_bias.values();
    LinearGradients<bfloat16> views = narrow.views();
    views.accumulate = {.grad_input = true, .grad_weight = true, .grad_bias = true};
    linear_backward<bfloat16>(std::as_const(narrow.input).view(), std::as_const(narrow.weight).view(),
                              std::as_const(narrow.grad_output).view(), views);
    wide.run();
    const auto expect = [](const auto& got, const std::vector<bfloat16>& before, const auto& gradient) {
      std::size_t n = 0;
      got.for_each_index([&](const auto& at) {
        EXPECT_EQ(got.get(at).bits, bfloat16(static_cast<float>(before[n++]) + gradient.get(at)).bits);
      });
    };
    expect(narrow.grad_input, old_input, wide.grad_input);
    expect(narrow.grad_weight, old_weight, wide.grad_weight);
    expect(narrow.grad_bias, old_bias, wide.grad_bias);
  });
}

}  // namespace
}  // namespace regard::linear_backward_test
