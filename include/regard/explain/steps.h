// SPDX-License-Identifier: Apache-2.0
//
// The steps of an attention computation as data.
//
//     ExplainInput   matrices by name, settings, and a list of StepRequests (which operation on which names)
//        │ explain()
//     Explanation    the same list, computed: one Step each, with its equation, operands and result
//        │ render_text(), render_json(), render_html()
//
// A lesson is an ExplainInput; so is a file given to `regard explain`. Products, softmax, weights and context come
// from attention.h and linear.h; what those lack is marked `outside_library` in its step.
// Read next: docs/explain-input.md (the same as JSON), src/explain/steps/operations.h (the operations).
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

enum class Layout { rows, columns };  // a token is a row (X·W, Q·Kᵀ) or a column (W·X, Kᵀ·Q)
// What scores are multiplied by: 1, 1/√D, a number, or, as done by hand, replaced by floor(score / 2).
enum class ScaleRule { none, sqrt, number, floor_half };
struct Scale {
  ScaleRule rule = ScaleRule::sqrt;
  double number = 1.0;  // with ScaleRule::number
  friend bool operator==(const Scale&, const Scale&) = default;
};

// Query row i sees key j when j ≤ i + offset.
enum class CausalRule { off, top_left, bottom_right, number };
struct Causal {
  CausalRule rule = CausalRule::off;
  Index offset = 0;  // with CausalRule::number
  friend bool operator==(const Causal&, const Causal&) = default;
};

// How scores become weights. Only shifted with base e is the library's; ratio divides each score by its row's sum.
enum class SoftmaxRule { shifted, unshifted, ratio };

// Numbers that a document prints for a step. A figure of ours that does not round to them is shown beside them.
struct Expected {
  Matrix numbers;
  int digits = 4;  // decimals that the document prints, or with `significant` significant digits
  bool significant = false;
  std::vector<Index> rows{};     // of the result, for documents that print only some; empty: all
  std::vector<Index> columns{};  // likewise
};

/// What a step computes: docs/explain-input.md has operands and results. In JSON each has the name that it has here.
enum class Operation {
  show,
  linear,
  product,
  mix,
  join,
  variances,
  scores,
  scaled,
  mask,
  masked,
  weights,
  context,
  floor_half,
  hide,
  power,
  sums,
  divide,
  ratio,
  cosine,
  add,
  normalize,
  relu,
  torch_normal,
  torch_uniform,
  softmax,
  difference,
  focus_vectors,
  ranks,
  variance_rule,
  float32_dots,
  dot_table,
  ulp_table,
  scale_statistics
};
inline constexpr int kNumOperations = static_cast<int>(Operation::scale_statistics) + 1;  // they count from 0
REGARD_EXPORT std::string_view operation_name(Operation operation);                       // "show"
REGARD_EXPORT std::optional<Operation> operation_named(std::string_view name);

// One step to compute.
struct StepRequest {
  Operation operation = Operation::show;
  std::vector<std::string> operands{};  // names of input matrices or of earlier results
  std::string result{};                 // the name that later steps use, and the symbol shown: "Q"
  std::string name{};                   // for --step and as title: Regard's term; empty: the operation's own
  std::string document_name{};          // the document's own name for it: "new V"
  std::string equation{};               // empty: the operation's own
  std::optional<Scale> scale{};         // where not given: the input's own setting
  std::optional<Causal> causal{};
  std::optional<Index> heads{};       // operation linear: split the result
  std::optional<double> base{};       // operation power
  std::string transpose{};            // operation product: "left", "right" or nothing
  std::vector<double> numbers{};      // operations that take plain numbers
  std::vector<std::string> labels{};  // of rows, where they are not tokens
  std::vector<std::string> column_labels{};
  std::optional<int> digits{};  // decimals shown, where the step needs others than the rest
  bool fractions = false;       // show exact fractions beside decimals
  std::optional<Expected> expected{};
  std::string finding{};  // the sentence before the numbers; empty: the operation's own
  std::vector<std::string> notes{};
  std::vector<std::string> errata{};  // where the document errs, a line each
};

struct ExplainSettings {
  Layout layout = Layout::rows;
  Scale scale;
  Causal causal;
  SoftmaxRule softmax = SoftmaxRule::shifted;
  std::optional<double> softmax_base;  // absent: e
  Index heads = 1;
  ElementType dtype = ElementType::float64;  // or float32
  std::string query;                         // WORD, WORD#1 or @INDEX: the query in focus; empty: none
  std::optional<int> digits;                 // decimals shown; absent: 4, or none for whole numbers
  friend bool operator==(const ExplainSettings&, const ExplainSettings&) = default;
};

struct NamedMatrix {
  std::string name;
  Matrix matrix;
};

struct NamedText {
  std::string name;
  std::string text;
};

