// SPDX-License-Identifier: Apache-2.0
/// @file
/// The steps of an attention computation as data.
///
/// @verbatim
///     ExplainInput   matrices by name, settings, and a list of StepRequests (an operation and its operands)
///        │ explain()
///     Explanation    the same list, computed: one Step each, with its equation, operands and result
///        │ render_text(), render_json(), render_html()
/// @endverbatim
///
/// A lesson is an ExplainInput, and so is an input file of `regard explain`. The functions of attention.h and linear.h
/// compute products, softmax, weights and context. Step::outside_library marks the steps that they do not compute.
/// Extents: L queries, S keys, head size D, value head size Dv, width E, H heads.
///
/// Read next: docs/guide/own-matrices.md (the same as JSON), src/explain/steps/operations.h (the operations).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "regard/export.h"
#include "regard/io/matrix.h"
#include "regard/io/utf8.h"
#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// The axis of a matrix that is indexed by tokens.
enum class Layout {
  rows,    ///< Each token is a row: X·W, Q·Kᵀ.
  columns  ///< Each token is a column: W·X, Kᵀ·Q.
};
/// The rule by which scores are scaled.
enum class ScaleRule {
  none,       ///< The factor is 1.
  sqrt,       ///< The factor is 1/√D.
  number,     ///< The factor is Scale::number.
  floor_half  ///< Scores are replaced by floor(score / 2), as in calculations by hand.
};
/// The scale of the scores.
struct Scale {
  ScaleRule rule = ScaleRule::sqrt;  ///< The rule.
  double number = 1.0;               ///< The factor with ScaleRule::number.
  /// Compares the rule and the number.
  friend bool operator==(const Scale&, const Scale&) = default;
};

/// The causal mask: key j is visible to query i if j ≤ i + offset.
///
/// Masks for L = 3 and S = 5 (rows are queries, columns are keys, 1 is visible):
/// @verbatim
///     top_left             bottom_right             number, offset 1
///     1 0 0 0 0            1 1 1 0 0                1 1 0 0 0
///     1 1 0 0 0            1 1 1 1 0                1 1 1 0 0
///     1 1 1 0 0            1 1 1 1 1                1 1 1 1 0
/// @endverbatim
enum class CausalRule {
  off,           ///< No mask: every key is visible to every query.
  top_left,      ///< Offset 0.
  bottom_right,  ///< Offset S − L.
  number         ///< Offset Causal::offset.
};
/// The causal mask and its offset.
struct Causal {
  CausalRule rule = CausalRule::off;  ///< The rule.
  Index offset = 0;                   ///< The offset with CausalRule::number; it may be negative.
  /// Compares the rule and the offset.
  friend bool operator==(const Causal&, const Causal&) = default;
};

/// The rule by which scores are converted to weights. Only `shifted` with base e is the library's softmax.
enum class SoftmaxRule {
  shifted,    ///< `e^(score − largest score)` divided by its sum over the keys.
  unshifted,  ///< `e^score` divided by its sum over the keys.
  ratio       ///< Each score divided by the sum of the scores of its query.
};

/// Values that a document prints for a step. If a result does not round to the printed value, both are shown.
struct Expected {
  Matrix numbers;                ///< The printed values.
  int digits = 4;                ///< Number of printed decimal places or, with `significant`, of significant digits.
  bool significant = false;      ///< Whether `digits` counts significant digits.
  std::vector<Index> rows{};     ///< Rows of the result that the document prints; if empty, all.
  std::vector<Index> columns{};  ///< Columns of the result that the document prints; if empty, all.
};

