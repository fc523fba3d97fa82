// SPDX-License-Identifier: Apache-2.0
//
// Lesson learning: its gradients against central differences of its own loss, and against the library's loss,
// attention, AdamW and 200 steps of training built from them; each without a scale and with one, with and without a
// mask, in both layouts. Then what training does to the attention, and the rejections of its operations.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "regard/adamw.h"
#include "regard/attention_backward.h"
#include "regard/cross_entropy.h"
#include "regard/explain/lesson.h"
#include "support/rejection.h"

namespace regard::lesson_learning_test {
namespace {

constexpr std::array kProjections = {"W_query", "W_key", "W_value"};
constexpr std::array kNames = {"w-query", "w-key", "w-value"};
constexpr Index kWords = 3;
constexpr std::size_t kElements = 9;

const Step& step_of(const Explanation& explanation, const std::string& name) {
  for (const Step& step : explanation.steps) {
    if (step.name == name) return step;
  }
  throw std::runtime_error("no step " + name);
}

struct Setting {
  regard::Scale scale;
  regard::Causal causal;
};

std::vector<Setting> settings() {
  using regard::CausalRule;
  using regard::ScaleRule;
  return {{{.rule = ScaleRule::none}, {}},
          {{.rule = ScaleRule::sqrt}, {}},
          {{.rule = ScaleRule::none}, {.rule = CausalRule::top_left}},
          {{.rule = ScaleRule::number, .number = 0.3}, {.rule = CausalRule::number, .offset = 1}}};
}

ExplainInput lesson_with(const Setting& setting) {
  ExplainInput lesson = regard::lesson_input("learning");
  lesson.settings.scale = setting.scale;
  lesson.settings.causal = setting.causal;
  for (regard::StepRequest& step : lesson.steps) step.expected.reset();
  return lesson;
}

Matrix& matrix_of(ExplainInput& input, const std::string& name) {
  for (regard::NamedMatrix& named : input.matrices) {
    if (named.name == name) return named.matrix;
  }
  throw std::runtime_error("no matrix " + name);
}

double scale_of(const Setting& setting) {
  return setting.scale.rule == regard::ScaleRule::sqrt     ? 1.0 / std::sqrt(3.0)
         : setting.scale.rule == regard::ScaleRule::number ? setting.scale.number
                                                           : 1.0;
}

void expect_near(const std::vector<double>& ours, const std::vector<double>& theirs, double tolerance) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], theirs[i], tolerance) << "element " << i;
}

// The loss of all words together, without the steps that follow it.
double loss_of(ExplainInput input) {
  const auto loss = std::find_if(input.steps.begin(), input.steps.end(),
                                 [](const regard::StepRequest& step) { return step.name == "loss"; });
  input.steps.erase(loss + 1, input.steps.end());
  const Matrix result = regard::explain(input).steps.back().result;
  return result.numbers[result.index(0, result.num_rows - 1, 0)];
}

TEST(LessonLearning, GradientsMatchCentralDifferencesOfTheLoss) {
  for (const Setting& setting : settings()) {
    const ExplainInput lesson = lesson_with(setting);
    const Explanation explanation = regard::explain(lesson);
    for (std::size_t p = 0; p < 3; ++p) {
      SCOPED_TRACE(kProjections[p]);
      const std::vector<double>& gradient = step_of(explanation, std::string(kNames[p]) + "-gradient").result.numbers;
      double largest = 0.0;
      for (const double x : gradient) largest = std::max(largest, std::fabs(x));
      for (std::size_t i = 0; i < kElements; ++i) {
        constexpr double kDistance = 1e-5;
        ExplainInput changed = lesson;
        double& element = matrix_of(changed, kProjections[p]).numbers[i];
        const double before = element;
        element = before + kDistance;
        const double above = loss_of(changed);
        element = before - kDistance;
        const double below = loss_of(changed);
        EXPECT_NEAR(gradient[i], (above - below) / (2.0 * kDistance), 1e-6 * std::max(largest, 1e-3)) << i;
      }
    }
  }
}

// The same model from the library's parts, with tokens as rows.
class LibraryModel {
 public:
  explicit LibraryModel(const ExplainInput& lesson, const Setting& setting) : setting_(setting) {
    for (const regard::NamedMatrix& named : lesson.matrices) {
      if (named.name == "X") words_ = named.matrix.numbers;
      for (std::size_t p = 0; p < 3; ++p) {
        if (named.name == kProjections[p]) parameters[p] = named.matrix.numbers;
      }
    }
  }

