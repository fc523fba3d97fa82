// SPDX-License-Identifier: Apache-2.0
//
// One input of each lesson is changed at random (fixed seed), and every later number is compared with plain loops in
// double: attention with reference.h, the rest with the loops here. So no lesson prints stored numbers.
// Float32 lessons may differ from double by rounding: 1e-5 of the largest number of a step; double ones by 1e-12.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "regard/explain/lesson.h"
#include "regard/explain/random.h"
#include "support/reference.h"
#include "support/test_size.h"

namespace regard::lesson_change_test {
namespace {

// Heads of tokens of dimensions; a score is (query, key) in either layout.
struct Numbers {
  Index heads = 1;
  Index rows = 0;
  Index columns = 0;
  std::vector<double> at_all{};

  double& at(Index h, Index r, Index c) { return at_all[static_cast<std::size_t>((h * rows + r) * columns + c)]; }
  double at(Index h, Index r, Index c) const { return at_all[static_cast<std::size_t>((h * rows + r) * columns + c)]; }
};

Numbers zeros(Index heads, Index rows, Index columns) {
  return {heads, rows, columns, std::vector<double>(static_cast<std::size_t>(heads * rows * columns))};
}

template <class Function>
Numbers fill(Index heads, Index rows, Index columns, Function function) {
  Numbers n = zeros(heads, rows, columns);
  for (Index h = 0; h < heads; ++h) {
    for (Index r = 0; r < rows; ++r) {
      for (Index c = 0; c < columns; ++c) n.at(h, r, c) = function(h, r, c);
    }
  }
  return n;
}

Numbers of_matrix(const Matrix& m, bool transpose) {
  return fill(m.num_heads, transpose ? m.num_columns : m.num_rows, transpose ? m.num_rows : m.num_columns,
              [&](Index h, Index r, Index c) { return m.numbers[transpose ? m.index(h, c, r) : m.index(h, r, c)]; });
}

Numbers transposed(const Numbers& a) {
  return fill(a.heads, a.columns, a.rows, [&](Index h, Index r, Index c) { return a.at(h, c, r); });
}

Numbers multiply(const Numbers& a, const Numbers& b) {
  return fill(a.heads, a.rows, b.columns, [&](Index h, Index r, Index c) {
    double sum = 0.0;
    for (Index i = 0; i < b.rows; ++i) sum += a.at(h, r, i) * b.at(h, i, c);
    return sum;
  });
}

double variance(const Numbers& a) {
  double mean = 0.0;
  for (double x : a.at_all) mean += x / static_cast<double>(a.at_all.size());
  double sum = 0.0;
  for (double x : a.at_all) sum += (x - mean) * (x - mean) / static_cast<double>(a.at_all.size());
  return sum;
}

// scores, weights or context of the reference, in long double.
enum class Part { scores, weights, context };
Numbers attend(const Numbers& q, const Numbers& k, const Numbers& v, double scale, bool causal, Part part) {
  const auto view = [](const Numbers& n) {
    return regard::TensorView<const double, 4>(n.at_all.data(), {1, n.heads, n.rows, n.columns});
  };
  regard::AttentionOptions options;
  options.scale = scale;
  options.causal = causal;
  const auto result = regard::reference::attention(view(q), view(k), view(v), options);
  const auto& numbers = part == Part::scores ? result.scores : part == Part::weights ? result.weights : result.context;
  Numbers n{q.heads, q.rows, part == Part::context ? v.columns : k.rows, {}};
  for (long double x : numbers) n.at_all.push_back(static_cast<double>(x));
  return n;
}

class PlainLoops {
 public:
  explicit PlainLoops(const regard::ExplainInput& input) : input_(input) {
    for (const regard::NamedMatrix& named : input.matrices) {
      values_[named.name] = of_matrix(named.matrix, by_column());
    }
  }

  bool by_column() const { return input_.settings.layout == regard::Layout::columns; }

  const Numbers& compute(const StepRequest& step) { return values_[step.result] = result_of(step); }

 private:
  const Numbers& operand(const StepRequest& step, std::size_t i) const { return values_.at(step.operands[i]); }

  Numbers attention(const StepRequest& step, Part part, bool with_scale, bool with_mask) const {
    const Numbers& q = operand(step, 0);
    const Numbers& k = operand(step, 1);
    const regard::Scale scale = step.scale.value_or(input_.settings.scale);
    const regard::Causal causal = step.causal.value_or(input_.settings.causal);
    const double root = 1.0 / std::sqrt(static_cast<double>(q.columns));
    return attend(q, k, part == Part::context ? operand(step, 2) : k,
                  with_scale && scale.rule == regard::ScaleRule::sqrt ? root : 1.0,
                  with_mask && causal.rule != regard::CausalRule::off, part);
  }