// A second computation beside the first: the same steps with other settings or matrices.
struct Variant {
  std::string label;  // "with √3"
  ExplainSettings settings;
  std::vector<NamedMatrix> matrices{};  // replace those of the same name
};

struct ExplainInput {
  std::string lesson{};  // the name of the lesson that this is; empty for other inputs, and not part of their JSON
  std::string title{};
  std::string citation{};
  std::vector<std::string> tokens{};  // the words of the queries; and of the keys, unless key_tokens is given
  std::vector<std::string> key_tokens{};
  std::vector<NamedMatrix> matrices{};  // in the order given
  ExplainSettings settings{};
  std::vector<NamedText> names{};                           // the document's own names by step: {"context", "new V"}
  std::map<std::string, Expected> expected{};               // by step, beside what the steps themselves expect
  std::map<std::string, std::vector<std::string>> notes{};  // likewise
  std::vector<StepRequest> steps{};                         // empty: the standard steps for these matrices
  std::vector<Variant> variants{};
  std::vector<std::string> errata{};  // the document's errata, printed at the end
};

// The steps that an input without any stands for: projections where there are W_query, W_key, W_value (and biases
// b_query …), else Q, K, V; scores, scaled, masked (if causal), weights, context; heads joined, W_output.
// Throws std::invalid_argument naming the matrix that is missing or that no step uses.
REGARD_EXPORT std::vector<StepRequest> standard_steps(const ExplainInput& input);

// An axis of a result: its extent's letter, what it counts, and a label for each index (or none).
struct Axis {
  std::string extent;  // "L", "S", "D", "E", …
  std::string name;    // "query", "key", "dimension", …
  std::vector<std::string> labels{};
};

enum class SumAxis { none, row, column };  // each row sums to 1, or each column

struct Operand {
  std::string name;                      // "W_query"
  std::shared_ptr<const Matrix> matrix;  // as it was when the step was computed
};

// The other computations' result of a step.
struct VariantResult {
  std::string label;
  Matrix result;
};

/// What the scores of seeded queries and keys look like, and the weights that softmax makes of them: the figure of
/// lesson why-scale, of the same numbers as its table.
struct ScoreSample {
  double low = 0.0;                      ///< the histogram reaches from low …
  double high = 0.0;                     ///< … to high
  std::vector<Index> counts{};           ///< scores in each of equal bins, low ≤ score < high
  Index below = 0;                       ///< scores below low
  Index above = 0;                       ///< scores of high and above
  std::vector<double> ranked_weights{};  ///< mean weight of the key of rank 1 (the largest), 2, … of a query
};
/// One row of operation scale_statistics.
struct ScalePicture {
  Index head_size = 0;
  ScoreSample plain{};   ///< of q·k
  ScoreSample scaled{};  ///< of q·k/√D
};

struct Step {
  StepRequest request;
  std::string name;           // unique: "weights", "weights#1" for the second
  std::string term;           // "attention weights"
  std::string document_name;  // "new V", or nothing
  std::string symbol;         // "A"
  std::string equation;       // "A = softmax(S / √D), each row by itself"
  std::vector<Operand> operands{};
  std::vector<Operand> requested_operands{};  // what the request names; attention steps have others as operands
  Matrix result{};
  Axis row_axis{};
  Axis column_axis{};
  SumAxis sums_to_one = SumAxis::none;
  std::vector<double> sums{};           // along that axis: (heads, rows) or (heads, columns), as stored
  std::vector<std::string> exact{};     // the fraction of each number, or nothing
  std::vector<std::uint8_t> differs{};  // 1 for each number that the document prints otherwise, or nothing
  std::string finding{};
  std::vector<std::string> notes{};
  std::vector<std::string> errata{};
  std::vector<VariantResult> variants{};
  std::vector<ScalePicture> pictures{};  // of scale_statistics, one for each length D
  bool outside_library = false;          // computed by src/explain/steps/paper_arithmetic.cpp
  double factor = 1.0;                   // attention steps: what the scores were multiplied by; power: the base
  Index causal_offset = 0;               // masked steps: query i sees key j ≤ i + offset
};

struct Explanation {
  std::string lesson;  // its name, "three-words"; empty: none
  std::string title;
  std::string citation;
  std::string finding;                     // of the step "weights", else of the last that has weights
  std::vector<std::string> settings_text;  // "scale 1/√3 = .5774", a line each
  ExplainSettings settings;
  std::vector<std::string> tokens;
  std::vector<std::string> key_tokens;
  std::optional<Index> focus;  // index of settings.query
  std::vector<Step> steps;
  std::vector<std::string> errata;
};

// Every query's row of scores, weights and context is kept up to this many numbers a step; beyond it the first and
// last rows, the token in focus and the ones asked for. 1 Mi numbers are 8 MiB here and about 20 MB of JSON.
inline constexpr Index kExplainKeptNumbers = Index{1} << 20;
struct Keep {
  bool all = false;           // every row, however many there are
  std::vector<Index> also{};  // queries
};