  // Returns the loss, and writes the gradients.
  double forward_backward() {
    std::array<std::vector<double>, 3> inputs;  // query, key, value
    for (std::size_t p = 0; p < 3; ++p) inputs[p] = multiply(words_, parameters[p]);
    regard::AttentionOptions options;
    options.scale = scale_of(setting_);
    options.causal = setting_.causal.rule != regard::CausalRule::off;
    if (options.causal) options.query_offset = setting_.causal.offset;
    std::vector<double> context(kElements), row_max(kWords), row_sum(kWords), grad_logits(kElements);
    weights.assign(kElements, 0.0);
    regard::attention_forward(
        rows(inputs[0]), rows(inputs[1]), rows(inputs[2]),
        {.context = out(context), .row_max = each(row_max), .row_sum = each(row_sum), .weights = out(weights)},
        options);
    const std::vector<double> logits = multiply(context, transposed(words_));
    constexpr std::array<Index, 3> kNextWords = {1, 2, -1};
    const double loss = regard::cross_entropy_forward<double>(
                            {logits.data(), {kWords, kWords}}, TensorView<const Index, 1>(kNextWords.data(), {kWords}),
                            {.grad_logits = TensorView<double, 2>(grad_logits.data(), {kWords, kWords})},
                            {.reduction = regard::Reduction::sum})
                            .loss;
    const std::vector<double> grad_context = multiply(grad_logits, words_);
    for (std::vector<double>& gradient : of_inputs) gradient.assign(kElements, 0.0);
    regard::attention_backward(
        rows(inputs[0]), rows(inputs[1]), rows(inputs[2]),
        {.context = rows(context),
         .row_max = TensorView<const double, 3>(row_max.data(), {1, 1, kWords}),
         .row_sum = TensorView<const double, 3>(row_sum.data(), {1, 1, kWords}),
         .grad_context = rows(grad_context),
         .fingerprint = regard::kUncheckedFingerprint},
        {.grad_query = out(of_inputs[0]), .grad_key = out(of_inputs[1]), .grad_value = out(of_inputs[2])}, options);
    for (std::size_t p = 0; p < 3; ++p) gradients[p] = multiply(transposed(words_), of_inputs[p]);
    return loss;
  }

  void step(Index number) {
    for (std::size_t p = 0; p < 3; ++p) {
      first_[p].resize(kElements);
      second_[p].resize(kElements);
      regard::adamw_step<double>(parameters[p], gradients[p], first_[p], second_[p],
                                 {.learning_rate = 0.05, .weight_decay = 0.01, .step = number});
    }
  }

  std::array<std::vector<double>, 3> parameters;
  std::array<std::vector<double>, 3> gradients;  // of the parameters
  std::array<std::vector<double>, 3> of_inputs;  // of query, key and value
  std::vector<double> weights;

 private:
  static std::vector<double> transposed(const std::vector<double>& a) {
    std::vector<double> t(kElements);
    for (std::size_t i = 0; i < kElements; ++i) t[i % 3 * 3 + i / 3] = a[i];
    return t;
  }
  static std::vector<double> multiply(const std::vector<double>& a, const std::vector<double>& b) {
    std::vector<double> product(kElements);
    for (std::size_t i = 0; i < kElements; ++i) {
      for (std::size_t k = 0; k < 3; ++k) product[i] += a[i / 3 * 3 + k] * b[k * 3 + i % 3];
    }
    return product;
  }
  static TensorView<const double, 4> rows(const std::vector<double>& a) { return {a.data(), {1, 1, kWords, kWords}}; }
  static TensorView<double, 4> out(std::vector<double>& a) { return {a.data(), {1, 1, kWords, kWords}}; }
  static TensorView<double, 3> each(std::vector<double>& a) { return {a.data(), {1, 1, kWords}}; }

  Setting setting_;
  std::vector<double> words_;
  std::array<std::vector<double>, 3> first_;
  std::array<std::vector<double>, 3> second_;
};

TEST(LessonLearning, LossAndGradientsMatchTheLibrary) {
  for (const Setting& setting : settings()) {
    const ExplainInput lesson = lesson_with(setting);
    const Explanation explanation = regard::explain(lesson);
    LibraryModel library(lesson, setting);
    EXPECT_NEAR(step_of(explanation, "loss").result.numbers[4], library.forward_backward(), 1e-14);
    constexpr std::array kInputs = {"queries", "keys", "values"};
    for (std::size_t p = 0; p < 3; ++p) {
      SCOPED_TRACE(kProjections[p]);
      expect_near(step_of(explanation, std::string(kInputs[p]) + "-gradient").result.numbers, library.of_inputs[p],
                  1e-14);
      expect_near(step_of(explanation, std::string(kNames[p]) + "-gradient").result.numbers, library.gradients[p],
                  1e-14);
    }
    library.step(1);
    for (std::size_t p = 0; p < 3; ++p) {
      SCOPED_TRACE(kProjections[p]);
      expect_near(step_of(explanation, std::string(kNames[p]) + "-step").result.numbers, library.parameters[p], 1e-9);
    }
  }
}

