// SPDX-License-Identifier: Apache-2.0
//
// The loops over all elements, in which tests spend most of their own time: compiled once for all tests, and optimized
// even if the tests are not.
// Read next: arrays.h.
#include "arrays.h"

#include <cmath>
#include <numbers>

namespace regard {

// Box and Muller 1958.
double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

template class Array<float, 1>;
template class Array<float, 2>;
template class Array<float, 3>;
template class Array<float, 4>;
template class Array<double, 1>;
template class Array<double, 2>;
template class Array<double, 3>;
template class Array<double, 4>;
template class Array<bfloat16, 2>;
template class Array<bfloat16, 4>;
template class Array<float16, 2>;
template class Array<float16, 4>;
template class Array<bool, 4>;

template std::vector<std::uint64_t> bits_of(const std::vector<float>&);
template std::vector<std::uint64_t> bits_of(const std::vector<double>&);
template std::vector<std::uint64_t> bits_of(const std::vector<bfloat16>&);
template std::vector<std::uint64_t> bits_of(const std::vector<float16>&);

}  // namespace regard
