// SPDX-License-Identifier: Apache-2.0
//
// Applies the function of the README to the query, key and value of lesson one-function, and compares the two results
// with those printed in the lesson's document, to within one unit of the last (eighth) decimal. Read next: ../run.sh,
// which extracts the function from README.md.
#include <cmath>
#include <cstdio>
#include <vector>

#include "readme.inc"

namespace {

const std::vector<double> kQuery{
    -0.50598333, 0.59287364, -0.64212808, -0.17667384, 1.78683356,  -0.03810015, -2.79906259, -0.87436271,
    -1.1635331,  0.39761587, 0.7502223,   -0.19290089, -0.27755457, -0.7598107,  0.88142972,  -0.44349095,
    -0.28506127, -2.0400416, -1.96026798, -0.63174484, 0.49923543,  -0.57036319, 1.49095731,  0.89803188,
    -1.62443852, 1.453917,   -1.49314297, 0.95953202,  -1.60815407, 0.1632695,   -0.98389182, -1.1222311};
const std::vector<double> kKey{
    -1.58265754, 0.76202182,  2.32828504, 0.50024378,  -0.38254118, 2.16603257,  -0.53065346, -0.19447538,
    0.59827253,  0.12909976,  0.10836157, -0.15652026, -0.33419576, 0.25269797,  0.76630028,  0.37939898,
    -2.36337659, -0.03495578, 1.25475903, 0.10300347,  1.11828814,  0.16100326,  0.49260405,  0.29632038,
    -0.05618466, -0.58816675, 0.46506258, -0.04566082, 1.33489973,  -0.43446506, 0.37468388,  -0.33398102};
const std::vector<double> kValue{-2.33028699e+00, 4.18506262e-01,  1.57360937e+00,  1.37308738e-01,  8.52094837e-01,
                                 6.58167848e-01,  -4.12112209e-01, -2.52690046e-03, -2.40477900e+00, -8.15979439e-01,
                                 -8.21925214e-01, 1.41383638e-01,  -4.26737879e-01, -1.62771803e+00, 5.56628997e-01,
                                 -9.50161423e-01, 5.69531565e-01,  1.16653634e+00,  -7.47385138e-01, -6.12570059e-01,
                                 4.95602990e-01,  1.32665094e-01,  -6.74559168e-01, -3.76896324e-01, 9.61138903e-01,
                                 1.44294896e-01,  3.01901776e-01,  3.20771720e+00,  -6.38903868e-01, -5.71129671e-01,
                                 -5.16128064e-01, -1.32604188e+00};
const std::vector<double> kAttention{1.0,        0.0,        0.0,        0.0,        0.66968106, 0.33031894,
                                     0.0,        0.0,        0.02358547, 0.56838537, 0.40802916, 0.0,
                                     0.58776275, 0.13848114, 0.20587072, 0.06788539};
const std::vector<double> kNewValue{
    -2.33028699, 0.41850626, 1.57360937,  0.13730874,  0.85209484,  0.65816785,  -0.41211221, -0.0025269,
    -2.35489311, 0.01073226, 0.78231893,  0.13865475,  0.42967217,  -0.09690355, -0.09211864, -0.31554853,
    -1.18941663, 0.02206074, -0.73501088, -0.16634756, -0.02023404, -0.85551669, 0.03142011,  -0.69390214,
    -1.52017524, 0.38293583, 0.67771783,  0.19193084,  0.50039236,  0.14997879,  -0.33905113, -0.30067545};

bool agrees(const char* name, const double* actual, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!(std::abs(actual[i] - expected[i]) <= 1.5e-8)) {
      std::printf("%s[%zu]: %.10f, the document has %.8f\n", name, i, actual[i], expected[i]);
      return false;
    }
  }
  return true;
}

}  // namespace

int main() {
  const auto matrix = [](const std::vector<double>& x) {
    return regard::TensorView<const double, 4>(x.data(), {1, 1, 4, 8});
  };
  regard::Tensor<double, 4> values({1, 1, 4, 8});
  causal_attention(matrix(kQuery), matrix(kKey), matrix(kValue), values);
  const auto [context, weights] =
      regard::attention_with_weights<double>(matrix(kQuery), matrix(kKey), matrix(kValue), {.causal = true});
  const bool right = weights.size() == 16 && agrees("values", values.data(), kNewValue) &&
                     agrees("context", context.data(), kNewValue) && agrees("attention", weights.data(), kAttention);
  return right ? 0 : 1;
}
