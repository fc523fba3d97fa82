// SPDX-License-Identifier: Apache-2.0
//
// The large templates of reference.h, backward_reference.h, attention_cases.h and attention_checks.h, compiled once for
// all tests, and optimized even if the tests are not.
// Read next: reference.h.
#include "attention_checks.h"
#include "backward_reference.h"

namespace regard {

template AttentionCase<float> random_attention_case<float>(std::uint64_t);
template AttentionCase<double> random_attention_case<double>(std::uint64_t);
template AttentionCase<bfloat16> random_attention_case<bfloat16>(std::uint64_t);
template AttentionCase<float16> random_attention_case<float16>(std::uint64_t);

template bool matches_reference(const AttentionArrays<float>&, const reference::Attention<float>&);
template bool matches_reference(const AttentionArrays<double>&, const reference::Attention<double>&);

namespace reference {

template Attention<float> attention<float>(TensorView<const float, 4>, TensorView<const float, 4>,
                                           TensorView<const float, 4>, const AttentionOptions&);
template Attention<double> attention<double>(TensorView<const double, 4>, TensorView<const double, 4>,
                                             TensorView<const double, 4>, const AttentionOptions&);
template Linear<float> linear<float>(TensorView<const float, 2>, TensorView<const float, 2>,
                                     TensorView<const float, 1>);
template Linear<double> linear<double>(TensorView<const double, 2>, TensorView<const double, 2>,
                                       TensorView<const double, 1>);
template AttentionBackward<float> attention_backward(const AttentionCase<float>&, const Attention<float>&,
                                                     const Array<float, 4>&, const Array<float, 3>&,
                                                     const std::array<Index, 4>&);
template AttentionBackward<double> attention_backward(const AttentionCase<double>&, const Attention<double>&,
                                                      const Array<double, 4>&, const Array<double, 3>&,
                                                      const std::array<Index, 4>&);

}  // namespace reference
}  // namespace regard
