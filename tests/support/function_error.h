// SPDX-License-Identifier: Apache-2.0
//
// Functions of one argument, on every instruction set, within a bound on their error, measured in ULP of the exact
// value. The exact value is computed in double when testing float, and in long double when testing double.
//
//   for each range of arguments, ascending:   exact values once, then for every table:
//     |kernel − exact| ≤ bound · ulp(exact), monotone if the function is, the same bits as the other fused tables
//
// REGARD_EXHAUSTIVE=1 takes every float instead of a sample.
// Read next: elementwise_test.cpp, activation_error_test.cpp.
#pragma once

#include <cstdlib>

#include "arrays.h"
#include "instruction_sets.h"
#include "test_size.h"

namespace regard {

template <class T>
using Word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
template <class T>
using Wide = reference::Wide<T>;

inline bool exhaustive() { return std::getenv("REGARD_EXHAUSTIVE") != nullptr; }

// The step of a sample: 1 if all numbers are taken, and larger in small tests.
template <class T>
Word<T> sampled(Word<T> step) {
  return sizeof(T) == 4 && exhaustive() ? 1 : test_size<Word<T>>(step, 11 * step);
}

template <class T>
T from_word(Word<T> word) {
  return std::bit_cast<T>(word);
}
template <class T>
Word<T> word_of(T x) {
  return std::bit_cast<Word<T>>(x);
}
template <class T>
constexpr Word<T> kSign = Word<T>{1} << (sizeof(T) * 8 - 1);
template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

// The distance of adjacent numbers of type T around the exact value.
inline double ulp_float(double exact) {
  const std::uint64_t exponent = std::bit_cast<std::uint64_t>(exact) >> 52 & 0x7ff;
  constexpr std::uint64_t kLowest = 1023 - 126;
  return std::bit_cast<double>((std::max(exponent, kLowest) - 23) << 52);
}
template <class T>
Wide<T> ulp(Wide<T> exact) {
  if constexpr (sizeof(T) == 4) {
    return ulp_float(exact);
  } else {
    return std::ldexp(1.0L, std::max(exact == 0 ? -1022 : std::ilogb(exact), -1022) - 52);
  }
}

template <class T>
struct Function {
  const char* name;
  void (*kernel)(const kernels::KernelTable&, const T*, T*, Index);
  Wide<T> (*exact)(Wide<T>);
  double ulps;
  bool rises = false;
  // An absolute error that is also allowed, as a function of the argument.
  Wide<T> (*slack)(Wide<T>) = [](Wide<T>) { return Wide<T>{0}; };
};
template <class T>
std::vector<T> apply(const kernels::KernelTable& table, const Function<T>& function, const std::vector<T>& x) {
  std::vector<T> y(x.size());
  function.kernel(table, x.data(), y.data(), static_cast<Index>(x.size()));
  return y;
}

// Checks range after range of ascending arguments without NaN; relations between neighbors hold across ranges, too.
template <class T>
class Checker {
 public:
  explicit Checker(const Function<T>& function)
      : function_(function), last_(static_cast<std::size_t>(kernels::num_available()), -kInfinity<T>) {}

  void check(const std::vector<T>& x) {
    exact_.resize(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) exact_[i] = function_.exact(static_cast<Wide<T>>(x[i]));
    const std::vector<T>* fused = nullptr;
    for (int t = 0; t < kernels::num_available(); ++t) {
      const kernels::KernelTable& table = kernels::available(t);
      std::vector<T> y = apply(table, function_, x);
      check_table(table.name, x, y, last_[static_cast<std::size_t>(t)]);
      if (!table.fused_multiply_add) continue;
      if (fused == nullptr) {
        first_fused_ = std::move(y);
        fused = &first_fused_;
      } else if (!std::equal(fused->begin(), fused->end(), y.begin(), identical<T>)) {
        ADD_FAILURE() << function_.name << ": " << table.name << " has other bits than another fused table, x in ["
                      << x.front() << ", " << x.back() << "]";
      }
    }
  }

