// SPDX-License-Identifier: Apache-2.0
//
// Every intermediate value of one weight, for --full: eight sections, from the embedding tables to the word's vector
// after the layer.
//
//     a vector of E elements is a table with one line per dimension; each element of q, k and v is shown as its three
//     largest products, the sum of the others and the bias
//
// Read next: sentence_details.cpp, docs/guide/sentence.md.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "sentence_text.h"

namespace regard::inline v0 {
namespace {

// A column of a table of vectors: its header and its numbers.
struct VectorColumn {
  std::string header;
  std::vector<double> numbers;
};
template <class T>
VectorColumn vector_column(const char* header, const std::vector<T>& numbers) {
  return {header, std::vector<double>(numbers.begin(), numbers.end())};
}

constexpr std::size_t kUnits = 10;  // of the feed-forward layer, that are shown

class Account {
 public:
  Account(const AnalysisText& text, const SentenceDetails& work) : t_(text), s_(text.analysis), w_(work) {
    style_ = {.digits = text.options.digits.value_or(4), .unicode = text.paint.unicode};
  }

  std::vector<std::string> make() {
    embedding();
    split_into_heads();
    projections();
    scores();
    softmax();
    context();
    output();
    feed_forward();
    return std::move(lines_);
  }

 private:
  void line(const std::string& l) {
    throw_if_stopped(t_.stop, "the explanation");
    lines_.push_back(l);
  }
  void blank() { lines_.emplace_back(); }
  void heading(const std::string& words) {
    blank();
    for (const std::string& l : wrap_words(t_.own(fmt::format("{}  {}", next_++, words)), t_.width, 3))
      line(t_.paint.bold(l));
  }
  void say(const std::string& words) {
    for (const std::string& l : wrap_words(t_.own(words), t_.width - 3, 0)) line("   " + l);
  }
  std::string number(double x) const { return styled_number(x, style_); }
  std::string query() const { return t_.paint.quoted(t_.token(w_.query)); }
  std::string key() const {
    return s_.row.layer == 0 ? t_.paint.quoted(t_.token(w_.key))
                             : fmt::format("the vector at {}, already mixed", t_.paint.quoted(t_.token(w_.key)));
  }

  // One line per dimension; columns are right-aligned, with equal numbers of decimal places. Columns that do not fit
  // form a second block.
  void vectors(const char* index_name, const std::vector<VectorColumn>& columns) {
    constexpr int kIndexWidth = 7;
    const int column_width = std::max(10, style_.digits + 5) + 2;
    const std::size_t fit = static_cast<std::size_t>(std::max(1, (t_.width - kIndexWidth) / column_width));
    for (std::size_t first = 0; first < columns.size(); first += fit) {
      const std::size_t last = std::min(columns.size(), first + fit);
      std::string head = pad_left(t_.own(index_name), kIndexWidth);
      for (std::size_t c = first; c < last; ++c) head += pad_left(t_.own(columns[c].header), column_width);
      line(t_.paint.bold(head));
      for (std::size_t i = 0; i < columns[first].numbers.size(); ++i) {
        std::string l = pad_left(fmt::format("{}", i), kIndexWidth);
        for (std::size_t c = first; c < last; ++c) l += pad_left(number(columns[c].numbers[i]), column_width);
        line(l);
      }
    }
  }

  bool causal() const { return s_.extents.causal; }
  bool has_feed_forward() const { return !w_.feed_forward.empty(); }

  // "mean 0.1234, deviation 1.0000", or "root mean square 1.0000".
  std::string norm_values(const NormDetails& norm) const {
    if (w_.rms_norm) return fmt::format("root mean square {}", number(norm.deviation));
    return fmt::format("mean {}, deviation {}", number(norm.mean), number(norm.deviation));
  }
  // What the norm of a decoder is.
  std::string norm_formula() const {
    return w_.rms_norm ? "x / √(mean of x² + ε) · gain" : "(x − mean) / √(variance + ε) · gain";
  }

  void decoder_embedding() {
    const bool has_position = !w_.position.empty();
    heading(fmt::format("{} enters as its token{}", query(), has_position ? " + position" : ""));
    say(fmt::format("Token {} of {}, id {}: {}.", w_.query, s_.sentence.tokens.ids.size(),
                    s_.sentence.tokens.ids[static_cast<std::size_t>(w_.query)],
                    has_position ? fmt::format("the sum of two table rows, for its id and position {}", w_.query)
                    : w_.rotated ? "the table row for its id; its position enters by rotating q and k"
                                 : "the table row for its id; only the mask encodes the order of the tokens"));
    std::vector<VectorColumn> columns{vector_column("token", w_.word)};
    if (has_position) {
      columns.push_back(vector_column("position", w_.position));
      columns.push_back(vector_column("sum", w_.embedded));
    }
    vectors("dim", columns);
  }