/// The operation of a step, described as operands → result. In JSON, operations have the same names.
///
/// docs/guide/own-matrices.md lists operands and results in full. Where a formula depends on the layout, the one for
/// rows is given.
enum class Operation {
  show,                    ///< A → A itself.
  linear,                  ///< X W [b] → X·W + b.
  product,                 ///< A B → A·B; StepRequest::transpose "left": AᵀB, "right": ABᵀ.
  mix,                     ///< A → combinations of the tokens of A, with the coefficients StepRequest::numbers.
  join,                    ///< C → the heads of C, concatenated.
  variances,               ///< A B … → the population variance of each.
  scores,                  ///< Q K → Q·Kᵀ.
  scaled,                  ///< Q K → scale · scores.
  mask,                    ///< Q K → 0 where the key is visible to the query, −∞ elsewhere.
  masked,                  ///< Q K → the scaled scores, −∞ where the mask hides the key.
  weights,                 ///< Q K → softmax of the masked scores over the keys.
  context,                 ///< Q K V → weights · V.
  floor_half,              ///< S → floor(S / 2).
  hide,                    ///< S → S, hidden where the mask hides the key.
  power,                   ///< S → base^S, 0 where hidden.
  sums,                    ///< P → the sum over the keys, for each query.
  divide,                  ///< P s → P divided by the sums s.
  ratio,                   ///< S → S divided by its sum over the keys.
  cosine,                  ///< Q K → the cosine similarity between each query and each key.
  add,                     ///< A B → A + B.
  normalize,               ///< A → each token's vector minus its mean, divided by its standard deviation.
  relu,                    ///< A → max(0, A).
  torch_normal,            ///< Earlier draws of the generator → a matrix drawn as by torch.randn.
  torch_uniform,           ///< Earlier draws of the generator → a matrix drawn as by torch.rand.
  softmax,                 ///< S → the library's softmax of given scores.
  difference,              ///< A B → A − B; StepRequest::transpose "right": A − Bᵀ.
  focus_vectors,           ///< A B … → the vectors of the token in focus.
  ranks,                   ///< S → the rank of each key among all keys of its query, 1 for the largest.
  variance_rule,           ///< Q K S → D·var(Q)·var(K) above var(S).
  float32_dots,            ///< A → A·Aᵀ, with every product and every sum rounded to float32.
  dot_table,               ///< A S … → one row for each cell of A·Aᵀ: the exact sum and the values in S …
  ulp_table,               ///< A S T → the differences for the same cells, in float32 ULPs of T.
  scale_statistics,        ///< No operands → statistics of random scores, without and with division by √D.
  probabilities,           ///< G → softmax of the logits G over the words.
  cross_entropy,           ///< P Y → −ln P of each next word that Y marks, and their sum.
  cross_entropy_gradient,  ///< P Y → gradient of that loss with respect to the logits.
  softmax_gradient,        ///< A dA [Q] → gradient with respect to Q·Kᵀ.
  adamw,                   ///< W dW → W after the first step of AdamW.
  training,  ///< X Y W_query W_key W_value → loss, probabilities and weights after given numbers of steps.
  trained    ///< The same → one of the three matrices after training.
};
/// Number of operations. The values of the enumerators start at 0.
inline constexpr int kNumOperations = static_cast<int>(Operation::trained) + 1;
/// Returns the name of an operation, for example "show".
///
/// @param operation  The operation.
/// @return The name.
REGARD_EXPORT std::string_view operation_name(Operation operation);
/// Finds an operation by name.
///
/// @param name  The name.
/// @return The operation, or std::nullopt if no operation has that name.
REGARD_EXPORT std::optional<Operation> operation_named(std::string_view name);

/// A step to compute.
struct StepRequest {
  Operation operation = Operation::show;  ///< The operation to compute.
  std::vector<std::string> operands{};    ///< Names of input matrices or of earlier results.
  std::string result{};                   ///< Name of the result in later steps, and its displayed symbol: "Q".
  /// Regard's term for the step, used by --step and as the title; if empty, the name of the operation.
  std::string name{};
  std::string document_name{};               ///< The document's own name for the step: "new V".
  std::string equation{};                    ///< The displayed equation; if empty, that of the operation.
  std::optional<Scale> scale{};              ///< The scale; if absent, that of the input.
  std::optional<Causal> causal{};            ///< The causal mask; if absent, that of the input.
  std::optional<Index> heads{};              ///< Operations linear and show: the number of heads to split into.
  std::optional<double> base{};              ///< Operation power: the base; if absent, that of the input.
  std::string transpose{};                   ///< Operations product and difference: "left", "right" or empty.
  std::vector<double> numbers{};             ///< Numbers, for operations that require them.
  std::vector<std::string> labels{};         ///< Labels of the rows, if they are not tokens.
  std::vector<std::string> column_labels{};  ///< Labels of the columns, if they are not tokens.
  std::optional<int> digits{};               ///< Number of decimal places; if absent, that of the input.
  bool fractions = false;                    ///< Whether to show exact fractions as well.
  std::optional<Expected> expected{};        ///< Values that the document prints for this step.
  std::string finding{};                     ///< The sentence before the values; if empty, that of the operation.
  std::vector<std::string> notes{};          ///< Sentences after the values.
  std::vector<std::string> errata{};         ///< Errata of the document for this step, one per line.
};