TEST(LessonLearning, TwoHundredStepsMatchTheLibrary) {
  // Where a gradient vanishes, AdamW divides rounding errors of 1e-17 by epsilon, and later steps repeat them.
  constexpr double kTolerance = 1e-7;
  for (const Setting& setting : settings()) {
    const ExplainInput lesson = lesson_with(setting);
    const Explanation explanation = regard::explain(lesson);
    const Step& training = step_of(explanation, "training");
    const std::vector<std::string>& labels = training.row_axis.labels;
    EXPECT_EQ(labels, (std::vector<std::string>{"0", "1", "2", "5", "10", "20", "50", "100", "200"}));
    LibraryModel library(lesson, setting);
    for (Index step = 0; step <= 200; ++step) {
      const double loss = library.forward_backward();
      const auto row = std::find(labels.begin(), labels.end(), std::to_string(step)) - labels.begin();
      if (row < training.result.num_rows) {
        const auto at = [&](Index column) { return training.result.numbers[training.result.index(0, row, column)]; };
        EXPECT_NEAR(at(0), loss, kTolerance) << "step " << step;
        // The probabilities of both next words multiply to e^(−loss); then the attention of "love".
        EXPECT_NEAR(at(1) * at(2), std::exp(-loss), kTolerance);
        for (std::size_t j = 0; j < 3; ++j)
          EXPECT_NEAR(at(3 + static_cast<Index>(j)), library.weights[3 + j], kTolerance);
      }
      if (step < 200) library.step(step + 1);
    }
    for (std::size_t p = 0; p < 3; ++p) {
      SCOPED_TRACE(kProjections[p]);
      expect_near(step_of(explanation, std::string(kNames[p]) + "-after").result.numbers, library.parameters[p],
                  kTolerance);
    }
    expect_near(step_of(explanation, "weights-after").result.numbers, library.weights, kTolerance);
  }
}

TEST(LessonLearning, TrainingLowersTheLossAndMovesTheAttention) {
  const Explanation explanation = regard::explain(regard::lesson_input("learning"));
  const Matrix& before = step_of(explanation, "weights").result;
  const Matrix& after = step_of(explanation, "weights-after").result;
  EXPECT_LT(step_of(explanation, "loss-after").result.numbers[4], step_of(explanation, "loss").result.numbers[4] / 100);
  EXPECT_LT(before.numbers[before.index(0, 0, 1)], 0.01);
  EXPECT_GT(after.numbers[after.index(0, 0, 1)], 0.99);
  const Step& training = step_of(explanation, "training");
  EXPECT_EQ(explanation.finding, training.finding);
  EXPECT_TRUE(training.finding.ends_with("is that of “I” on “love”: 0.0059 before and 0.9993 after"))
      << training.finding;
  EXPECT_EQ(step_of(explanation, "probabilities").finding,
            "After “love”, the most probable next word is “coding”: 0.8898");
  // The forward pass is that of the document.
  const Explanation document = regard::explain(regard::lesson_input("three-words"));
  for (const char* name : {"queries", "keys", "values", "scores", "weights", "context"}) {
    EXPECT_EQ(step_of(explanation, name).result.numbers, step_of(document, name).result.numbers) << name;
  }
}

TEST(LessonLearning, OneStepOfTrainingIsTheStepByHand) {
  ExplainInput lesson = regard::lesson_input("learning");
  for (regard::StepRequest& step : lesson.steps) {
    if (step.operation == Operation::trained) step.numbers[5] = 1;
  }
  const Explanation explanation = regard::explain(lesson);
  for (const char* name : kNames) {
    expect_near(step_of(explanation, std::string(name) + "-after").result.numbers,
                step_of(explanation, std::string(name) + "-step").result.numbers, 1e-9);
  }
}