  void embedding() {
    if (causal()) {
      decoder_embedding();
      earlier_layers("tokens");
      return;
    }
    heading(fmt::format("{} enters as word + position + type, normalized", query()));
    say(fmt::format(
        "Token {} of {}, id {}: the sum of three table rows, for its word, position {} and token type 0. Then "
        "(sum − mean) / deviation · gain + bias, with mean {} and deviation √(variance + ε) = {}; gain and "
        "bias are trained parameters, one for each of the {} dimensions.",
        w_.query, s_.sentence.tokens.ids.size(), s_.sentence.tokens.ids[static_cast<std::size_t>(w_.query)], w_.query,
        number(w_.embedding_norm.mean), number(w_.embedding_norm.deviation), s_.extents.width));
    vectors("dim", {vector_column("word", w_.word), vector_column("position", w_.position),
                    vector_column("type", w_.type), vector_column("normalized", w_.embedded)});
    earlier_layers("words");
  }
  void earlier_layers(const char* nouns) {
    if (s_.row.layer == 0) return;
    say(
        fmt::format("Layers 0 to {} then mix it with other {}: the steps below start from the vector at {} after "
                    "these layers, and from the other {}’ vectors.",
                    s_.row.layer - 1, nouns, query(), nouns));
  }

  void split_into_heads() {
    const Index head_size = s_.extents.head_size;
    heading(fmt::format("{} = {} heads × {}", s_.extents.num_heads * head_size, s_.extents.num_heads, head_size));
    say(fmt::format(
        "Each head has {} of the {} elements of query, key and value: head {} has elements {} to {}. It compares "
        "{} by these elements alone.",
        head_size, s_.extents.num_heads * head_size, s_.row.head, s_.row.head * head_size,
        (s_.row.head + 1) * head_size - 1, t_.noun(2)));
    say(
        fmt::format("Why √{0}: a sum of {0} products of independent values with variance 1 has variance {0}, so its "
                    "typical size is √{0} = {1}. Divided by √{0}, scores have a typical size of 1 for any head size, "
                    "and the softmax neither saturates on one word nor becomes uniform.",
                    head_size, number(std::sqrt(static_cast<double>(head_size)))));
  }

  void projection(const char* name, const std::string& of, const std::vector<ProjectedElement>& numbers) {
    say(fmt::format("{}({}) = x · W_{} + b_{}", name, of,
                    name[0] == 'q'   ? "query"
                    : name[0] == 'k' ? "key"
                                     : "value",
                    name[0] == 'q'   ? "query"
                    : name[0] == 'k' ? "key"
                                     : "value"));
    for (std::size_t d = 0; d < numbers.size(); ++d) {
      const ProjectedElement& one = numbers[d];
      std::string words;
      std::vector<double> terms;
      for (const DotTerm& term : one.largest) {
        words += words.empty() ? number(term.product)
                               : fmt::format(" {} {}", term.product < 0 ? "−" : "+", number(std::fabs(term.product)));
        words += fmt::format(" (x{})", term.dimension);
        terms.push_back(term.product);
      }
      words += fmt::format(" {} {} ({} others)", one.others < 0 ? "−" : "+", number(std::fabs(one.others)),
                           s_.extents.width - static_cast<Index>(one.largest.size()));
      words += fmt::format(" {} {} (bias)", one.bias < 0 ? "−" : "+", number(std::fabs(one.bias)));
      terms.push_back(one.others);
      terms.push_back(one.bias);
      const std::string label =
          pad_left(fmt::format("{}{} {}", name, d, pad_left(number(one.value), style_.digits + 4)), 15);
      for (const std::string& l : t_.item(label, 15, "= " + words + rounding_note(style_, terms, one.value))) line(l);
    }
  }

  void projections() {
    heading("query, key and value");
    if (causal()) {
      say(fmt::format("x is the norm of the vector before this layer, {}: for {}, {}.", norm_formula(), query(),
                      norm_values(w_.input_norm)));
      vectors("dim", {vector_column("before", w_.input), vector_column("x", w_.attention_input)});
    }
    say(fmt::format(
        "{}Each element is a sum of {} products of x and a parameter, and a bias. "
        "The three largest products are shown with their element of x: in the row of q0, 0.1234 (x5) is "
        "x5 · W_query[5, {}].",
        causal() ? "" : "x is the vector before this layer. ", s_.extents.width, s_.row.head * s_.extents.head_size));
    if (w_.rotated) say("q and k are shown before they are rotated by their positions.");
    projection("q", query(), w_.query_elements);
    projection("k", key(), w_.key_elements);
    projection("v", key(), w_.value_elements);
  }

