// SPDX-License-Identifier: Apache-2.0
//
// The operations of docs/guide/own-matrices.md over fractions, one function each. Read next: lesson_by_hand.cpp.
#include "fractions.h"

#include <cmath>
#include <cstddef>

namespace regard::inline v0 {
namespace {

const Rational& at(const ExactMatrix& m, Index row, Index column) {
  return m.numbers[static_cast<std::size_t>(row * m.num_columns + column)];
}

ExactMatrix transposed(const ExactMatrix& m) {
  ExactMatrix t{m.num_columns, m.num_rows, {}};
  for (Index r = 0; r < t.num_rows; ++r) {
    for (Index c = 0; c < t.num_columns; ++c) t.numbers.push_back(at(m, c, r));
  }
  return t;
}

ExactMatrix multiply(const ExactMatrix& a, const ExactMatrix& b) {
  ExactMatrix product{a.num_rows, b.num_columns, {}};
  for (Index r = 0; r < a.num_rows; ++r) {
    for (Index c = 0; c < b.num_columns; ++c) {
      Rational sum;
      for (Index i = 0; i < b.num_rows; ++i) sum = sum + at(a, r, i) * at(b, i, c);
      product.numbers.push_back(sum);
    }
  }
  return product;
}

// The sum over the keys for each query: a column of sums in layout rows, a row of them in layout columns.
ExactMatrix key_sums(const ExactMatrix& m, bool by_column) {
  ExactMatrix sums{by_column ? 1 : m.num_rows, by_column ? m.num_columns : 1, {}};
  sums.numbers.resize(static_cast<std::size_t>(sums.num_rows * sums.num_columns));
  for (Index r = 0; r < m.num_rows; ++r) {
    for (Index c = 0; c < m.num_columns; ++c) {
      Rational& sum = sums.numbers[static_cast<std::size_t>(by_column ? c : r)];
      sum = sum + at(m, r, c);
    }
  }
  return sums;
}

ExactMatrix divide(const ExactMatrix& m, const ExactMatrix& sums, bool by_column) {
  ExactMatrix quotient = m;
  for (Index r = 0; r < m.num_rows; ++r) {
    for (Index c = 0; c < m.num_columns; ++c) {
      Rational& number = quotient.numbers[static_cast<std::size_t>(r * m.num_columns + c)];
      number = number / sums.numbers[static_cast<std::size_t>(by_column ? c : r)];
    }
  }
  return quotient;
}

template <class Function>
ExactMatrix map(const ExactMatrix& m, Function function) {
  ExactMatrix result{m.num_rows, m.num_columns, {}};
  for (const Rational& number : m.numbers) result.numbers.push_back(function(number));
  return result;
}

std::optional<ExactMatrix> compute(const StepRequest& request, const ExplainSettings& settings,
                                   const std::vector<const ExactMatrix*>& operands) {
  const bool by_column = settings.layout == Layout::columns;
  const ExactMatrix& a = *operands[0];
  switch (request.operation) {
    case Operation::show:
      return a;
    case Operation::linear:
      if (operands.size() != 2 || request.heads.value_or(1) != 1) return std::nullopt;
      return by_column ? multiply(*operands[1], a) : multiply(a, *operands[1]);
    case Operation::scores:
      return by_column ? multiply(transposed(*operands[1]), a) : multiply(a, transposed(*operands[1]));
    case Operation::product:
      return multiply(request.transpose == "left" ? transposed(a) : a,
                      request.transpose == "right" ? transposed(*operands[1]) : *operands[1]);
    case Operation::floor_half:
      return map(a, [](const Rational& x) { return Rational(floor_of(x * Rational(1, 2))); });
    case Operation::power: {
      const std::optional<double> base = request.base ? request.base : settings.softmax_base;
      if (!base || *base != std::floor(*base) || std::fabs(*base) > 1e6) return std::nullopt;
      const Rational whole_base(static_cast<std::int64_t>(*base));
      for (const Rational& exponent : a.numbers) {
        if (exponent.denominator() != 1) return std::nullopt;
      }
      return map(a, [&](const Rational& x) { return power(whole_base, x.numerator()); });
    }
    case Operation::sums:
      return key_sums(a, by_column);
    case Operation::divide:
      return divide(a, *operands[1], by_column);
    case Operation::ratio:
      return divide(a, key_sums(a, by_column), by_column);
    case Operation::mix:
    case Operation::join:
    case Operation::variances:
    case Operation::scaled:
    case Operation::mask:
    case Operation::masked:
    case Operation::weights:
    case Operation::context:
    case Operation::hide:
    case Operation::cosine:
    case Operation::add:
    case Operation::normalize:
    case Operation::relu:
    case Operation::torch_normal:
    case Operation::torch_uniform:
    case Operation::softmax:
    case Operation::difference:
    case Operation::focus_vectors:
    case Operation::ranks:
    case Operation::variance_rule:
    case Operation::float32_dots:
    case Operation::dot_table:
    case Operation::ulp_table:
    case Operation::scale_statistics:
    case Operation::probabilities:
    case Operation::cross_entropy:
    case Operation::cross_entropy_gradient:
    case Operation::softmax_gradient:
    case Operation::adamw:
    case Operation::training:
    case Operation::trained:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::optional<ExactMatrix> exact_matrix(const Matrix& matrix) {
  if (matrix.num_heads != 1 || !matrix.hidden.empty() || !matrix.kept_rows.empty() || !matrix.kept_columns.empty()) {
    return std::nullopt;
  }
  ExactMatrix exact{matrix.num_rows, matrix.num_columns, {}};
  for (double number : matrix.numbers) {
    if (!(std::fabs(number) < 0x1p53) || number != std::floor(number)) return std::nullopt;
    exact.numbers.emplace_back(static_cast<std::int64_t>(number));
  }
  return exact;
}

std::optional<ExactMatrix> exact_result(const StepRequest& request, const ExplainSettings& settings,
                                        const ExactMatrices& known) {
  std::vector<const ExactMatrix*> operands;
  for (const std::string& name : request.operands) {
    const auto operand = known.find(name);
    if (operand == known.end()) return std::nullopt;
    operands.push_back(&operand->second);
  }
  if (operands.empty()) return std::nullopt;
  try {
    return compute(request, settings, operands);
  } catch (const std::overflow_error&) {
    return std::nullopt;
  } catch (const std::invalid_argument&) {
    return std::nullopt;  // a sum of zero: the decimals show ∞ or NaN
  }
}

}  // namespace regard::inline v0
