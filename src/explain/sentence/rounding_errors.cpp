// SPDX-License-Identifier: Apache-2.0
//
// The figures of rounding_errors.h. Read next: tests/model_rounding_check.cpp.
#include "regard/explain/rounding_errors.h"

#include <fmt/format.h>

#include "regard/error.h"

namespace regard::inline v0 {
namespace {

constexpr RoundingErrors kInt8{.mean_cosine = 0.99948,
                               .min_cosine = 0.99913,
                               .mean_weight_difference = 6.9e-4,
                               .max_weight_difference = 8.8e-2,
                               .bank_to_river = 0.707,
                               .same_findings = 30};
constexpr RoundingErrors kFloat16{.mean_cosine = 1,
                                  .min_cosine = 1,
                                  .mean_weight_difference = 9.2e-6,
                                  .max_weight_difference = 9.9e-4,
                                  .bank_to_river = 0.713,
                                  .same_findings = 30};

}  // namespace

const RoundingErrors& minilm_rounding_errors(ElementType type) {
  if (type == ElementType::int8) return kInt8;
  if (type == ElementType::float16) return kFloat16;
  throw InvalidArgument(fmt::format("minilm_rounding_errors: type is {}; expected int8 or float16", type_name(type)));
}

}  // namespace regard::inline v0
