// SPDX-License-Identifier: Apache-2.0
//
// The measures of heads as text and as JSON; see regard/explain/heads.h.
//
//     the finding: the head with the largest mean of each measure  →  a table with one row per head and one column
//     per measure, in blocks that fit the width
//
// Read next: table.h, terminal.h, sentence_json.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "explain/report/table.h"
#include "explain/report/terminal.h"
#include "regard/explain/heads.h"
#include "sentence_json.h"

namespace regard::inline v0 {
namespace {

class HeadsRenderer {
 public:
  HeadsRenderer(const HeadSurvey& survey, const HeadFilter& filter, const HeadsTextOptions& options)
      : s_(survey),
        filter_(filter),
        options_(options),
        chosen_(chosen_heads(survey, filter)),
        paint_{options.color, options.unicode},
        width_(std::max(options.width, 40)) {}

  std::string render() {
    finding();
    out_ += "\n";
    if (chosen_.empty()) {
      out_ += "No head has a mean within these bounds.\n";
      return std::move(out_);
    }
    make_columns();
    blocks();
    notes();
    vocabulary();
    return std::move(out_);
  }

 private:
  struct Column {
    std::string name;
    std::string uniform, n;          // of the two rows above the heads
    std::vector<std::string> cells;  // of the chosen heads
    int width = 0;
  };

  void paragraph(const std::string& text, bool bold) {
    for (const std::string& part : wrap_words(text, std::min(width_, kWidestProse), 0))
      out_ += (bold ? paint_.bold(part) : part) + "\n";
  }
  std::string number(double x) const {
    if (std::isnan(x)) return paint_.unicode ? "–" : "-";
    return styled_number(x, NumberStyle{.digits = options_.full ? 4 : 2, .unicode = paint_.unicode});
  }
  static std::string head_name(const HeadMeasures& head) { return fmt::format("L{}H{}", head.layer, head.head); }

  // The head with the largest (or smallest) mean of a measure, among those shown.
  std::string extreme(HeadMeasure measure, const char* says, bool least = false) const {
    const HeadMeasures* best = nullptr;
    for (const HeadMeasures& head : chosen_) {
      const double x = head.of(measure).mean;
      if (std::isnan(x)) continue;
      if (best == nullptr || (least ? x < best->of(measure).mean : x > best->of(measure).mean)) best = &head;
    }
    if (best == nullptr) return "";
    return fmt::format("; {}: {} {} (uniform {})", says, head_name(*best), number(best->of(measure).mean),
                       number(best->of(measure).uniform));
  }

  void finding() {
    const auto texts = static_cast<Index>(s_.texts.size());
    std::string what = fmt::format("{} of {} heads, on {} text{} of {} tokens", chosen_.size(), s_.heads.size(), texts,
                                   texts == 1 ? "" : "s", s_.num_tokens);
    if (filter_.sort) what.append(", sorted by ").append(head_measure_name(*filter_.sort)).append(", largest first");
    paragraph(what + ".", true);
    std::string most =
        extreme(HeadMeasure::entropy, "sharpest (lowest entropy)", true) +
        extreme(HeadMeasure::special, "most weight on special tokens") +
        extreme(HeadMeasure::self, "on the token itself") + extreme(HeadMeasure::previous, "on the previous token") +
        extreme(HeadMeasure::next, "on the next token") + extreme(HeadMeasure::distance, "largest distance") +
        extreme(HeadMeasure::contribution, "largest contribution");
    if (most.empty()) return;
    most = most.substr(2) + ".";
    most[0] = 'S';
    paragraph(most, false);
  }

  // Distances and norms have one decimal place fewer than shares, so that all measures fit in 80 columns.
  int digits_of(HeadMeasure measure) const {
    if (options_.full) return 4;
    return measure == HeadMeasure::distance || measure == HeadMeasure::contribution ? 1 : 2;
  }
  // The table prints "0.00" for values too small for its digits, which keeps columns narrow.
  std::string cell(double x, HeadMeasure measure) const {
    if (std::isnan(x)) return paint_.unicode ? "–" : "-";
    std::string text = styled_number(x, {.digits = digits_of(measure), .unicode = paint_.unicode});
    if (text != "0" && text[0] != '<') return text;
    return std::string("0.").append(static_cast<std::size_t>(digits_of(measure)), '0');
  }