  void scores() {
    heading(fmt::format("q·k of {} and {}", query(), key()));
    std::vector<DotTerm> terms = s_.dot.terms;
    std::sort(terms.begin(), terms.end(), [](const DotTerm& a, const DotTerm& b) { return a.dimension < b.dimension; });
    std::vector<VectorColumn> columns = {{"q", {}}, {"k", {}}, {"q·k", {}}, {"so far", {}}};
    double sum = 0;
    for (const DotTerm& term : terms) {
      sum += term.product;
      const std::array<double, 4> numbers = {term.query, term.key, term.product, sum};
      for (std::size_t c = 0; c < numbers.size(); ++c) columns[c].numbers.push_back(numbers[c]);
    }
    vectors("dim", columns);
    say(fmt::format("{} / √{} = {}", number(s_.dot.dot), s_.extents.head_size, number(s_.term.score)));
  }

  // The row of the query piece: every token, pieces of words too.
  void softmax() {
    heading(fmt::format("the softmax of the row of {}", query()));
    if (causal()) {
      say("A token attends to itself and to the tokens before it; the scores of later tokens are −∞.");
    } else {
      say(s_.sentence.trace.hidden_keys.empty() ? "Every word attends to every word: an encoder has no mask."
                                                : "Every word attends to every word except hidden words, whose scores "
                                                  "are −∞; the model itself has no mask.");
    }
    const Index piece =
        static_cast<Index>(std::find(s_.row.queries.begin(), s_.row.queries.end(), w_.query) - s_.row.queries.begin());
    const Index length = s_.row.scores.shape()[1];
    const int label = std::clamp(t_.width - 31 - 4 * style_.digits, 8, 18);
    line(t_.paint.bold("   " + pad_right("token", label) + pad_left(t_.own("q·k"), style_.digits + 6) +
                       pad_left(t_.own(fmt::format("÷√{}", s_.extents.head_size)), style_.digits + 6) +
                       pad_left(t_.own(s_.term.shift == 0 ? "e^" : "e^ − largest"), style_.digits + 10) +
                       pad_left("weight", style_.digits + 6)));
    std::vector<double> weights;
    for (Index k = 0; k < length; ++k) {
      if (causal() && k > w_.query) break;
      const bool hidden = std::isinf(s_.row.scores(piece, k));
      const double exponential = hidden ? 0.0 : std::exp(s_.row.scores(piece, k) - s_.term.shift);
      weights.push_back(s_.row.weights(piece, k));
      line("   " + pad_right(truncate_to_width(t_.token(k), label, t_.paint.unicode), label) +
           pad_left(number(s_.row.dots(piece, k)), style_.digits + 6) +
           pad_left(hidden ? "hidden" : number(s_.row.scores(piece, k)), style_.digits + 6) +
           pad_left(number(exponential), style_.digits + 10) + pad_left(number(weights.back()), style_.digits + 6));
    }
    line("   " + pad_right("sum", label) + pad_left("", 2 * (style_.digits + 6)) +
         pad_left(number(s_.term.sum), style_.digits + 10) +
         pad_left(number(s_.term.sum > 0 ? 1.0 : 0.0), style_.digits + 6));
    if (const std::string rounding = rounding_note(style_, weights, 1.0); !rounding.empty() && s_.term.sum > 0) {
      say("the weights sum to 1" + rounding);
    }
  }

  void context() {
    heading(fmt::format("output of head {}: Σ weight · v over all tokens", s_.row.head));
    vectors("dim", {vector_column("context", w_.context)});
  }

  void decoder_output() {
    heading("projection back to the model’s width, added to the residual");
    say(
        fmt::format("The product of the context and the head’s {} rows of W_output is this head’s share. The shares of "
                    "the other {} heads{} are added, and the sum is added to the residual.",
                    s_.extents.head_size, s_.extents.num_heads - 1, w_.b_output.empty() ? "" : " and b_output"));
    std::vector<VectorColumn> columns{vector_column("this head", w_.head_share),
                                      vector_column("others", w_.other_heads)};
    if (!w_.b_output.empty()) columns.push_back(vector_column("b_output", w_.b_output));
    columns.push_back(vector_column("attention", w_.attention_output));
    columns.push_back(vector_column("residual", w_.input));
    columns.push_back(vector_column("sum", w_.residual));
    vectors("dim", columns);
  }