/// The settings of a computation.
struct ExplainSettings {
  Layout layout = Layout::rows;                ///< The axis that is indexed by tokens.
  Scale scale;                                 ///< The scale of the scores.
  Causal causal;                               ///< The causal mask.
  SoftmaxRule softmax = SoftmaxRule::shifted;  ///< The rule by which scores are converted to weights.
  std::optional<double> softmax_base;          ///< Base of the exponentials; if absent, e.
  Index heads = 1;                             ///< Number of heads, 1 to 65536.
  ElementType dtype = ElementType::float64;    ///< Type of the arithmetic: float64 or float32.
  /// The query in focus: `WORD`, `WORD#1` or `@INDEX`. If empty, no query is in focus.
  std::string query;
  std::optional<int> digits;  ///< Number of decimal places, 0 to 17; if absent, 4, or none for integers.
  /// Compares all settings.
  friend bool operator==(const ExplainSettings&, const ExplainSettings&) = default;
};

/// A matrix and its name.
struct NamedMatrix {
  std::string name;  ///< The name: "W_query".
  Matrix matrix;     ///< The matrix.
};

/// A text and its name.
struct NamedText {
  std::string name;  ///< The name.
  std::string text;  ///< The text.
};

/// A second computation, shown next to the first: the same steps with different settings or matrices.
struct Variant {
  std::string label;                    ///< Label of the variant: "with √3".
  ExplainSettings settings;             ///< Settings of the variant.
  std::vector<NamedMatrix> matrices{};  ///< Matrices that replace those with the same names.
};

/// The input of explain().
struct ExplainInput {
  /// The name of the lesson; empty for other inputs. It is not part of the input's JSON.
  std::string lesson{};
  std::string title{};                    ///< Title of the document.
  std::string citation{};                 ///< Source of the document.
  std::vector<std::string> tokens{};      ///< Words of the queries, and of the keys unless key_tokens is given.
  std::vector<std::string> key_tokens{};  ///< Words of the keys.
  std::vector<NamedMatrix> matrices{};    ///< The matrices, in the order given.
  ExplainSettings settings{};             ///< The settings.
  std::vector<NamedText> names{};         ///< The document's own names by step: {"context", "new V"}.
  /// Values that the document prints, by step; StepRequest::expected takes precedence.
  std::map<std::string, Expected> expected{};
  /// Sentences after the values, by step, in addition to StepRequest::notes.
  std::map<std::string, std::vector<std::string>> notes{};
  std::vector<StepRequest> steps{};   ///< The steps; if empty, standard_steps() for these matrices.
  std::vector<Variant> variants{};    ///< Computations shown next to this one.
  std::vector<std::string> errata{};  ///< Errata of the document, printed at the end.
};

/// Returns the standard steps, which explain() uses for an input without steps.
///
/// - the projections if X, W_query, W_key and W_value (and biases b_query …) are given, otherwise Q, K and V
/// - scores, scaled (unless the scale is none), masked (if causal), weights and context
/// - the concatenation of the heads, and the projection with W_output (and b_output), if given
///
/// @param input  The input. The steps in it are ignored.
/// @return The steps.
/// @throws InvalidArgument  if a matrix is missing, or if no step uses it. The message states the name of the matrix.
REGARD_EXPORT std::vector<StepRequest> standard_steps(const ExplainInput& input);

/// An axis of a result.
struct Axis {
  std::string extent;                 ///< Letter of the extent: "L", "S", "D", "E", …
  std::string name;                   ///< Name of the axis: "query", "key", "dimension", …
  std::vector<std::string> labels{};  ///< One label per index; may be empty.
};

/// The axis along which the elements of a result sum to 1.
enum class SumAxis {
  none,   ///< Along neither axis.
  row,    ///< Each row sums to 1.
  column  ///< Each column sums to 1.
};

/// An operand of a step.
struct Operand {
  std::string name;                      ///< Name of the operand: "W_query".
  std::shared_ptr<const Matrix> matrix;  ///< The matrix as it was when the step was computed.
};

/// The result of a step in a variant.
struct VariantResult {
  std::string label;  ///< Label of the variant.
  Matrix result;      ///< The result.
};