  void make_columns() {
    for (const HeadMeasure measure : kHeadMeasures) {
      if (s_.causal && (measure == HeadMeasure::special || measure == HeadMeasure::next)) continue;
      Column mean{std::string(head_measure_name(measure)), "", "", {}, 0};
      const bool own = measure == HeadMeasure::contribution || options_.full;  // a uniform value for each head
      Column uniform{"uniform", "", "", {}, 0};
      int widest = 0;
      for (const HeadMeasures& head : chosen_) {
        widest = std::max(widest, display_width(cell(head.of(measure).deviation, measure)));
      }
      for (const HeadMeasures& head : chosen_) {
        const HeadStatistic& s = head.of(measure);
        mean.cells.push_back(cell(s.mean, measure) + (paint_.unicode ? "±" : "+-") +
                             pad_right(cell(s.deviation, measure), widest));
        uniform.cells.push_back(cell(s.uniform, measure));
      }
      // All heads are measured on the same queries.
      const HeadStatistic& any = chosen_.front().of(measure);
      mean.n = std::to_string(any.n);
      if (!own)
        mean.uniform = pad_right(cell(any.uniform, measure), display_width(cell(any.uniform, measure)) + widest + 1);
      if (own && !options_.full) {
        // One column: two names do not fit in 80 columns.
        mean.name = "norm uniform";
        for (std::size_t h = 0; h < mean.cells.size(); ++h)
          mean.cells[h] += fmt::format(" {}", pad_left(uniform.cells[h], 3));
        mean.n += std::string(4, ' ');
      }
      for (Column* column : {&mean, &uniform}) {
        if (column == &uniform && !options_.full) continue;
        column->width =
            std::max({display_width(column->name), display_width(column->n), display_width(column->uniform)});
        for (const std::string& text : column->cells) column->width = std::max(column->width, display_width(text));
        columns_.push_back(std::move(*column));
      }
    }
  }

  void blocks() {
    int label = options_.full ? 1 : display_width("uniform");
    for (const HeadMeasures& head : chosen_) label = std::max(label, display_width(head_name(head)));
    int gap = 2, all = label;
    for (const Column& column : columns_) all += gap + column.width;
    // Narrower gaps if that avoids a second block.
    if (all > width_ && all - static_cast<int>(columns_.size()) <= width_) gap = 1;
    const std::string space(static_cast<std::size_t>(gap), ' ');
    for (std::size_t first = 0; first < columns_.size();) {
      int total = label;
      std::size_t last = first;
      while (last < columns_.size() && (last == first || total + gap + columns_[last].width <= width_)) {
        total += gap + columns_[last++].width;
      }
      // A measure and its uniform value stay in the same block.
      if (last < columns_.size() && last > first + 1 && columns_[last].name == "uniform") --last;
      if (first > 0) out_ += "\n";
      const auto row = [&](const std::string& name, auto cell_of, bool quiet) {
        std::string text = pad_right(name, label);
        for (std::size_t c = first; c < last; ++c) text += space + pad_left(cell_of(columns_[c]), columns_[c].width);
        text.erase(text.find_last_not_of(' ') + 1);
        out_ += (quiet ? paint_.dim(text) : text) + "\n";
      };
      row("", [](const Column& c) { return c.name; }, true);
      row("n", [](const Column& c) { return c.n; }, true);
      if (!options_.full) row("uniform", [](const Column& c) { return c.uniform; }, true);
      for (std::size_t h = 0; h < chosen_.size(); ++h) {
        row(head_name(chosen_[h]), [h](const Column& c) { return c.cells[h]; }, false);
      }
      first = last;
    }
  }