 private:
  void check_table(const char* name, const std::vector<T>& x, const std::vector<T>& y, T& last) {
    // Far more than the error of the exact value, which has a wider type, so the comparison is always conclusive.
    const Wide<T> bound = static_cast<Wide<T>>(function_.ulps) - (sizeof(T) == 4 ? 0x1p-20 : 0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Wide<T> error = std::abs(static_cast<Wide<T>>(y[i]) - exact_[i]);
      // An infinite result must be the exact one.
      const Wide<T> allowed = std::max(bound * ulp<T>(exact_[i]), function_.slack(static_cast<Wide<T>>(x[i])));
      const bool close = static_cast<Wide<T>>(y[i]) == exact_[i] || error <= allowed;
      const bool rises = !function_.rises || y[i] >= last;
      last = y[i];
      if ((close && rises) || ++num_faults_ > 6) continue;
      ADD_FAILURE() << name << ": " << function_.name << "(" << std::hexfloat << x[i] << ") = " << y[i] << ", exact "
                    << exact_[i] << std::defaultfloat << ", error " << error / ulp<T>(exact_[i]) << " ULP"
                    << (rises ? "" : ", below the result before it");
    }
  }

  Function<T> function_;
  std::vector<T> last_;  // of each table
  std::vector<Wide<T>> exact_;
  std::vector<T> first_fused_;
  int num_faults_ = 0;
};

// Every step-th number from begin to end, both of the same sign.
template <class T>
void check_range(const Function<T>& function, T begin, T end, Word<T> step) {
  const bool falling_words = std::signbit(begin);
  ASSERT_EQ(falling_words, std::signbit(end));
  ASSERT_LT(begin, end);
  Checker<T> checker(function);
  Word<T> word = word_of(begin);
  const Word<T> last = word_of(end);
  std::vector<T> x;
  while (true) {
    x.push_back(from_word<T>(word));
    const Word<T> left = falling_words ? word - last : last - word;
    if (left == 0 || x.size() == 1 << 16) {
      checker.check(x);
      x.clear();
      if (left == 0) return;
    }
    word = falling_words ? word - std::min(step, left) : word + std::min(step, left);
  }
}

// The numbers around each center, as far as they are in [low, high].
template <class T>
void check_neighborhoods(const Function<T>& function, const std::vector<Wide<T>>& centers, T low, T high) {
  const int reach = test_size(64, 16);
  std::vector<T> x;
  for (const Wide<T> center : centers) {
    const T middle = static_cast<T>(center);
    for (int offset = -reach; offset <= reach; ++offset) {
      const T near = from_word<T>(word_of(middle) + static_cast<Word<T>>(offset));
      if (near >= low && near <= high) x.push_back(near);
    }
  }
  std::sort(x.begin(), x.end());
  ASSERT_GE(x.size(), static_cast<std::size_t>(reach) * centers.size());
  Checker<T>(function).check(x);
}

// Elements that are computed alone, or at another place, have the same bits, and nothing beyond an array is accessed.
template <class T>
void expect_bits_independent_of_position(const Function<T>& function, const std::vector<T>& x) {
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    const std::vector<T> whole = apply(table, function, x);
    for (std::size_t count = 0; count < x.size(); ++count) {
      // One element more than is written, and the arguments at the end of theirs.
      const std::vector<T> part(x.end() - static_cast<Index>(count), x.end());
      std::vector<T> y(count + 1, 7);
      function.kernel(table, part.data(), y.data(), static_cast<Index>(count));
      EXPECT_EQ(y[count], 7);
      y.pop_back();
      EXPECT_EQ(bits_of(y), bits_of(std::vector<T>(whole.end() - static_cast<Index>(count), whole.end())))
          << function.name << ", " << count << " elements";
    }
  });
}

}  // namespace regard