// Computes every step.
// Throws std::invalid_argument naming step, matrix, actual and expected shape; unknown or ambiguous tokens; unknown
// operations; and, with both numbers, work that does not fit into memory; regard::Cancelled, between steps, where
// a stop is requested.
REGARD_EXPORT Explanation explain(const ExplainInput& input, const Keep& keep = {}, const std::stop_token& stop = {});

// The words of the queries: the tokens given, else the numbers from 0 on.
REGARD_EXPORT std::vector<std::string> query_tokens(const ExplainInput& input);

// The index that WORD, WORD#1 (second occurrence) or @INDEX names.
// Throws std::invalid_argument with the choices when there is none, or a bare word stands more than once.
REGARD_EXPORT Index token_index(const std::vector<std::string>& tokens, std::string_view token);

// One line of the working of a cell: "Q[1,2] · K[0,2] = 1 × 2 = 2", with the sum so far.
struct CellTerm {
  std::string label;
  std::vector<double> factors;
  double product = 0.0;
  double partial_sum = 0.0;
};
// How one cell came about: its terms, then lines such as the exponential and the share.
struct CellDerivation {
  std::string what;  // "weights[love, I]"
  std::vector<CellTerm> terms{};
  std::vector<NamedText> lines{};  // "exponential", "e^(1 − 1) = 1"
  std::string brief{};             // what one line says of them: "2 / √3 = 1.1547"; empty: the last line
  double result = 0.0;
  double difference = 0.0;  // partial sum of the terms as listed, less the result
  Index zero_weights = 0;   // keys whose term is left out, as their weight is 0
};
struct Cell {
  Index row;
  Index column;
  Index head = 0;
};
// Throws std::invalid_argument when the cell is outside the step's result, or not kept.
REGARD_EXPORT CellDerivation expand_cell(const Explanation& explanation, const Step& step, const Cell& cell,
                                         int digits);

struct TextOptions {
  int width = 80;
  bool color = false;
  bool unicode = true;
  bool full = false;  // every number, however many
  std::optional<int> digits{};
  std::string step{};          // a name or a number counted from 0; empty: all
  std::optional<Cell> cell{};  // expand it in the steps shown that have it
};
// The text of the whole, or of one step at a time (for a pause between them). Ends with a newline.
// Throws std::invalid_argument when options name a step or a cell that does not exist, with the choices. Renderers
// throw Cancelled where a stop is requested.
REGARD_EXPORT std::string render_text(const Explanation& explanation, const TextOptions& options,
                                      const std::stop_token& stop = {});
REGARD_EXPORT std::vector<std::string> render_text_pages(const Explanation& explanation, const TextOptions& options,
                                                         const std::stop_token& stop = {});

// "schema": "regard/1" first; numbers in the shortest form that reads back the same; non-finite ones "-inf", "inf",
// "nan". command is what the user typed.
struct JsonOptions {
  std::string command{};
  std::string step{};
  std::optional<Cell> cell{};
};
REGARD_EXPORT std::string render_json(const Explanation& explanation, const JsonOptions& options,
                                      const std::stop_token& stop = {});

// One self-contained page: the JSON above with what the page needs beside it, the page's script and style. It asks no
// host for anything (docs/page.md).
struct HtmlOptions {
  std::string command{};
  std::optional<int> digits{};
};
REGARD_EXPORT std::string render_html(const Explanation& explanation, const HtmlOptions& options,
                                      const std::stop_token& stop = {});

// The input as JSON, and back: read_explain_input(write_explain_input(x)) explains to the same steps.
// Reading throws regard::DataError with `source` and the byte offset (broken JSON, duplicate keys, numbers that no
// double holds, ragged matrices, depth above 64), naming the key at fault, or "source: needs N bytes of memory; M are
// available" before they are taken (M is max_memory_bytes; absent: available_memory_bytes()), and regard::Cancelled
// where a stop is requested.
REGARD_EXPORT std::string write_explain_input(const ExplainInput& input);
REGARD_EXPORT ExplainInput read_explain_input(std::string_view json, const std::string& source,
                                              const std::stop_token& stop = {},
                                              std::optional<std::uint64_t> max_memory_bytes = std::nullopt);

// Option texts as the program and the JSON write them. Each throws std::invalid_argument with what is allowed.
REGARD_EXPORT Scale parse_scale(std::string_view text);    // none, sqrt, floor_half, NUMBER
REGARD_EXPORT Causal parse_causal(std::string_view text);  // top_left, bottom_right, NUMBER, off
REGARD_EXPORT Layout parse_layout(std::string_view text);  // rows, columns

}  // namespace regard::inline v0