  // Texts with many words outside the vocabulary, and how many words that are.
  void vocabulary() {
    Index unknown = 0, split = 0, texts = 0;
    for (const MeasuredText& text : s_.texts) {
      unknown += text.unknown_words;
      split += text.split_words;
      texts += text.warning.empty() ? 0 : 1;
    }
    if (unknown + split == 0) return;
    std::string words = fmt::format("{} word{} split into pieces, {} {} unknown: the model sees [UNK]", split,
                                    split == 1 ? " is" : "s are", unknown, unknown == 1 ? "is" : "are");
    if (texts > 0)
      words += fmt::format("; {} of {} text{} many words outside the vocabulary: the model may not know the language",
                           texts, s_.texts.size(), s_.texts.size() == 1 ? " has" : "s have");
    for (const std::string& part : wrap_words("Note: " + words + ".", std::min(width_, kWidestProse), 0))
      out_ += paint_.warn(part) + "\n";
  }

  void notes() {
    out_ += "\n";
    const std::string of = s_.by_sentence ? "texts, each the mean over its queries"
                                          : "queries: the tokens for which the measure is defined";
    const std::string text =
        std::string("mean") + (paint_.unicode ? "±" : "+-") + "standard deviation over n " + of +
        (s_.causal
             ? ". uniform: the value for uniform weights on the token itself and all before it. entropy: 0 if all "
               "weight is on one token, 1 if it is uniform. self, previous: the share of the weight on the token "
               "itself "
               "and on the one before."
             : ". uniform: the value for uniform weights on all tokens. entropy: 0 if all weight is on one token, 1 if "
               "it is uniform. special, self, previous, next: the share of the weight on [CLS] and [SEP], on the token "
               "itself, on the one before and on the one after.") +
        " distance: weighted mean distance to the keys, in tokens. contribution" +
        std::string(options_.full ? "" : " (norm)") + ": weighted mean L2 norm of value · W_output.";
    for (const std::string& part : wrap_words(paint_.shown(text), std::min(width_, kWidestProse), 0))
      out_ += paint_.dim(part) + "\n";
  }

  const HeadSurvey& s_;
  const HeadFilter& filter_;
  const HeadsTextOptions& options_;
  std::vector<HeadMeasures> chosen_;
  Paint paint_;
  int width_;
  std::vector<Column> columns_;
  std::string out_;
};

}  // namespace

std::string render_heads_text(const HeadSurvey& survey, const HeadFilter& filter, const HeadsTextOptions& options) {
  return HeadsRenderer(survey, filter, options).render();
}

std::string render_heads_json(const HeadSurvey& survey, const HeadFilter& filter, std::string_view command) {
  JsonWriter json(json_style(ElementType::float64));
  json.begin_object();
  write_source(json, command, survey.model_folder, survey.model_sha256);
  json.string("over", survey.by_sentence ? "sentences" : "queries");
  json.objects("texts", survey.texts, [&](const MeasuredText& text) {
    if (text.line > 0) {
      json.whole("line", text.line);
    }
    json.string("text", text.text);
    json.indices("ids", text.ids);
    json.whole("num_truncated_tokens", text.num_truncated_tokens);
    json.whole("unknown_words", text.unknown_words);
    json.whole("split_words", text.split_words);
    if (!text.warning.empty()) json.string("warning", text.warning);
  });
  json.objects("heads", chosen_heads(survey, filter), [&](const HeadMeasures& head) {
    json.whole("layer", head.layer);
    json.whole("head", head.head);
    for (const HeadMeasure measure : kHeadMeasures) {
      const HeadStatistic& s = head.of(measure);
      json.name(head_measure_name(measure));
      json.begin_object();
      json.number("mean", s.mean);
      json.number("deviation", s.deviation);
      json.whole("n", s.n);
      json.number("uniform", s.uniform);
      json.end_object();
    }
  });
  json.end_object();
  return json.take();
}

}  // namespace regard::inline v0