/// Scores of random queries and keys from a given seed, and the weights that softmax computes from these scores.
///
/// The figure and the table of the lesson why-scale show these values.
struct ScoreSample {
  double low = 0.0;             ///< Lower end of the histogram.
  double high = 0.0;            ///< Upper end of the histogram.
  std::vector<Index> counts{};  ///< Number of scores in each bin of equal width, low ≤ score < high.
  Index below = 0;              ///< Number of scores below low.
  Index above = 0;              ///< Number of scores at or above high.
  /// Mean weight of the keys with rank 1 (the largest weight of a query), 2, …
  std::vector<double> ranked_weights{};
};
/// One row in the table of the operation scale_statistics.
struct ScalePicture {
  Index head_size = 0;   ///< D, the length of q and k.
  ScoreSample plain{};   ///< Scores q·k.
  ScoreSample scaled{};  ///< Scores q·k/√D.
};

/// A computed step.
struct Step {
  StepRequest request;              ///< The request.
  std::string name;                 ///< Unique name: "weights"; for the second such step, "weights#1".
  std::string term;                 ///< Regard's term: "attention weights".
  std::string document_name;        ///< The document's own name, such as "new V"; may be empty.
  std::string symbol;               ///< Symbol of the result: "A".
  std::string equation;             ///< The equation: "A = softmax(S / √D), row by row".
  std::vector<Operand> operands{};  ///< The matrices from which the step was computed.
  /// The operands that the request names. In attention steps, they differ from `operands`.
  std::vector<Operand> requested_operands{};
  Matrix result{};                        ///< The result.
  Axis row_axis{};                        ///< Axis of the rows.
  Axis column_axis{};                     ///< Axis of the columns.
  SumAxis sums_to_one = SumAxis::none;    ///< The axis along which the result sums to 1.
  std::vector<double> sums{};             ///< Sums along that axis, (heads, rows) or (heads, columns), as stored.
  std::vector<std::string> exact{};       ///< Each element as a fraction; may be empty.
  std::vector<std::uint8_t> differs{};    ///< 1 for each element that the document prints differently; may be empty.
  std::string finding{};                  ///< The sentence before the values.
  std::vector<std::string> notes{};       ///< Sentences after the values.
  std::vector<std::string> errata{};      ///< Errata of the document for this step.
  std::vector<VariantResult> variants{};  ///< Results of the variants that differ from this result.
  std::vector<ScalePicture> pictures{};   ///< Operation scale_statistics: one for each head size D.
  /// Whether plain loops compute this step instead of the library: src/explain/steps/paper_arithmetic.cpp or, for
  /// lessons, a file in src/explain/lessons.
  bool outside_library = false;
  /// Attention steps: the factor applied to the scores. Operation power: the base, 0 for e.
  double factor = 1.0;
  /// Masked steps: key j is visible to query i if j ≤ i + causal_offset.
  Index causal_offset = 0;
};

/// The result of explain().
struct Explanation {
  std::string lesson;    ///< Name of the lesson, such as "three-words"; may be empty.
  std::string title;     ///< As in ExplainInput.
  std::string citation;  ///< As in ExplainInput.
  /// Finding of the training step. If there is none, the finding of the step "weights" or, if that is also missing, of
  /// the last step with weights.
  std::string finding;
  std::vector<std::string> settings_text;  ///< The settings in words, one per line: "scores divided by √D".
  ExplainSettings settings;                ///< The settings.
  std::vector<std::string> tokens;         ///< Words of the queries; see query_tokens().
  std::vector<std::string> key_tokens;     ///< Words of the keys.
  std::optional<Index> focus;              ///< Index of ExplainSettings::query.
  std::vector<Step> steps;                 ///< The computed steps.
  std::vector<std::string> errata;         ///< As in ExplainInput.
};

/// Maximum number of elements of a step whose rows are all kept: 8 MiB in memory, about 20 MB of JSON.
inline constexpr Index kMaxKeptElements = Index{1} << 20;
/// Selects the rows of scores, weights and context that are kept if a step has more than kMaxKeptElements elements.
///
/// Unless `all` is set, the rows of these queries are kept: the first 8, the last 8, the one in focus, and those in
/// `also`. A step with at most 32 queries keeps every row.
struct Keep {
  bool all = false;           ///< Whether to keep all rows.
  std::vector<Index> also{};  ///< Indices of additional queries.
};

/// Computes every step.
///
/// @param input  Matrices, settings and steps.
/// @param keep   Rows of large matrices to keep.
/// @param stop   Stop token, polled between steps.
/// @return The computed steps.
/// @throws InvalidArgument  in any of the following cases:
///                          - shapes do not match (the message states the step, the matrix, and the actual and expected
///                            shapes)
///                          - a matrix is missing, given twice, or used by no step
///                          - a token is unknown or ambiguous
///                          - a setting is out of range
///                          - names, expected values or notes are given for a step that does not exist
///                          - the arrays do not fit in memory (the message states the required and the available size)
/// @throws Cancelled        if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const Explanation explanation = explain(lesson_input("three-words"));
/// std::fputs(render_text(explanation, {}).c_str(), stdout);
/// @endcode
REGARD_EXPORT Explanation explain(const ExplainInput& input, const Keep& keep = {}, const std::stop_token& stop = {});

