// SPDX-License-Identifier: Apache-2.0
//
// sample_token: the choice of a token from its logits. The largest ones are found with a partial sort, the
// probabilities are in double, and their sums run from the largest to the smallest.
//
// Source of top_p: Holtzman et al., "The curious case of neural text degeneration", arXiv 1904.09751.
// Read next: generate.cpp, regard/random.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "regard/error.h"
#include "regard/model/generate.h"
#include "regard/random.h"

namespace regard::inline v0 {
namespace {

void check_logits(std::span<const float> logits) {
  if (logits.empty()) throw InvalidArgument("sample_token: there are no logits; expected at least one");
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (std::isnan(logits[id]) || logits[id] == std::numeric_limits<float>::infinity())
      throw InvalidArgument(
          fmt::format("sample_token: the logit of token {} is {}; expected a finite number or -inf", id, logits[id]));
  }
}

}  // namespace

void check_sampling(const SamplingOptions& options) {
  if (!std::isfinite(options.temperature) || options.temperature < 0)
    throw InvalidArgument(
        fmt::format("sampling: temperature is {}; expected a finite number of at least 0", options.temperature));
  if (options.top_k < 0)
    throw InvalidArgument(
        fmt::format("sampling: top_k is {}; expected at least 0 (0 means all tokens)", options.top_k));
  if (!(options.top_p > 0 && options.top_p <= 1))
    throw InvalidArgument(fmt::format("sampling: top_p is {}; expected a number above 0 and at most 1", options.top_p));
}

Index sample_token(std::span<const float> logits, const SamplingOptions& options, Index position) {
  check_sampling(options);
  check_logits(logits);
  if (position < 0) throw InvalidArgument(fmt::format("sample_token: position is {}; expected at least 0", position));
  const auto largest = std::max_element(logits.begin(), logits.end());  // the first of equal ones
  if (options.temperature == 0 || std::isinf(*largest)) return static_cast<Index>(largest - logits.begin());

  std::vector<Index> ids(logits.size());
  std::iota(ids.begin(), ids.end(), Index{0});
  const auto before = [&](Index a, Index b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  if (options.top_k > 0 && options.top_k < static_cast<Index>(ids.size())) {
    std::partial_sort(ids.begin(), ids.begin() + options.top_k, ids.end(), before);
    ids.resize(static_cast<std::size_t>(options.top_k));
  } else {
    std::sort(ids.begin(), ids.end(), before);
  }

  std::vector<double> sums;  // of e^((logit − largest) / temperature), up to each token
  sums.reserve(ids.size());
  double sum = 0;
  for (const Index id : ids) {
    const double logit = static_cast<double>(logits[static_cast<std::size_t>(id)]);
    sum += std::exp((logit - static_cast<double>(*largest)) / options.temperature);
    sums.push_back(sum);
  }
  const auto last = std::min(std::lower_bound(sums.begin(), sums.end(), options.top_p * sum), sums.end() - 1);
  const double drawn = *last * random_uniform(options.seed, kSamplingStream, static_cast<std::uint64_t>(position));
  // The product can be rounded up to the whole sum.
  const auto chosen = std::min(std::upper_bound(sums.begin(), last, drawn), last);
  return ids[static_cast<std::size_t>(chosen - sums.begin())];
}

}  // namespace regard::inline v0