  void output() {
    if (causal()) return decoder_output();
    heading("projection back to the model’s width, added to the residual");
    say(fmt::format(
        "The product of the context and the head’s {} rows of W_output is this head’s share. The shares of the other "
        "{} heads and b_output are added. Residual + attention is normalized: mean {}, deviation {}.",
        s_.extents.head_size, s_.extents.num_heads - 1, number(w_.attention_norm.mean),
        number(w_.attention_norm.deviation)));
    vectors("dim", {vector_column("this head", w_.head_share), vector_column("others", w_.other_heads),
                    vector_column("b_output", w_.b_output), vector_column("attention", w_.attention_output),
                    vector_column("residual", w_.input), vector_column("normalized", w_.attention_normed)});
  }

  void decoder_feed_forward() {
    if (!has_feed_forward()) {
      heading("the vector after the layer");
      say(fmt::format("This model has no feed-forward layers: the sum above is {} after layer {}.", query(),
                      s_.row.layer));
      return;
    }
    heading("the feed-forward, and the vector after the layer");
    const bool has_gate = w_.activation == "swiglu";
    say(fmt::format(
        "{}, where x is the norm of the sum above: {}. The {} largest contributions of {} hidden units:",
        has_gate ? "(silu(x · W_gate) · (x · W_up)) · W_down" : fmt::format("{}(x · W_up) · W_down", w_.activation),
        norm_values(w_.attention_norm), std::min(kUnits, w_.units.size()), w_.units.size()));
    std::string head = "   " + pad_left("unit", 8);
    if (has_gate) head += pad_left("gate", style_.digits + 8);
    head += pad_left(has_gate ? "up" : "a", style_.digits + 8);
    head += pad_left(has_gate ? "product" : w_.activation + "(a)", style_.digits + 12);
    line(t_.paint.bold(head + pad_left("norm", style_.digits + 8)));
    for (std::size_t n = 0; n < std::min(kUnits, w_.units.size()); ++n) {
      const FeedForwardUnit& unit = w_.units[n];
      std::string l = "   " + pad_left(fmt::format("{}", unit.unit), 8);
      if (has_gate) l += pad_left(number(unit.gate), style_.digits + 8);
      l += pad_left(number(unit.before), style_.digits + 8) + pad_left(number(unit.after), style_.digits + 12);
      line(l + pad_left(number(unit.contribution), style_.digits + 8));
    }
    say(fmt::format("The feed-forward is added to the residual. The sum is {} after layer {}.", query(), s_.row.layer));
    vectors("dim", {vector_column("x", w_.attention_normed), vector_column("feed-forw.", w_.feed_forward),
                    vector_column("residual", w_.residual), vector_column("sum", w_.output)});
  }

  void feed_forward() {
    if (causal()) return decoder_feed_forward();
    heading("the feed-forward, and the vector after the layer");
    say(fmt::format(
        "gelu(x · W_up + b_up) · W_down + b_down with {} hidden units: each unit reads only this vector and "
        "contributes its row of W_down, times gelu(a) = ½ a (1 + erf(a / √2)). The {} largest contributions:",
        w_.units.size(), std::min(kUnits, w_.units.size())));
    line(t_.paint.bold("   " + pad_left("unit", 8) + pad_left("a", style_.digits + 8) +
                       pad_left("gelu(a)", style_.digits + 8) + pad_left("norm", style_.digits + 8)));
    for (std::size_t n = 0; n < std::min(kUnits, w_.units.size()); ++n) {
      const FeedForwardUnit& unit = w_.units[n];
      line("   " + pad_left(fmt::format("{}", unit.unit), 8) + pad_left(number(unit.before), style_.digits + 8) +
           pad_left(number(unit.after), style_.digits + 8) + pad_left(number(unit.contribution), style_.digits + 8));
    }
    say(fmt::format("The sum of input and output is normalized: mean {}, deviation {}. This is {} after layer {}.",
                    number(w_.output_norm.mean), number(w_.output_norm.deviation), query(), s_.row.layer));
    vectors("dim", {vector_column("input", w_.attention_normed), vector_column("feed-forw.", w_.feed_forward),
                    vector_column("normalized", w_.output)});
  }

  const AnalysisText& t_;
  const SentenceAnalysis& s_;
  const SentenceDetails& w_;
  NumberStyle style_;
  std::vector<std::string> lines_;
  int next_ = 0;
};

}  // namespace

std::vector<std::string> sentence_detail_lines(const AnalysisText& text, const SentenceDetails& work) {
  return Account(text, work).make();
}

}  // namespace regard::inline v0