  Numbers drawn(const StepRequest& step, bool normal) const {
    regard::TorchGenerator torch(static_cast<std::uint64_t>(step.numbers[0]));
    const auto draw = [&](Index count) { return normal ? torch.normal(count) : torch.uniform(count); };
    for (std::size_t i = 0; i < step.operands.size(); ++i) draw(static_cast<Index>(operand(step, i).at_all.size()));
    const auto rows = static_cast<Index>(step.numbers[1]);
    const auto columns = static_cast<Index>(step.numbers[2]);
    const std::vector<float> numbers = draw(rows * columns);
    return {1, rows, columns, {numbers.begin(), numbers.end()}};
  }

  Numbers result_of(const StepRequest& step) const {
    const std::string_view op = regard::operation_name(step.operation);
    if (op == "torch_normal" || op == "torch_uniform") return drawn(step, op == "torch_normal");
    if (op == "scores") return attention(step, Part::scores, false, false);
    if (op == "scaled") return attention(step, Part::scores, true, false);
    if (op == "masked") return attention(step, Part::scores, true, true);
    if (op == "weights") return attention(step, Part::weights, true, true);
    if (op == "context") return attention(step, Part::context, true, true);
    if (op == "mask") {
      const Numbers masked = attention(step, Part::scores, true, true);
      return fill(1, masked.rows, masked.columns,
                  [&](Index, Index r, Index c) { return std::isinf(masked.at(0, r, c)) ? -INFINITY : 0.0; });
    }
    const Numbers& a = operand(step, 0);
    const auto map = [&](auto function) {
      return fill(a.heads, a.rows, a.columns, [&](Index h, Index r, Index c) { return function(a.at(h, r, c)); });
    };
    const auto row_sum = [&](Index h, Index r) {
      double sum = 0.0;
      for (Index c = 0; c < a.columns; ++c) sum += a.at(h, r, c);
      return sum;
    };
    if (op == "show") return a;
    if (op == "linear") {
      // In layout columns a projection is stored (outputs, inputs): X takes its transpose.
      const Numbers product = multiply(a, operand(step, 1));
      const Index heads = step.heads.value_or(1);
      const Index width = product.columns / heads;
      return fill(heads, product.rows, width,
                  [&](Index h, Index r, Index c) { return product.at(0, r, h * width + c); });
    }
    if (op == "product") {
      // In layout columns V · A is (Aᵀ · Vᵀ)ᵀ.
      if (by_column()) {
        EXPECT_TRUE(step.transpose.empty());
        return multiply(operand(step, 1), a);
      }
      return multiply(step.transpose == "left" ? transposed(a) : a,
                      step.transpose == "right" ? transposed(operand(step, 1)) : operand(step, 1));
    }
    if (op == "mix") return multiply({1, 1, a.rows, step.numbers}, a);
    if (op == "join") {
      return fill(1, a.rows, a.heads * a.columns,
                  [&](Index, Index r, Index c) { return a.at(c / a.columns, r, c % a.columns); });
    }
    if (op == "ratio") {
      return fill(1, a.rows, a.columns, [&](Index h, Index r, Index c) { return a.at(h, r, c) / row_sum(h, r); });
    }
    if (op == "floor_half") return map([](double x) { return std::floor(x / 2.0); });
    if (op == "power") return map([&](double x) { return step.base ? std::pow(*step.base, x) : std::exp(x); });
    if (op == "relu") return map([](double x) { return std::max(0.0, x); });
    if (op == "sums") return fill(1, a.rows, 1, [&](Index h, Index r, Index) { return row_sum(h, r); });
    if (op == "divide") {
      return fill(1, a.rows, a.columns, [&](Index h, Index r, Index c) {
        // Hidden numbers have no share, even of an infinite sum.
        return a.at(h, r, c) == 0.0 ? 0.0 : a.at(h, r, c) / operand(step, 1).at(h, r, 0);
      });
    }
    if (op == "add" || op == "difference") {
      const Numbers b = step.transpose == "right" ? transposed(operand(step, 1)) : operand(step, 1);
      return fill(1, a.rows, a.columns, [&](Index h, Index r, Index c) {
        return op == "add" ? a.at(h, r, c) + b.at(h, r, c) : a.at(h, r, c) - b.at(h, r, c);
      });
    }
    if (op == "softmax" || op == "probabilities") {
      return fill(1, a.rows, a.columns, [&](Index h, Index r, Index c) {
        double largest = -INFINITY;
        for (Index j = 0; j < a.columns; ++j) largest = std::max(largest, a.at(h, r, j));
        double sum = 0.0;
        for (Index j = 0; j < a.columns; ++j) sum += std::exp(a.at(h, r, j) - largest);
        return std::exp(a.at(h, r, c) - largest) / sum;
      });
    }
    if (op == "normalize") {
      return fill(1, a.rows, a.columns, [&](Index h, Index r, Index c) {
        const double mean = row_sum(h, r) / static_cast<double>(a.columns);
        double square = 0.0;
        for (Index j = 0; j < a.columns; ++j) square += (a.at(h, r, j) - mean) * (a.at(h, r, j) - mean);
        return (a.at(h, r, c) - mean) / std::sqrt(square / static_cast<double>(a.columns));
      });
    }
    if (op == "cosine") {
      const Numbers& k = operand(step, 1);
      return fill(1, a.rows, k.rows, [&](Index, Index i, Index j) {
        double dot = 0.0, qq = 0.0, kk = 0.0;
        for (Index d = 0; d < a.columns; ++d) {
          dot += a.at(0, i, d) * k.at(0, j, d);
          qq += a.at(0, i, d) * a.at(0, i, d);
          kk += k.at(0, j, d) * k.at(0, j, d);
        }
        return dot / (std::sqrt(qq) * std::sqrt(kk));
      });
    }
    if (op == "ranks") {
      return fill(1, a.rows, a.columns, [&](Index, Index r, Index c) {
        double rank = 1.0;
        for (Index j = 0; j < a.columns; ++j) rank += a.at(0, r, j) - a.at(0, r, c) > 1e-9 ? 1.0 : 0.0;
        return rank;
      });
    }
    if (op == "variances") {
      return fill(1, static_cast<Index>(step.operands.size()), 1,
                  [&](Index, Index r, Index) { return variance(operand(step, static_cast<std::size_t>(r))); });
    }
    if (op == "variance_rule") {
      const double rule = static_cast<double>(a.columns) * variance(a) * variance(operand(step, 1));
      return {1, 2, 1, {rule, variance(operand(step, 2))}};
    }
    if (op == "focus_vectors") {
      return fill(1, static_cast<Index>(step.operands.size()), a.columns,
                  [&](Index, Index r, Index c) { return operand(step, static_cast<std::size_t>(r)).at(0, 1, c); });
    }
    if (op == "float32_dots") {
      return fill(1, a.rows, a.rows, [&](Index, Index i, Index j) {
        const auto p = [&](Index d) { return static_cast<float>(a.at(0, i, d)) * static_cast<float>(a.at(0, j, d)); };
        if (step.numbers[static_cast<std::size_t>(i)] == 1.0) {
          return static_cast<double>(((p(0) + p(2)) + (p(3) + p(4))) + p(1));
        }
        return static_cast<double>((((p(0) + p(1)) + p(2)) + p(3)) + p(4));
      });
    }
    if (op == "dot_table") {
      return fill(1, a.rows * a.rows, static_cast<Index>(step.operands.size()), [&](Index, Index r, Index c) {
        const Index i = r / a.rows;
        const Index j = r % a.rows;
        if (c > 0) return operand(step, static_cast<std::size_t>(c)).at(0, i, j);
        long double sum = 0.0L;
        for (Index d = 0; d < a.columns; ++d) sum += static_cast<long double>(a.at(0, i, d)) * a.at(0, j, d);
        return static_cast<double>(sum);
      });
    }
    if (op == "cross_entropy") {
      std::vector<double> rows;
      double loss = 0.0;
      for (Index i = 0; i < a.rows; ++i) {
        for (Index j = 0; j < a.columns; ++j) {
          const double marks = operand(step, 1).at(0, i, j);
          if (marks == 0.0) continue;
          rows.insert(rows.end(), {-marks * std::log(a.at(0, i, j)), a.at(0, i, j)});
          loss += rows[rows.size() - 2];
        }
      }
      rows.insert(rows.end(), {loss, std::exp(-loss)});
      return {1, static_cast<Index>(rows.size()) / 2, 2, rows};
    }
    if (op == "cross_entropy_gradient") {
      const Numbers& y = operand(step, 1);
      return fill(1, a.rows, a.columns, [&](Index, Index i, Index j) {
        return (y.at(0, i, 0) + y.at(0, i, 1) + y.at(0, i, 2)) * a.at(0, i, j) - y.at(0, i, j);
      });
    }
    if (op == "softmax_gradient") {
      // The Jacobian of a row: A_j · (1 if j = k) − A_j · A_k. The lesson does not scale its scores.
      return fill(1, a.rows, a.columns, [&](Index, Index i, Index j) {
        double sum = 0.0;
        for (Index k = 0; k < a.columns; ++k)
          sum += ((j == k ? a.at(0, i, j) : 0.0) - a.at(0, i, j) * a.at(0, i, k)) * operand(step, 1).at(0, i, k);
        return sum;
      });
    }
    if (op == "adamw") {
      return fill(1, a.rows, a.columns, [&](Index, Index r, Index c) {
        const double gradient = operand(step, 1).at(0, r, c);
        return a.at(0, r, c) * (1.0 - step.numbers[0] * step.numbers[4]) -
               step.numbers[0] * gradient / (std::fabs(gradient) + step.numbers[3]);
      });
    }
    ADD_FAILURE() << "operation " << op << " has no plain loop";
    return {};
  }

