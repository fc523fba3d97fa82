// SPDX-License-Identifier: Apache-2.0
//
// Lesson one-function: four words, heads of size 8, causal mask. Q, K and V are the rounded numbers that the notebook
// prints, so results may differ from the notebook's in the last digit (scores: by three units); notes say why.
// Read next: lesson_from_seed.cpp.
#include "lessons.h"

namespace regard::inline v0 {

ExplainInput lesson_one_function() {
  ExplainInput lesson;
  lesson.citation = "“Self Attention in Transformers”, a NumPy notebook";
  lesson.matrices = {
      {"Q", matrix_of(
                {{-0.50598333, 0.59287364, -0.64212808, -0.17667384, 1.78683356, -0.03810015, -2.79906259, -0.87436271},
                 {-1.1635331, 0.39761587, 0.7502223, -0.19290089, -0.27755457, -0.7598107, 0.88142972, -0.44349095},
                 {-0.28506127, -2.0400416, -1.96026798, -0.63174484, 0.49923543, -0.57036319, 1.49095731, 0.89803188},
                 {-1.62443852, 1.453917, -1.49314297, 0.95953202, -1.60815407, 0.1632695, -0.98389182, -1.1222311}})},
      {"K",
       matrix_of(
           {{-1.58265754, 0.76202182, 2.32828504, 0.50024378, -0.38254118, 2.16603257, -0.53065346, -0.19447538},
            {0.59827253, 0.12909976, 0.10836157, -0.15652026, -0.33419576, 0.25269797, 0.76630028, 0.37939898},
            {-2.36337659, -0.03495578, 1.25475903, 0.10300347, 1.11828814, 0.16100326, 0.49260405, 0.29632038},
            {-0.05618466, -0.58816675, 0.46506258, -0.04566082, 1.33489973, -0.43446506, 0.37468388, -0.33398102}})},
      {"V", matrix_of({{-2.33028699e+00, 4.18506262e-01, 1.57360937e+00, 1.37308738e-01, 8.52094837e-01, 6.58167848e-01,
                        -4.12112209e-01, -2.52690046e-03},
                       {-2.40477900e+00, -8.15979439e-01, -8.21925214e-01, 1.41383638e-01, -4.26737879e-01,
                        -1.62771803e+00, 5.56628997e-01, -9.50161423e-01},
                       {5.69531565e-01, 1.16653634e+00, -7.47385138e-01, -6.12570059e-01, 4.95602990e-01,
                        1.32665094e-01, -6.74559168e-01, -3.76896324e-01},
                       {9.61138903e-01, 1.44294896e-01, 3.01901776e-01, 3.20771720e+00, -6.38903868e-01,
                        -5.71129671e-01, -5.16128064e-01, -1.32604188e+00}})},
      {"shift",
       matrix_of(
           {{1000, 1000, 1000, 1000}, {1000, 1000, 1000, 1000}, {1000, 1000, 1000, 1000}, {1000, 1000, 1000, 1000}})},
  };
  lesson.settings.causal = {.rule = CausalRule::top_left};
  lesson.settings.digits = 8;
  const auto printed = [](const std::vector<std::vector<double>>& rows) {
    return Expected{.numbers = matrix_of(rows), .digits = 8};
  };
  const Causal no_mask{.rule = CausalRule::off};
  const Expected attention = printed({{1.0, 0.0, 0.0, 0.0},
                                      {0.66968106, 0.33031894, 0.0, 0.0},
                                      {0.02358547, 0.56838537, 0.40802916, 0.0},
                                      {0.58776275, 0.13848114, 0.20587072, 0.06788539}});
  lesson.steps = {
      {.operation = Operation::show, .operands = {"Q"}, .result = "Q", .name = "queries", .document_name = "q"},
      {.operation = Operation::show, .operands = {"K"}, .result = "K", .name = "keys", .document_name = "k"},
      {.operation = Operation::show, .operands = {"V"}, .result = "V", .name = "values", .document_name = "v"},
      {.operation = Operation::scores,
       .operands = {"Q", "K"},
       .result = "S",
       .name = "scores",
       .document_name = "np.matmul(q, k.T)",
       .expected = printed({{0.5584545, -3.35153984, 0.70533024, 1.03421098},
                            {1.87361595, -0.12535484, 3.52750914, 0.62719536},
                            {-8.37572099, 0.62481134, -0.31270199, 1.5060436},
                            {2.39156799, -1.69717588, -0.57566407, -3.71359891}})},
      {.operation = Operation::variances,
       .operands = {"Q", "K", "S"},
       .result = "variances",
       .name = "variances",
       .document_name = "q.var(), k.var(), np.matmul(q, k.T).var()",
       .expected = Expected{.numbers = matrix_of({{1.1902732818147692}, {0.7955736609453732}, {7.7092653269714475}}),
                            .digits = 8,
                            .significant = true}},
      {.operation = Operation::variance_rule,
       .operands = {"Q", "K", "S"},
       .result = "rule",
       .name = "variance-rule",
       .digits = 4,
       .notes = {"The variance of a sum of D independent products is about D times that of one product. This is why "
                 "scores are divided by √D."}},
      {.operation = Operation::scaled,
       .operands = {"Q", "K"},
       .result = "S′",
       .name = "scaled",
       .document_name = "scaled",
       .expected = printed({{0.19744348, -1.18494828, 0.2493719, 0.3656488},
                            {0.66242327, -0.04431963, 1.24716282, 0.22174705},
                            {-2.96126456, 0.22090417, -0.11055685, 0.53246682},
                            {0.84554697, -0.60004229, -0.20352798, -1.31295549}})},
      {.operation = Operation::variances,
       .operands = {"S′"},
       .result = "variance",
       .name = "scaled-variance",
       .document_name = "scaled.var()",
       .expected = Expected{.numbers = matrix_of({{0.9636581658714307}}), .digits = 8, .significant = true}},
      {.operation = Operation::mask,
       .operands = {"Q", "K"},
       .result = "M",
       .name = "mask",
       .document_name = "mask",
       .digits = 0},
      {.operation = Operation::masked,
       .operands = {"Q", "K"},
       .result = "S″",
       .name = "masked",
       .document_name = "scaled + mask"},
      {.operation = Operation::weights,
       .operands = {"Q", "K"},
       .result = "A",
       .name = "weights",
       .document_name = "attention",
       .expected = attention},
      {.operation = Operation::context,
       .operands = {"Q", "K", "V"},
       .result = "Z",
       .name = "context",
       .document_name = "new_v",
       .expected = printed(
           {{-2.33028699, 0.41850626, 1.57360937, 0.13730874, 0.85209484, 0.65816785, -0.41211221, -0.0025269},
            {-2.35489311, 0.01073226, 0.78231893, 0.13865475, 0.42967217, -0.09690355, -0.09211864, -0.31554853},
            {-1.18941663, 0.02206074, -0.73501088, -0.16634756, -0.02023404, -0.85551669, 0.03142011, -0.69390214},
            {-1.52017524, 0.38293583, 0.67771783, 0.19193084, 0.50039236, 0.14997879, -0.33905113, -0.30067545}})},
      {.operation = Operation::weights,
       .operands = {"Q", "K"},
       .result = "A_full",
       .name = "weights-without-mask",
       .document_name = "attention, mask=None",
       .causal = no_mask,
       .notes = {"The document’s function corresponds to one call of attention_with_weights, which returns (values, "
                 "attention). The mask is optional; this step and the next do not use it."}},
      {.operation = Operation::context,
       .operands = {"Q", "K", "V"},
       .result = "Z_full",
       .name = "context-without-mask",
       .document_name = "values, mask=None",
       .causal = no_mask},

      // Two forms of softmax: the document's, without the shift, and the library's, with it.
      {.operation = Operation::power,
       .operands = {"S″"},
       .result = "E",
       .name = "unshifted-exponentials",
       .document_name = "np.exp(x)",
       .notes =
           {"The document’s softmax computes e^x directly; the library first subtracts the row’s maximum from x."}},
      {.operation = Operation::sums,
       .operands = {"E"},
       .result = "Σ",
       .name = "unshifted-sums",
       .document_name = "np.sum(np.exp(x))"},
      {.operation = Operation::divide,
       .operands = {"E", "Σ"},
       .result = "U",
       .name = "unshifted-weights",
       .document_name = "softmax(x)",
       .expected = attention,
       .notes = {"The weights are the same: the shift multiplies numerator and denominator by the same factor."}},
      {.operation = Operation::add,
       .operands = {"S″", "shift"},
       .result = "S‴",
       .name = "large-scores",
       .notes = {"These are the same scores plus 1000. The weights should not change."}},
      {.operation = Operation::softmax,
       .operands = {"S‴"},
       .result = "A₁₀₀₀",
       .name = "shifted-at-1000",
       .expected = attention,
       .notes = {"With the shift, the weights do not change."}},
      {.operation = Operation::power,
       .operands = {"S‴"},
       .result = "E₁₀₀₀",
       .name = "unshifted-exponentials-at-1000",
       .notes = {"e^1000 is larger than any double."}},
      {.operation = Operation::sums, .operands = {"E₁₀₀₀"}, .result = "Σ₁₀₀₀", .name = "unshifted-sums-at-1000"},
      {.operation = Operation::divide,
       .operands = {"E₁₀₀₀", "Σ₁₀₀₀"},
       .result = "U₁₀₀₀",
       .name = "unshifted-at-1000",
       .notes = {"Without the shift, each weight is ∞ / ∞, which is not a number."}},
  };
  // Every comparison except that of the variances, whose 8 digits agree.
  for (StepRequest& step : lesson.steps) {
    if (step.expected && step.name != "variances")
      step.notes.push_back(
          "The last digits differ because these values are computed from the 8 printed digits of Q, K and V; the "
          "document used 16.");
  }
  lesson.errata = {
      "The denominator of the softmax formula is misprinted; it should be Σⱼ e^(xⱼ), with j in the exponent.",
      "The document’s softmax does not subtract the maximum. The results are correct here, but would be NaN for scores "
      "near 1000.",
      "np.infty was removed in NumPy 2; use np.inf instead.",
  };
  return lesson;
}

}  // namespace regard::inline v0