/// Returns the words of the queries: the given tokens or, if there are none, the zero-based indices.
///
/// @param input  The input.
/// @return One word for each query.
REGARD_EXPORT std::vector<std::string> query_tokens(const ExplainInput& input);

/// Finds a token by name.
///
/// @param tokens  The tokens.
/// @param token   `WORD`, `WORD#1` (its second occurrence) or `@INDEX`.
/// @return Index of the token.
/// @throws InvalidArgument  if there is no such token, or if a word without `#` occurs more than once. The message
///                          lists the choices.
REGARD_EXPORT Index token_index(const std::vector<std::string>& tokens, std::string_view token);

/// One term in the derivation of a cell, with the partial sum: "Q[1,2] · K[0,2] = 1 × 2 = 2".
struct CellTerm {
  std::string label;            ///< The term in symbols.
  std::vector<double> factors;  ///< Factors of the term.
  double product = 0.0;         ///< Product of the factors.
  double partial_sum = 0.0;     ///< Sum of the products up to and including this term.
};
/// The derivation of one cell: its terms, and additional lines such as the exponential and the share.
struct CellDerivation {
  std::string what;                ///< Name of the cell: "weights[love, I]".
  std::vector<CellTerm> terms{};   ///< The terms of its sum.
  std::vector<NamedText> lines{};  ///< Additional lines: "exponential", "e^(1 − 1) = 1".
  std::string brief{};             ///< The lines in short form: "2 / √3 = 1.1547"; if empty, the last line.
  double result = 0.0;             ///< The value of the cell.
  /// The terms summed in the order listed, minus the sum that the step computed: the result or, for weights, the sum of
  /// the exponentials.
  double difference = 0.0;
  Index zero_weights = 0;  ///< Number of keys whose terms are omitted because their weights are 0.
};
/// A cell of a result.
struct Cell {
  Index row;       ///< Row index in the whole matrix.
  Index column;    ///< Column index in the whole matrix.
  Index head = 0;  ///< Head index.
};
/// Derives one cell of a step.
///
/// @param explanation  The explanation.
/// @param step         One of its steps.
/// @param cell         The cell.
/// @param digits       Number of decimal places in the lines.
/// @return The derivation.
/// @throws InvalidArgument  if the cell is outside the step's result, or if it was not kept.
///
/// @par Example
/// @code{.cpp}
/// const CellDerivation derivation = expand_cell(explanation, explanation.steps[0], {.row = 1, .column = 0}, 4);
/// @endcode
REGARD_EXPORT CellDerivation expand_cell(const Explanation& explanation, const Step& step, const Cell& cell,
                                         int digits);

/// Options for render_text().
struct TextOptions {
  int width = 80;               ///< Width of the terminal in columns, limited to 40 … 400.
  bool color = false;           ///< Whether to use colors.
  bool unicode = true;          ///< Whether to use non-ASCII characters.
  bool full = false;            ///< Whether to print all values.
  std::optional<int> digits{};  ///< Number of decimal places; if absent, that of the step or the settings.
  std::string step{};           ///< Name or zero-based index of the step to print; if empty, all steps.
  std::optional<Cell> cell{};   ///< A cell to derive in each displayed step that contains it.
};
/// Renders an explanation as text.
///
/// @param explanation  The explanation.
/// @param options      Formatting and content options.
/// @param stop         Stop token.
/// @return The text, which ends with a newline.
/// @throws InvalidArgument  if the options specify a step or a cell that does not exist. The message lists the choices.
/// @throws Cancelled        if a stop is requested.
REGARD_EXPORT std::string render_text(const Explanation& explanation, const TextOptions& options,
                                      const std::stop_token& stop = {});
/// Renders an explanation as render_text() does, but with one page per step, so that the caller can pause between
/// pages.
///
/// @param explanation  The explanation.
/// @param options      Formatting and content options.
/// @param stop         Stop token.
/// @return The pages. Unless TextOptions::step is set, they include an introduction and the errata. Each page ends with
///         a newline.
/// @throws InvalidArgument  as render_text() does.
/// @throws Cancelled        if a stop is requested.
REGARD_EXPORT std::vector<std::string> render_text_pages(const Explanation& explanation, const TextOptions& options,
                                                         const std::stop_token& stop = {});

