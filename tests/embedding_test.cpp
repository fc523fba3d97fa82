// SPDX-License-Identifier: Apache-2.0
//
// embedding_forward and embedding_backward compared with plain loops, without tolerance, in every layout and on every
// instruction set; the backward pass as the adjoint of the forward pass; groups of rows; rejections.
// Read next: src/layers/embedding.cpp.
#include "regard/embedding.h"

#include "support/attention_cases.h"
#include "support/instruction_sets.h"
#include "support/rejection.h"
#include "support/same_bits.h"

namespace regard::embedding_test {
namespace {

template <class T>
class Embedding : public testing::Test {};
using Types = testing::Types<float, double, bfloat16>;
TYPED_TEST_SUITE(Embedding, Types);

template <class T, int Rank>
Array<T, Rank> numbers(Random& random, const typename TensorView<T, Rank>::Shape& shape) {
  Array<T, Rank> array(shape);
  array.fill([&] { return static_cast<ComputeType<T>>(random.normal()); });
  return array;
}

Array<Index, 1> random_indices(Random& random, Index rows, Index table_rows) {
  Array<Index, 1> indices({rows});
  indices.fill([&] { return random.integer(0, table_rows - 1); });
  return indices;
}

struct Shape {
  Index rows, table_rows, width;
};
constexpr Shape kShapes[] = {{1, 1, 1},   {20, 7, 1},    {5, 300, 16},  {64, 9, 17},   {200, 2, 33},
                             {130, 1, 5}, {30, 20, 513}, {7, 65, 1100}, {300, 50, 30}, {50, 70000, 1}};

TYPED_TEST(Embedding, CopiesOrAddsRowsInEveryLayout) {
  using T = TypeParam;
  using Compute = ComputeType<T>;
  Random random(1);
  for (const auto& [rows, table_rows, width] : kShapes) {
    const auto table = numbers<T, 2>(random, {table_rows, width});
    const auto old = numbers<T, 2>(random, {rows, width});
    const Array<Index, 1> indices = random_indices(random, rows, table_rows);
    for (int n = 0; n < 4; ++n) {
      const auto strided = relaid(
          table, n == 0 ? Layout<2>::dense() : [&] {
            Layout<2> layout = random_layout<2>(random, false);
            layout.repeated = {};
            return layout;
          }());
      const auto strided_indices = relaid(indices, random_layout<1>(random, true));
      const Layout<2> of_output = n == 0 ? Layout<2>::dense() : random_layout<2>(random, true);
      on_every_instruction_set([&](const kernels::KernelTable&) {
        for (const bool accumulate : {false, true}) {
          Array<T, 2> output = relaid(old, of_output);
          embedding_forward<T>(std::as_const(strided).view(), strided_indices.view(), output.view(),
                               {.accumulate = accumulate});
          output.for_each_index([&](const auto& at) {
            const T from = table.get({indices.get({at[0]}), at[1]});
            const T expected = accumulate ? T(static_cast<Compute>(old.get(at)) + static_cast<Compute>(from)) : from;
            ASSERT_EQ(static_cast<Compute>(output.get(at)), static_cast<Compute>(expected));
          });
        }
      });
    }
  }
}

// Sums of groups in double, rounded to the compute type, and added in order.
template <class T>
Array<T, 2> plain_gradient(const Array<Index, 1>& indices, const Array<T, 2>& grad_output, const Array<T, 2>& old,
                           bool accumulate, Index rows_per_group) {
  using Compute = ComputeType<T>;
  const auto [rows, width] = grad_output.shape();
  const Index table_rows = old.shape()[0], group = rows_per_group > 0 ? rows_per_group : std::max<Index>(1, rows);
  std::vector<Compute> total(static_cast<std::size_t>(table_rows * width));
  if (accumulate) {
    old.for_each_index([&](const auto& at) {
      total[static_cast<std::size_t>(at[0] * width + at[1])] = static_cast<Compute>(old.get(at));
    });
  }
  for (Index begin = 0; begin < rows; begin += group) {
    std::vector<double> sums(total.size());
    std::vector<bool> occurs(static_cast<std::size_t>(table_rows));
    for (Index r = begin; r < std::min(rows, begin + group); ++r) {
      const Index index = indices.get({r});
      occurs[static_cast<std::size_t>(index)] = true;
      for (Index e = 0; e < width; ++e)
        sums[static_cast<std::size_t>(index * width + e)] +=
            static_cast<double>(static_cast<Compute>(grad_output.get({r, e})));
    }
    for (std::size_t n = 0; n < total.size(); ++n) {
      if (occurs[n / static_cast<std::size_t>(width)]) total[n] += static_cast<Compute>(sums[n]);
    }
  }
  Array<T, 2> result(old.shape());
  result.for_each_index(
      [&](const auto& at) { result.set(at, T(total[static_cast<std::size_t>(at[0] * width + at[1])])); });
  return result;
}

template <class T>
void expect_equal(const Array<T, 2>& got, const Array<T, 2>& expected) {
  got.for_each_index([&](const auto& at) {
    ASSERT_EQ(static_cast<ComputeType<T>>(got.get(at)), static_cast<ComputeType<T>>(expected.get(at)))
        << at[0] << ", " << at[1];
  });
}

TYPED_TEST(Embedding, GradientMatchesPlainLoopsInEveryLayout) {
  using T = TypeParam;
  Random random(2);
  for (const auto& [rows, table_rows, width] : kShapes) {
    const auto grad_output = numbers<T, 2>(random, {rows, width});
    const auto old = numbers<T, 2>(random, {table_rows, width});
    const Array<Index, 1> indices = random_indices(random, rows, table_rows);
    for (int n = 0; n < 4; ++n) {
      const bool accumulate = n % 2 != 0;
      const Index group = n < 2 ? 0 : 7;
      const Array<T, 2> expected = plain_gradient(indices, grad_output, old, accumulate, group);
      Layout<2> of_grad_output = random_layout<2>(random, false);
      of_grad_output.repeated = {};
      const auto strided = relaid(grad_output, n == 0 ? Layout<2>::dense() : of_grad_output);
      const auto strided_indices = relaid(indices, random_layout<1>(random, true));
      const Layout<2> of_table = n == 0 ? Layout<2>::dense() : random_layout<2>(random, true);
      on_every_instruction_set([&](const kernels::KernelTable&) {
        Array<T, 2> grad_table = relaid(old, of_table);
        embedding_backward<T>(strided_indices.view(), std::as_const(strided).view(),
                              {.grad_table = grad_table.view(), .accumulate = accumulate, .rows_per_group = group});
        expect_equal(grad_table, expected);
        EXPECT_TRUE(grad_table.surroundings_untouched());
      });
    }
  }
}

TYPED_TEST(Embedding, ThreadsDoNotChangeBits) {
  using T = TypeParam;
  Random random(3);
  constexpr Index kRows = 5000, kWidth = 700;
  for (const Index table_rows : {Index{1}, Index{3}, Index{400}}) {
    const auto grad_output = numbers<T, 2>(random, {kRows, kWidth});
    const Array<Index, 1> indices = random_indices(random, kRows, table_rows);
    Array<T, 2> one({table_rows, kWidth}), five({table_rows, kWidth});
    const auto run = [&](Array<T, 2>& to, int threads) {
      embedding_backward<T>(indices.view(), std::as_const(grad_output).view(),
                            {.grad_table = to.view(), .rows_per_group = 64}, {.num_threads = threads});
    };
    run(one, 1);
    run(five, 5);
    EXPECT_TRUE(same_bits(bits_of(five), bits_of(one)));
  }
}

// A batch in one call, and the same batch in three calls with whole groups.
TEST(EmbeddingGroups, HaveTheBitsOfSeveralCalls) {
  Random random(4);
  constexpr Index kRows = 64, kTableRows = 10, kWidth = 20, kGroup = 8;
  const auto grad_output = numbers<float, 2>(random, {kRows, kWidth});
  const Array<Index, 1> indices = random_indices(random, kRows, kTableRows);
  Array<float, 2> whole({kTableRows, kWidth}), parts({kTableRows, kWidth}), ungrouped({kTableRows, kWidth});
  embedding_backward<float>(indices.view(), grad_output.view(), {.grad_table = whole.view(), .rows_per_group = kGroup});
  embedding_backward<float>(indices.view(), grad_output.view(), {.grad_table = ungrouped.view()});
  for (const auto& [begin, end] : {std::pair<Index, Index>{0, 8}, {8, 40}, {40, 64}}) {
    embedding_backward<float>(sliced(indices.view(), 0, begin, end), sliced(grad_output.view(), 0, begin, end),
                              {.grad_table = parts.view(), .accumulate = begin > 0, .rows_per_group = kGroup});
  }
  EXPECT_TRUE(same_bits(bits_of(parts), bits_of(whole)));
  EXPECT_FALSE(same_bits(bits_of(ungrouped), bits_of(whole)));
}

// ⟨backward(y), x⟩ = ⟨y, forward(x)⟩: the pass is linear, so this holds for the derivative.
TEST(EmbeddingInDouble, BackwardIsTheAdjointOfForward) {
  Random random(5);
  const auto table = numbers<double, 2>(random, {30, 12}), y = numbers<double, 2>(random, {200, 12});
  const Array<Index, 1> indices = random_indices(random, 200, 30);
  Array<double, 2> output({200, 12}), grad_table({30, 12});
  embedding_forward<double>(table.view(), indices.view(), output.view());
  embedding_backward<double>(indices.view(), y.view(), {.grad_table = grad_table.view()});
  double of_tables = 0, of_outputs = 0;
  table.for_each_index([&](const auto& at) { of_tables += table.get(at) * grad_table.get(at); });
  y.for_each_index([&](const auto& at) { of_outputs += y.get(at) * output.get(at); });
  EXPECT_NEAR(of_tables, of_outputs, 1e-12 * std::abs(of_outputs) + 1e-12);
}

TYPED_TEST(Embedding, NoRowsGiveAGradientOfZero) {
  using T = TypeParam;
  Random random(6);
  auto table = numbers<T, 2>(random, {5, 3});
  const std::vector<std::uint64_t> old = bits_of(table);
  embedding_backward<T>({nullptr, {0}}, {nullptr, {0, 3}}, {.grad_table = table.view(), .accumulate = true});
  EXPECT_EQ(bits_of(table), old);
  embedding_backward<T>({nullptr, {0}}, {nullptr, {0, 3}}, {.grad_table = table.view()});
  EXPECT_EQ(bits_of(table), std::vector<std::uint64_t>(15, 0));
  EXPECT_NO_THROW(embedding_forward<T>(table.view(), {nullptr, {0}}, TensorView<T, 2>(nullptr, {0, 3})));
  const Array<Index, 1> indices = random_indices(random, 4, 5);
  EXPECT_NO_THROW(embedding_forward<T>({nullptr, {5, 0}}, indices.view(), TensorView<T, 2>(nullptr, {4, 0})));
}

TEST(EmbeddingErrors, AreReportedBeforeAnythingIsWritten) {
  const std::vector<float> numbers(60, 1);
  std::vector<float> output(60, 7);
  const auto forward = [&](const std::vector<Index>& indices, std::array<Index, 2> table, TensorView<float, 2> to) {
    const std::string got = rejection([&] {
      embedding_forward<float>({numbers.data(), table}, {indices.data(), {static_cast<Index>(indices.size())}}, to);
    });
    EXPECT_TRUE(got == "accepted" || output == std::vector<float>(60, 7));
    return got;
  };
  const TensorView<float, 2> to(output.data(), {3, 4});
  EXPECT_EQ(forward({0, 5, 1}, {5, 4}, to), "embedding_forward: indices[1] is 5; expected 0 to 4");
  EXPECT_EQ(forward({0, 1, -1}, {5, 4}, to), "embedding_forward: indices[2] is -1; expected 0 to 4");
  EXPECT_EQ(forward({0, 0, 0}, {0, 4}, to),
            "embedding_forward: indices[0] is 0; expected none, because the table has no rows");
  EXPECT_EQ(forward({0, 1}, {5, 4}, to), "embedding_forward: indices has shape (2); expected (3) for output (3, 4)");
  EXPECT_EQ(forward({0, 1, 2}, {5, 3}, to),
            "embedding_forward: output has shape (3, 4); expected (3, 3) for table (5, 3)");
  EXPECT_EQ(rejection([&] {
              embedding_forward<float>({output.data(), {5, 4}}, {std::array<Index, 3>{}.data(), {3}},
                                       TensorView<float, 2>(output.data() + 8, {3, 4}));
            }),
            "embedding_forward: output overlaps table; expected separate memory");
  const auto backward = [&](const std::vector<Index>& indices, std::array<Index, 2> grad_output,
                            const EmbeddingGradients<float>& gradients) {
    const std::string got = rejection([&] {
      embedding_backward<float>({indices.data(), {static_cast<Index>(indices.size())}}, {numbers.data(), grad_output},
                                gradients);
    });
    EXPECT_TRUE(got == "accepted" || output == std::vector<float>(60, 7));
    return got;
  };
  const TensorView<float, 2> table(output.data(), {5, 4});
  EXPECT_EQ(backward({0, 5, 1}, {3, 4}, {table}), "embedding_backward: indices[1] is 5; expected 0 to 4");
  EXPECT_EQ(backward({0, 1}, {3, 4}, {table}),
            "embedding_backward: indices has shape (2); expected (3) for grad_output (3, 4)");
  EXPECT_EQ(backward({0, 1, 2}, {3, 3}, {table}),
            "embedding_backward: grad_table has shape (5, 4); expected (5, 3) for grad_output (3, 3)");
  EXPECT_EQ(backward({0, 1, 2}, {3, 4}, {.grad_table = table, .rows_per_group = -1}),
            "embedding_backward: rows_per_group is -1; expected at least 0");
  EXPECT_EQ(backward({0, 1, 2}, {3, 4}, {{output.data(), {5, 4}, {0, 1}}}),
            "embedding_backward: grad_table overlaps itself (byte strides (4, 0), extents (4, 5)); "
            "expected non-overlapping elements");
  EXPECT_EQ(backward({0, 1, 2}, {3, 4}, {table}), "accepted");
}

}  // namespace
}  // namespace regard::embedding_test