  const regard::ExplainInput& input_;
  std::map<std::string, Numbers> values_;
};

// Changes one number of one input and keeps whole numbers whole; a lesson with random matrices gets another seed.
void change_one_input(regard::ExplainInput& lesson, std::mt19937& random) {
  const auto below = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
  if (lesson.matrices.empty()) {
    const double seed = static_cast<double>(random() % 100000);
    for (StepRequest& step : lesson.steps) {
      if (step.operation == regard::Operation::torch_normal) step.numbers[0] = seed;
    }
  } else {
    std::vector<double>& numbers = lesson.matrices[below(lesson.matrices.size())].matrix.numbers;
    double& number = numbers[below(numbers.size())];
    number += number == std::floor(number) ? (number > 0 ? -1.0 : 1.0) : 0.125 * static_cast<double>(1 + below(8));
  }
  for (StepRequest& step : lesson.steps) step.expected.reset();
  lesson.variants.clear();
}

void compare(const std::string& name, std::uint32_t seed) {
  std::mt19937 random(seed);
  regard::ExplainInput lesson = regard::lesson_input(name);
  change_one_input(lesson, random);
  const regard::Explanation explanation = regard::explain(lesson);
  PlainLoops plain(lesson);
  const bool f32 = lesson.settings.dtype == regard::ElementType::float32;
  for (const regard::Step& step : explanation.steps) {
    SCOPED_TRACE("lesson " + name + ", seed " + std::to_string(seed) + ", step " + step.name);
    const std::string_view op = regard::operation_name(step.request.operation);
    // lesson_learning_test.cpp compares the training; what follows are operations that are compared before it.
    if (op == "training") break;
    if (op == "ulp_table") continue;  // differences of rounding errors; lesson_test.cpp bounds them
    const bool table = op == "variances" || op == "variance_rule" || op == "dot_table" || op == "cross_entropy";
    const Numbers ours = of_matrix(step.result, plain.by_column() && !table);
    const Numbers& expected = plain.compute(step.request);
    ASSERT_EQ(ours.heads, expected.heads);
    ASSERT_EQ(ours.rows, expected.rows);
    ASSERT_EQ(ours.columns, expected.columns);
    double largest = 1.0;
    for (double x : expected.at_all) largest = std::isfinite(x) ? std::max(largest, std::fabs(x)) : largest;
    // AdamW divides the rounding errors of a gradient of 0 by epsilon.
    const double tolerance = largest * (f32 && op != "float32_dots" ? 1e-5 : op == "adamw" ? 1e-8 : 1e-12);
    for (std::size_t i = 0; i < ours.at_all.size(); ++i) {
      if (std::isnan(expected.at_all[i])) {
        EXPECT_TRUE(std::isnan(ours.at_all[i])) << i;
      } else if (std::isinf(expected.at_all[i])) {
        EXPECT_EQ(ours.at_all[i], expected.at_all[i]) << i;
      } else {
        EXPECT_NEAR(ours.at_all[i], expected.at_all[i], tolerance) << i;
      }
    }
  }
}

// All but why-scale, which has histograms instead of a sentence's matrices.
std::vector<std::string> lessons_of_sentences() {
  std::vector<std::string> names;
  for (const regard::LessonEntry& entry : regard::lesson_entries()) {
    if (entry.name != "why-scale") names.push_back(entry.name);
  }
  return names;
}

TEST(LessonChange, EveryLaterNumberMatchesThePlainLoops) {
  for (const std::string& name : lessons_of_sentences()) {
    for (std::uint32_t seed = 1; seed <= regard::test_size(40U, 10U); ++seed) compare(name, seed);
  }
}

TEST(LessonChange, AChangeChangesLaterNumbers) {
  // The comparison above would also pass if nothing changed.
  for (const std::string& name : lessons_of_sentences()) {
    std::mt19937 random(1);
    regard::ExplainInput changed = regard::lesson_input(name);
    change_one_input(changed, random);
    const auto before = regard::explain(regard::lesson_input(name)).steps;
    const auto after = regard::explain(changed).steps;
    std::size_t moved = 0;
    for (std::size_t i = 0; i < before.size(); ++i) moved += before[i].result.numbers != after[i].result.numbers;
    EXPECT_GT(moved, 1u) << name;
  }
}

}  // namespace
}  // namespace regard::lesson_change_test