TEST(LessonLearning, AWordWithTwoNextWordsCountsBoth) {
  ExplainInput lesson = regard::lesson_input("learning");
  matrix_of(lesson, "Y").numbers = {0, 1, 2, 0, 0, 0, 0, 0, 0};
  for (regard::StepRequest& step : lesson.steps) step.expected.reset();
  const Explanation explanation = regard::explain(lesson);
  const std::vector<double>& p = step_of(explanation, "probabilities").result.numbers;
  const Step& loss = step_of(explanation, "loss");
  EXPECT_EQ(loss.row_axis.labels, (std::vector<std::string>{"I → love", "I → coding", "together"}));
  expect_near(
      loss.result.numbers,
      {-std::log(p[1]), p[1], -2 * std::log(p[2]), p[2], -std::log(p[1]) - 2 * std::log(p[2]), p[1] * p[2] * p[2]},
      1e-14);
  expect_near(step_of(explanation, "logits-gradient").result.numbers,
              {3 * p[0], 3 * p[1] - 1, 3 * p[2] - 2, 0, 0, 0, 0, 0, 0}, 1e-14);
}

TEST(LessonLearning, OperationsRejectInvalidOperands) {
  const auto message = [](const std::string& step, const auto& change) {
    ExplainInput lesson = regard::lesson_input("learning");
    for (regard::StepRequest& request : lesson.steps) {
      request.expected.reset();
      if (request.name == step) change(request, lesson);
    }
    return regard::rejection([&] { regard::explain(lesson); });
  };
  const auto numbers = [](std::vector<double> wanted) {
    return [wanted](regard::StepRequest& request, ExplainInput&) { request.numbers = wanted; };
  };
  const auto marks = [](std::vector<double> wanted) {
    return [wanted](regard::StepRequest&, ExplainInput& lesson) { matrix_of(lesson, "Y").numbers = wanted; };
  };
  const auto setting = [](auto set) {
    return [set](regard::StepRequest&, ExplainInput& lesson) { set(lesson.settings); };
  };
  EXPECT_EQ(message("loss", marks({0, 0, 0, 0, 0, 0, 0, 0, 0})), "step loss: Y marks no next word");
  EXPECT_EQ(message("loss", marks({0, -1, 0, 0, 0, 1, 0, 0, 0})),
            "step loss: Y must contain finite numbers of at least 0");
  EXPECT_EQ(message("scores-gradient",
                    [](regard::StepRequest& request, ExplainInput& lesson) {
                      lesson.settings.scale = {.rule = regard::ScaleRule::sqrt};
                      request.operands.pop_back();
                    }),
            "step scores-gradient: needs the queries as a third operand, for √D");
  EXPECT_EQ(
      message("loss", setting([](regard::ExplainSettings& s) { s.scale = {.rule = regard::ScaleRule::floor_half}; })),
      "step scores-gradient: scale floor_half has no gradient: a floor is constant between jumps");
  EXPECT_EQ(message("loss", setting([](regard::ExplainSettings& s) { s.softmax_base = 3.0; })),
            "step scores-gradient: only softmax with base e has a gradient here, not other bases or ratios");
  EXPECT_EQ(message("w-query-step", numbers({0.05, 0.9})),
            "step w-query-step: takes at least five numbers: learning rate, two decays, epsilon, weight decay");
  EXPECT_EQ(message("w-query-step", numbers({0.05, 1.0, 0.999, 1e-8, 0})),
            "step w-query-step: the rates must be at least 0, the two decays below 1, and epsilon above 0");
  EXPECT_EQ(message("training", numbers({0.05, 0.9, 0.999, 1e-8, 0, 0, 1001})),
            "step training: number 6 must be an integer from 1 to 1000");
  EXPECT_EQ(message("training", numbers({0.05, 0.9, 0.999, 1e-8, 0, 3, 3})),
            "step training: number 6 must be an integer from 4 to 1000");
  EXPECT_EQ(message("training", numbers({0.05, 0.9, 0.999, 1e-8, 0, 3})),
            "step training: needs at least two steps to show after the five rates");
  EXPECT_EQ(message("w-key-after", numbers({0.05, 0.9, 0.999, 1e-8, 0, 3})),
            "step w-key-after: takes seven numbers: five rates, the number of steps, and 0, 1 or 2 for the matrix");
  EXPECT_EQ(message("w-key-after", numbers({0.05, 0.9, 0.999, 1e-8, 0, 3, 3})),
            "step w-key-after: number 6 must be an integer from 0 to 2");
  EXPECT_EQ(
      message("logits-gradient", [](regard::StepRequest& request, ExplainInput&) { request.operands = {"loss", "Y"}; }),
      "step logits-gradient: loss is 3 × 2 and Y is 3 × 3: they must have the same shape");
}

}  // namespace
}  // namespace regard::lesson_learning_test
