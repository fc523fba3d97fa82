// SPDX-License-Identifier: Apache-2.0
//
// Lesson learning: how W_query, W_key and W_value are learned. The words and matrices are those of lesson three-words;
// the task, the loss and the training are this lesson's, because the document stops before them. Its numbers for the
// forward pass are compared. Read next: gradient_operations.cpp, training_operations.cpp.
#include <array>

#include "lessons.h"

namespace regard::inline v0 {
namespace {

// Learning rate, decays of the two moments, epsilon, weight decay.
constexpr std::array kRates = {0.05, 0.9, 0.999, 1e-8, 0.01};
constexpr double kNumSteps = 200;

std::vector<double> rates_and(const std::vector<double>& more) {
  std::vector<double> numbers(kRates.begin(), kRates.end());
  numbers.insert(numbers.end(), more.begin(), more.end());
  return numbers;
}

// One of the three matrices after the training: 0 W_query, 1 W_key, 2 W_value.
StepRequest trained_matrix(const std::string& result, const std::string& name, double which) {
  return {.operation = Operation::trained,
          .operands = {"X", "Y", "W_query", "W_key", "W_value"},
          .result = result,
          .name = name,
          .numbers = rates_and({kNumSteps, which})};
}

// The loss of the document's words under its matrices.
std::vector<StepRequest> forward_steps() {
  return {
      {.operation = Operation::show,
       .operands = {"X"},
       .result = "X",
       .name = "embeddings",
       .document_name = "embeddings"},
      {.operation = Operation::show,
       .operands = {"Y"},
       .result = "Y",
       .name = "next-words",
       .finding = "The task is to predict the next word. In each row, 1 marks that word",
       .notes = {"“love” follows “I”, and “coding” follows “love”. Nothing follows “coding”, so its row is zero and "
                 "does not contribute to the loss. Language models are trained on the same task."}},
      {.operation = Operation::linear,
       .operands = {"X", "W_query"},
       .result = "Q",
       .name = "queries",
       .document_name = "queries"},
      {.operation = Operation::linear,
       .operands = {"X", "W_key"},
       .result = "K",
       .name = "keys",
       .document_name = "keys"},
      {.operation = Operation::linear,
       .operands = {"X", "W_value"},
       .result = "V",
       .name = "values",
       .document_name = "values"},
      {.operation = Operation::scores,
       .operands = {"Q", "K"},
       .result = "S",
       .name = "scores",
       .document_name = "attention_scores"},
      {.operation = Operation::weights,
       .operands = {"Q", "K"},
       .result = "A",
       .name = "weights",
       .document_name = "attention_probs",
       .expected = Expected{.numbers = matrix_of({{0.4223188, 0.1553624, 0.4223188}}), .digits = 8, .rows = {1}},
       .notes = {"The document’s attention has no mask, so each word also attends to the word that it has to predict. "
                 "A language model masks later words; --causal runs the same lesson with such a mask."}},
      {.operation = Operation::context,
       .operands = {"Q", "K", "V"},
       .result = "Z",
       .name = "context",
       .document_name = "output_love",
       .expected = Expected{.numbers = matrix_of({{1.68927519, 3.11159399, 0.8446376}}), .digits = 8, .rows = {1}}},
      {.operation = Operation::product,
       .operands = {"Z", "X"},
       .result = "G",
       .name = "logits",
       .transpose = "right",
       .notes =
           {"The logit of a word is the dot product of the context vector with the word’s embedding, so no further "
            "parameters are needed."}},
      {.operation = Operation::probabilities,
       .operands = {"G"},
       .result = "P",
       .name = "probabilities",
       .notes = {"This is the same softmax as for the weights, now over the possible next words."}},
      {.operation = Operation::cross_entropy,
       .operands = {"P", "Y"},
       .result = "loss",
       .name = "loss",
       .finding = "The loss is 0 if each next word has probability 1, and grows as the probabilities fall",
       .notes =
           {"This is the cross-entropy, summed over the words that have a next word. Language models divide the sum by "
            "the number of these words, which changes the magnitude of the gradients but not their direction."}},
  };
}

// The chain rule, from the loss back to the three matrices.
std::vector<StepRequest> backward_steps() {
  return {
      {.operation = Operation::cross_entropy_gradient,
       .operands = {"P", "Y"},
       .result = "dG",
       .name = "logits-gradient",
       .notes = {"dG is the derivative of the loss with respect to G: the rate at which the loss changes with each "
                 "logit. For a softmax followed by −ln p, the derivative is the probability minus the target."}},
      {.operation = Operation::product,
       .operands = {"dG", "X"},
       .result = "dZ",
       .name = "context-gradient",
       .notes = {"G = Z · Xᵀ. The gradient of a product’s left factor is the gradient of the product times the "
                 "transposed right factor; the gradient of the right factor is the transposed left factor times the "
                 "gradient of the product."}},
      {.operation = Operation::product,
       .operands = {"A", "dZ"},
       .result = "dV",
       .name = "values-gradient",
       .transpose = "left",
       .notes = {"Z = A · V, so dV = Aᵀ · dZ: each value receives a gradient from every query, in proportion to the "
                 "query’s weight on the corresponding key."}},
      {.operation = Operation::product,
       .operands = {"dZ", "V"},
       .result = "dA",
       .name = "weights-gradient",
       .transpose = "right",
       .notes = {"A negative element means that a larger weight on this key would reduce the loss."}},
      {.operation = Operation::softmax_gradient,
       .operands = {"A", "dA", "Q"},
       .result = "dS",
       .name = "scores-gradient",
       .notes = {"The weights of a query sum to 1, so one weight can grow only if others shrink. Therefore, only the "
                 "difference between dA and its weighted mean matters, and each row of dS sums to 0.",
                 "A key whose weight is near 0 receives almost no gradient, however wrong the weight is."}},
      {.operation = Operation::product,
       .operands = {"dS", "K"},
       .result = "dQ",
       .name = "queries-gradient",
       .notes = {"S = Q · Kᵀ, so dQ = dS · K and dK = dSᵀ · Q."}},
      {.operation = Operation::product,
       .operands = {"dS", "Q"},
       .result = "dK",
       .name = "keys-gradient",
       .transpose = "left"},
      {.operation = Operation::product,
       .operands = {"X", "dQ"},
       .result = "dW_query",
       .name = "w-query-gradient",
       .transpose = "left",
       .notes = {"Q = X · W_query. The same matrix is applied to all words, so their gradients are summed.",
                 "Rows 0 and 2 are equal because elements 0 and 2 of every embedding are equal."}},
      {.operation = Operation::product,
       .operands = {"X", "dK"},
       .result = "dW_key",
       .name = "w-key-gradient",
       .transpose = "left"},
      {.operation = Operation::product,
       .operands = {"X", "dV"},
       .result = "dW_value",
       .name = "w-value-gradient",
       .transpose = "left"},
  };
}

std::vector<StepRequest> optimizer_steps() {
  return {
      {.operation = Operation::adamw,
       .operands = {"W_query", "dW_query"},
       .result = "W_query₁",
       .name = "w-query-step",
       .numbers = rates_and({}),
       .notes =
           {"AdamW keeps two moments for each element: a running mean of the gradient, and a running mean of its "
            "square. Both start at 0, and dividing them by 1 − 0.9 and 1 − 0.999 removes the resulting bias.",
            "In the first step, g / √g² is 1 or −1, so every element changes by the learning rate, 0.05, regardless of "
            "the magnitude of its gradient. Weight decay also shrinks it by 0.05 · 0.01 of its value."}},
      {.operation = Operation::adamw,
       .operands = {"W_key", "dW_key"},
       .result = "W_key₁",
       .name = "w-key-step",
       .numbers = rates_and({})},
      {.operation = Operation::adamw,
       .operands = {"W_value", "dW_value"},
       .result = "W_value₁",
       .name = "w-value-step",
       .numbers = rates_and({})},
      {.operation = Operation::training,
       .operands = {"X", "Y", "W_query", "W_key", "W_value"},
       .result = "training",
       .name = "training",
       .numbers = rates_and({0, 1, 2, 5, 10, 20, 50, 100, kNumSteps}),
       .notes = {"Each step repeats the whole lesson up to here: forward pass, loss, gradients and AdamW update. Only "
                 "the three matrices change."}},
  };
}

// The same forward pass with the trained matrices.
std::vector<StepRequest> trained_steps() {
  return {
      trained_matrix("W_query′", "w-query-after", 0),
      trained_matrix("W_key′", "w-key-after", 1),
      trained_matrix("W_value′", "w-value-after", 2),
      {.operation = Operation::linear, .operands = {"X", "W_query′"}, .result = "Q′", .name = "queries-after"},
      {.operation = Operation::linear, .operands = {"X", "W_key′"}, .result = "K′", .name = "keys-after"},
      {.operation = Operation::linear, .operands = {"X", "W_value′"}, .result = "V′", .name = "values-after"},
      {.operation = Operation::weights, .operands = {"Q′", "K′"}, .result = "A′", .name = "weights-after"},
      {.operation = Operation::difference,
       .operands = {"A′", "A"},
       .result = "Δ",
       .name = "learned",
       .notes = {"This is how training changed the attention. No rule specifies which word to attend to: the weights "
                 "result from minimizing the loss."}},
      {.operation = Operation::context, .operands = {"Q′", "K′", "V′"}, .result = "Z′", .name = "context-after"},
      {.operation = Operation::product,
       .operands = {"Z′", "X"},
       .result = "G′",
       .name = "logits-after",
       .transpose = "right"},
      {.operation = Operation::probabilities,
       .operands = {"G′"},
       .result = "P′",
       .name = "probabilities-after",
       .notes = {"The row of “coding” has no target, so the loss does not constrain it."}},
      {.operation = Operation::cross_entropy, .operands = {"P′", "Y"}, .result = "loss′", .name = "loss-after"},
  };
}

}  // namespace

ExplainInput lesson_learning() {
  ExplainInput lesson = lesson_three_words();
  lesson.citation += "; the training steps are added by this lesson";
  lesson.matrices.push_back({"Y", matrix_of({{0, 1, 0}, {0, 0, 1}, {0, 0, 0}})});
  lesson.steps = forward_steps();
  for (const auto& more : {backward_steps(), optimizer_steps(), trained_steps()})
    lesson.steps.insert(lesson.steps.end(), more.begin(), more.end());
  lesson.variants.clear();
  lesson.errata = {
      "The document says that the query and key matrices are learned. W_value is learned as well, from the same loss.",
      "The document says that training optimizes the attention mechanism. The loss depends only on the predictions; "
      "attention changes because this reduces the loss.",
  };
  return lesson;
}

}  // namespace regard::inline v0