/// Options for render_json().
struct JsonOptions {
  std::string command{};       ///< The command line as typed.
  std::string step{};          ///< Name or zero-based index of the step to write; if empty, all steps.
  std::optional<Cell> cell{};  ///< A cell to derive in each written step that contains it.
};
/// Renders an explanation as JSON with `"schema": "regard/1"`; docs/guide/own-matrices.md lists the fields.
///
/// Each number is written with the fewest digits that read back as the same value. Infinities and NaN are written as
/// "-inf", "inf" and "nan".
///
/// @param explanation  The explanation.
/// @param options      Content options.
/// @param stop         Stop token.
/// @return The JSON text.
/// @throws InvalidArgument  as render_text() does.
/// @throws Cancelled        if a stop is requested.
REGARD_EXPORT std::string render_json(const Explanation& explanation, const JsonOptions& options,
                                      const std::stop_token& stop = {});

/// Options for render_html().
struct HtmlOptions {
  std::string command{};        ///< The command line as typed.
  std::optional<int> digits{};  ///< Number of decimal places; if absent, that of the step or the settings.
};
/// Renders an explanation as one self-contained HTML page, which makes no network requests (docs/reference/page.md).
///
/// The page contains the JSON text of render_json(), additional data for drawing, and its script and style sheet.
///
/// @param explanation  The explanation.
/// @param options      Options for the page.
/// @param stop         Stop token.
/// @return The HTML text.
/// @throws Cancelled  if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// write_file("page.html", render_html(explanation, {}));
/// @endcode
REGARD_EXPORT std::string render_html(const Explanation& explanation, const HtmlOptions& options,
                                      const std::stop_token& stop = {});

/// Renders the data of a page in the form that its script reads; docs/reference/page.md describes this form.
///
/// @param explanation  The explanation.
/// @param options      Options for the page.
/// @param stop         Stop token.
/// @return JSON strings by name: "explanation", as render_json() writes it, and "page".
/// @throws Cancelled  if a stop is requested.
REGARD_EXPORT std::vector<NamedText> page_data(const Explanation& explanation, const HtmlOptions& options = {},
                                               const std::stop_token& stop = {});

/// Writes an input x as JSON. From `read_explain_input(write_explain_input(x), source)`, explain() computes the same
/// steps as from x.
///
/// @param input  The input.
/// @return The JSON text.
REGARD_EXPORT std::string write_explain_input(const ExplainInput& input);
/// Reads an input from JSON; docs/guide/own-matrices.md describes the format.
///
/// @param json              The JSON text.
/// @param source            Name of the text for error messages.
/// @param stop              Stop token, polled while the text is read.
/// @param max_memory_bytes  Memory limit for reading, in bytes; if absent, available_memory_bytes().
/// @return The input.
/// @throws DataError  in any of the following cases (the message states `source`, the byte offset and the key):
///                    - the text is not valid JSON, has duplicate keys, or is nested more than 64 levels deep
///                    - a number is out of range for double, or a matrix is ragged
///                    - reading needs more memory than is available, which is checked before any of it is allocated:
///                      "source: needs N bytes of memory; M are available"
/// @throws Cancelled  if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const ExplainInput input = read_explain_input(read_text_file("input.json"), "input.json");
/// @endcode
REGARD_EXPORT ExplainInput read_explain_input(std::string_view json, const std::string& source,
                                              const std::stop_token& stop = {},
                                              std::optional<std::uint64_t> max_memory_bytes = std::nullopt);

/// Parses a scale in the form used on the command line and in JSON.
///
/// @param text  `none`, `sqrt`, `floor_half` or a finite number.
/// @return The scale.
/// @throws InvalidArgument  if the text is anything else. The message lists the allowed values.
REGARD_EXPORT Scale parse_scale(std::string_view text);
/// Parses a causal mask in the form used on the command line and in JSON.
///
/// @param text  `top_left`, `bottom_right`, `off` or an integer offset.
/// @return The causal mask.
/// @throws InvalidArgument  if the text is anything else. The message lists the allowed values.
REGARD_EXPORT Causal parse_causal(std::string_view text);
/// Parses a layout in the form used on the command line and in JSON.
///
/// @param text  `rows` or `columns`.
/// @return The layout.
/// @throws InvalidArgument  if the text is anything else. The message lists the allowed values.
REGARD_EXPORT Layout parse_layout(std::string_view text);

}  // namespace regard::inline v0
