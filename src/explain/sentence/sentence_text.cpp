// SPDX-License-Identifier: Apache-2.0
//
// A sentence's analysis as one screen:
//
//     the sentence, [word] marked                     the model
//     the finding, how its head was chosen, the effect of hiding each word
//     the row as a table: q·k, ÷√D, weight, bar, contribution (or before and after, where words are hidden)
//     one q·k as products, one weight as a share, the head's output, the rest of the layer
//     other informative heads (or all); the meaning of the marks, and what a weight does not show
//
// Read next: sentence_findings.cpp, sentence_table.h, sentence_text_full.cpp.
#include "sentence_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sentence_table.h"

namespace regard::inline v0 {
namespace {

constexpr Index kAllRows = 14;  // up to this many words, every row is shown
constexpr Index kTopRows = 12;
constexpr int kItemLabel = 7;
constexpr std::size_t kOtherHeads = 2;

// The end of a text, or its beginning; with an ellipsis where it is truncated.
std::string last_columns(std::string_view text, int width, bool unicode) {
  if (display_width(text) <= width) return std::string(text);
  while (!text.empty() && display_width(text) > width - 1) text.remove_prefix(character_bytes(text));
  return std::string(unicode ? "…" : "~") + std::string(text);
}

class Screen {
 public:
  Screen(const SentenceAnalysis& analyzed, const SentenceTextOptions& asked, const std::stop_token& stop)
      : t_(analyzed, asked, stop), s_(t_.analysis), o_(t_.options) {}

  std::string make() {
    head();
    blank();
    findings();
    blank();
    table();
    expanded();
    if (o_.all_heads) {
      blank();
      all_heads();
    } else if (o_.label.empty()) {
      other_heads();
    }
    notes();
    if (s_.details) {
      for (const std::string& l : sentence_detail_lines(t_, *s_.details)) line(l);
    }
    return std::move(text_);
  }

 private:
  void line(const std::string& l) {
    throw_if_stopped(t_.stop, "the explanation");
    text_ += l + "\n";
  }
  void blank() { text_ += "\n"; }
  void lines(const std::vector<std::string>& all) {
    for (const std::string& l : all) line(l);
  }
  void paragraph(const std::string& words) { lines(wrap_words(t_.own(words), t_.width, 0)); }

  const AttentionPair& chosen() const { return s_.chosen; }
  bool hides() const { return s_.before.has_value(); }
  bool several_pieces() const { return s_.row.queries.size() > 1; }
  std::string head_name(const AttentionPair& one) const { return fmt::format("L{}H{}", one.layer, one.head); }
  std::string head_name() const { return fmt::format("layer {}, head {}", chosen().layer, chosen().head); }

  // The sentence in one line, the word in brackets, truncated on both sides where it is long.
  void head() {
    const std::vector<Index>& pieces = element_at(s_.sentence.words, chosen().word).tokens;
    const Index begin = element_at(s_.sentence.tokens.byte_ranges, pieces.front())[0];
    const Index end = element_at(s_.sentence.tokens.byte_ranges, pieces.back())[1];
    const std::string_view whole = s_.sentence.text;
    std::string before, word = t_.own(element_at(s_.sentence.words, chosen().word).text), after;
    if (element_at(s_.sentence.words, chosen().word).special) {
      (pieces.front() == 0 ? after : before) = t_.own(whole);
    } else {
      before = t_.own(whole.substr(0, static_cast<std::size_t>(begin)));
      after = t_.own(whole.substr(static_cast<std::size_t>(end)));
    }
    const bool marked = word.starts_with('[') && word.ends_with(']');
    if (!marked) word = fmt::format("[{}]", word);
    const std::string label = o_.label.empty() ? "" : t_.own(o_.label) + "  ";
    const std::string extents =
        fmt::format("{} · {} layers × {} heads", s_.model, s_.extents.num_layers, s_.extents.num_heads);
    std::string model = t_.own(fmt::format("{} × {}", extents, s_.extents.head_size));
    const int available_width = t_.width - display_width(label) - display_width(word);
    const int sides = display_width(before) + display_width(after);
    if (sides > available_width) {
      const int left = std::max(available_width / 2, available_width - display_width(after));
      before = last_columns(before, std::max(1, std::min(left, display_width(before))), t_.paint.unicode);
      after = truncate_to_width(after, std::max(1, available_width - display_width(before)), t_.paint.unicode);
    }
    const int used = t_.width - available_width + display_width(before) + display_width(after);
    const int available = t_.width - used - 2;
    if (display_width(model) > available && display_width(t_.own(extents)) <= available) model = t_.own(extents);
    const int gap = t_.width - used - display_width(model);
    const std::string sentence = label + before + t_.paint.bold(word) + after;
    if (gap >= 2) {
      line(sentence + std::string(static_cast<std::size_t>(gap), ' ') + t_.paint.dim(model));
    } else {
      line(sentence);
      line(t_.paint.dim(truncate_to_width(model, t_.width, t_.paint.unicode)));
    }
    if (s_.sentence.num_truncated_tokens > 0) {
      paragraph(fmt::format("The text is truncated: {} tokens {} were left out, because the model has {} positions.",
                            s_.sentence.num_truncated_tokens, s_.extents.causal ? "at the end" : "before the last one",
                            s_.extents.max_positions));
    }
  }

  void findings() {
    const SentenceFindings found = findings_in(t_);
    if (!found.warning.empty()) warning(found.warning);
    paragraph(found.finding + " " + found.selection);
    if (!found.evidence.empty()) paragraph(found.evidence);
    association_ = found.association;
  }
  void warning(const std::string& words) {
    for (const std::string& l : wrap_words(t_.own("Note: " + words), t_.width, 0)) line(t_.paint.warn(l));
  }

  // ---- the table

  std::vector<Index> shown_words() const {
    std::vector<Index> words;
    for (const RowKey& key : s_.row.keys) {
      if (!(o_.no_special && key.special) && !key.later) words.push_back(key.word);
    }
    // Every table has the query word and the expanded key.
    const auto wanted = [&](Index w) { return w == chosen().word || w == s_.attended || w == chosen().target; };
    const auto rank = [&](Index w) {
      const RowKey& key = element_at(s_.row.keys, w);
      const RowKey& old = hides() ? element_at(s_.before->keys, w) : key;
      return o_.order == RowOrder::contribution ? std::max(key.contribution, old.contribution)
                                                : std::max(key.weight, old.weight);
    };
    const auto higher = [&](Index a, Index b) { return rank(a) != rank(b) ? rank(a) > rank(b) : a < b; };
    const Index count = static_cast<Index>(words.size());
    const Index most = o_.top.value_or(count > kAllRows ? kTopRows : count);
    if (count > most) {
      std::sort(words.begin(), words.end(),
                [&](Index a, Index b) { return wanted(a) != wanted(b) ? wanted(a) : higher(a, b); });
      words.resize(static_cast<std::size_t>(most));
      std::sort(words.begin(), words.end());
    }
    if (o_.order != RowOrder::text) std::sort(words.begin(), words.end(), higher);
    return words;
  }

  // A row of the table: cells by column, in the order in which the columns are made.
  struct Row {
    std::string label;
    std::vector<std::string> cells;
    double bar = 0.0;
    std::string instead;  // printed instead of a bar
    bool strong = false;
  };

  std::string label_of(Index w) const {
    const RowKey& key = element_at(s_.row.keys, w);
    const int widest = std::clamp(t_.width / 4, 8, 20);
    const std::string mark = key.special ? "*" : t_.mark(w);
    return t_.name(w, widest) + (mark.empty() ? "" : " " + mark);
  }

  void table() {
    const std::vector<Index> words = shown_words();
    const Index layer = chosen().layer;
    const bool both = hides() && layer > 0;  // before layer 0 no vector has changed
    const bool by_piece = several_pieces();
    std::vector<BarColumn> columns;
    const auto column = [&](const std::string& header, int drop = 0) {
      columns.push_back({.header = t_.own(header), .drop = drop});
    };
    const std::string root = fmt::format("÷√{}", s_.extents.head_size);
    if (by_piece) {
      for (const Index q : s_.row.queries) column(t_.piece(q), 2);
    } else {
      column("q·k", 2);
      if (both) column("now", 2);
      column(root, 2);
      if (both) column("now", 2);
    }
    column("weight");
    if (hides()) column("now");
    columns.push_back({.bars = true, .drop = both ? 1 : 0});
    column(hides() ? "contrib." : "contribution");
    if (hides()) column("now");

    std::vector<Row> rows;
    for (const Index w : words) {
      rows.push_back(word_row(w, by_piece, both));
      if (!by_piece && !hides()) piece_rows(w, rows);
    }
    rest_rows(words, by_piece, both, rows);
    total_row(words, by_piece, both, rows);

    BarTable made{.corner = "key"};
    for (const Row& row : rows) {
      made.labels.push_back("  " + row.label);
      made.strong.push_back(row.strong);
      std::size_t next = 0;
      for (BarColumn& c : columns) {
        if (c.bars) {
          c.cells.push_back(row.instead);
          c.lengths.push_back(row.bar);
        } else {
          c.cells.push_back(row.cells[next++]);
        }
      }
    }
    made.corner = "  " + made.corner;
    made.columns = std::move(columns);
    int dropped = 0;
    lines(bar_table_lines(made, t_.width, t_.paint, dropped));
    for (const std::string& words_of_sum : sum_notes_) note(words_of_sum);
    if (dropped > 0) {
      note(fmt::format("{} column{} omitted: a width of {} is too narrow", dropped, dropped == 1 ? "" : "s", t_.width));
    }
  }

  Row word_row(Index w, bool by_piece, bool both) const {
    const RowKey& key = element_at(s_.row.keys, w);
    const RowKey* old = hides() ? &element_at(s_.before->keys, w) : nullptr;
    Row row{.label = label_of(w), .cells = {}, .bar = key.weight, .instead = {}, .strong = w == s_.attended};
    const std::vector<Index>& tokens = element_at(s_.sentence.words, w).tokens;
    const auto shown = [&](double x) { return key.hidden ? std::string("hidden") : t_.number(x); };
    const bool one = tokens.size() == 1;
    if (by_piece) {
      for (Index q = 0; q < static_cast<Index>(s_.row.queries.size()); ++q) {
        double sum = 0;
        for (const Index token : tokens) sum += s_.row.weights(q, token);
        row.cells.push_back(shown(sum));
      }
    } else if (both) {
      row.cells.push_back(one ? t_.number(s_.before->dots(0, tokens[0])) : "");
      row.cells.push_back(one ? shown(s_.row.dots(0, tokens[0])) : "");
      row.cells.push_back(one ? t_.number(s_.before->scores(0, tokens[0])) : "");
      row.cells.push_back(one ? shown(s_.row.scores(0, tokens[0])) : "");
    } else {
      const SentenceRow& from = hides() ? *s_.before : s_.row;
      row.cells.push_back(one ? t_.number(from.dots(0, tokens[0])) : "");
      row.cells.push_back(one ? t_.number(from.scores(0, tokens[0])) : "");
    }
    if (old) row.cells.push_back(t_.number(old->weight));
    row.cells.push_back(shown(key.weight));
    if (old) row.cells.push_back(t_.number(old->contribution));
    row.cells.push_back(shown(key.contribution));
    return row;
  }

  // The pieces of a key, with their own q·k and score; their weights, in brackets, sum to the word's.
  void piece_rows(Index w, std::vector<Row>& rows) {
    const std::vector<Index>& tokens = element_at(s_.sentence.words, w).tokens;
    if (tokens.size() == 1) return;
    has_pieces_ = true;
    for (const Index token : tokens) {
      rows.push_back({.label = "  " + t_.piece(token),
                      .cells = {t_.number(s_.row.dots(0, token)), t_.number(s_.row.scores(0, token)), "", ""},
                      .bar = 0,
                      .instead = fmt::format("({})", t_.number(s_.row.weights(0, token))),
                      .strong = false});
    }
  }

  // The keys that the table leaves out, summed.
  void rest_rows(const std::vector<Index>& words, bool by_piece, bool both, std::vector<Row>& rows) const {
    double now_special = 0, was_special = 0, now_rest = 0, was_rest = 0;
    Index special = 0, rest = 0;
    for (const RowKey& key : s_.row.keys) {
      if (key.later || std::find(words.begin(), words.end(), key.word) != words.end()) continue;
      const bool in_special = o_.no_special && key.special;
      (in_special ? special : rest) += 1;
      (in_special ? now_special : now_rest) += key.weight;
      if (hides()) (in_special ? was_special : was_rest) += element_at(s_.before->keys, key.word).weight;
    }
    const auto add = [&](const std::string& label, double now, double was) {
      Row row = empty_row(label, by_piece, both);
      set_weights(row, now, was);
      row.bar = now;
      rows.push_back(row);
    };
    if (rest > 0) add(fmt::format("{} other{}", rest, rest == 1 ? "" : "s"), now_rest, was_rest);
    if (special > 0) add(fmt::format("{} special *", special), now_special, was_special);
  }
  Row empty_row(const std::string& label, bool by_piece, bool both) const {
    Row row{.label = label, .cells = {}, .bar = 0, .instead = {}, .strong = false};
    const std::size_t scores = by_piece ? s_.row.queries.size() : both ? 4 : 2;
    row.cells.assign(scores + (hides() ? 4 : 2), "");
    return row;
  }
  void set_weights(Row& row, double now, double was) const {
    const std::size_t contributions = hides() ? 2 : 1;
    row.cells[row.cells.size() - contributions - 1] = t_.number(now);
    if (hides()) row.cells[row.cells.size() - contributions - 2] = t_.number(was);
  }

  void total_row(const std::vector<Index>& words, bool by_piece, bool both, std::vector<Row>& rows) {
    std::vector<double> now, was;
    double now_rest = 0, was_rest = 0, total = 0;
    for (const RowKey& key : s_.row.keys) {
      total += key.weight;
      const double old = hides() ? element_at(s_.before->keys, key.word).weight : 0.0;
      if (std::find(words.begin(), words.end(), key.word) != words.end()) {
        now.push_back(key.weight);
        was.push_back(old);
      } else {
        now_rest += key.weight;
        was_rest += old;
      }
    }
    now.push_back(now_rest);
    was.push_back(was_rest);
    Row row = empty_row("", by_piece, both);
    set_weights(row, total, 1.0);
    const std::string rounding = rounding_note(t_.style, now, total);
    if (!hides()) {
      row.instead = t_.own(rounding.empty() ? "the weights of a row sum to 1" : "a row sums to 1" + rounding);
    } else {
      const std::string rounding_before = rounding_note(t_.style, was, 1.0);
      if (!rounding_before.empty()) sum_notes_.push_back("the weights before sum to 1" + rounding_before);
      if (!rounding.empty()) sum_notes_.push_back("the weights now sum to 1" + rounding);
    }
    for (std::size_t c = row.cells.size() - (hides() ? 2 : 1); c < row.cells.size(); ++c) row.cells[c].clear();
    rows.push_back(row);
  }

  // ---- one q·k, one weight, the head's output, the rest of the layer

  void expanded() {
    const int label_width = std::max(kItemLabel, display_width(t_.number(s_.dot.dot)) + 2);
    const auto item = [&](const std::string& label, const std::string& words) {
      lines(t_.item(label, label_width, words));
    };
    if (several_pieces() || element_at(s_.sentence.words, s_.attended).tokens.size() > 1) {
      note(fmt::format("of their pieces, “{}” attends most to “{}”:", t_.piece(s_.dot.query), t_.piece(s_.dot.key)));
    }
    item(t_.number(s_.dot.dot), dot_text());
    item(t_.number(s_.term.weight), softmax_text());
    item(fmt::format("head {}", chosen().head), output_text());
    item("then", fmt::format("+ {} heads = {}; + residual ({}); {}", s_.extents.num_heads - 1,
                             norm_text(s_.row.heads_contribution, &SentenceRow::heads_contribution),
                             norm_text(s_.row.input_norm, &SentenceRow::input_norm, ""), rest_of_layer()));
  }

  std::string rest_of_layer() const {
    if (!s_.extents.causal) return "layer norm, feed-forward";
    return s_.sentence.trace.layers.front().feed_forward.size() > 0 ? "+ feed-forward of the norm of this sum"
                                                                    : "no feed-forward";
  }

  // "norm 2.32"; with hidden words, also the norm before hiding.
  std::string norm_text(double now, double SentenceRow::* which, const char* name = "norm ") const {
    std::string text = name + t_.number(now);
    if (!hides() || t_.number(now) == t_.number(s_.before.value().*which)) return text;
    const std::string was = fmt::format("was {}", t_.number(s_.before.value().*which));
    text += *name == '\0' ? ", " + was : " (" + was + ")";
    return text;
  }

  std::string dot_text() const {
    constexpr std::size_t kNamed = 3;
    const std::vector<DotTerm>& terms = s_.dot.terms;
    const std::size_t named = std::min(kNamed, terms.size());
    std::string words = "= ";
    std::vector<double> printed;
    for (std::size_t n = 0; n < named; ++n) {
      words += n == 0 ? t_.number(terms[n].product) : signed_term(t_, terms[n].product);
      words += fmt::format(" (d{})", terms[n].dimension);
      printed.push_back(terms[n].product);
    }
    if (named < terms.size()) {
      double others = 0;
      for (std::size_t n = named; n < terms.size(); ++n) others += terms[n].product;
      printed.push_back(others);
      words += fmt::format("{} ({} other products)", signed_term(t_, others), terms.size() - named);
    }
    return words + rounding_note(t_.style, printed, s_.dot.dot);
  }

  // x with that many significant digits, and all digits before the point.
  static std::string significant(double x, int digits) {
    const int decimals = x > 0 ? std::clamp(digits - 1 - static_cast<int>(std::floor(std::log10(x))), 0, 12) : digits;
    return styled_number(x, {.digits = decimals});
  }
  static double read_back(const std::string& text) {
    constexpr std::string_view kMinus = "−";
    if (text.starts_with(kMinus)) return -read_back(text.substr(kMinus.size()));
    return std::strtod(text.c_str(), nullptr);
  }

  // Adds digits until e^ of the printed exponent and the printed quotient both give the printed results.
  std::string softmax_text() const {
    const SoftmaxTerm& term = s_.term;
    if (term.sum == 0) return "every key is hidden";
    std::string top, sum, exponent;
    for (int digits = 3; digits <= 8; ++digits) {
      top = significant(term.exponential, digits);
      sum = significant(term.sum, digits);
      if (t_.number(read_back(top) / read_back(sum)) == t_.number(term.weight)) break;
    }
    const auto exponent_of = [&](double score, int decimals) {
      return styled_number(score - term.shift, {.digits = decimals});
    };
    for (int decimals = t_.style.digits; decimals <= 8; ++decimals) {
      exponent = exponent_of(term.score, decimals);
      const std::size_t point = top.find('.');
      const int decimals_of_top = point == std::string::npos ? 0 : static_cast<int>(top.size() - point - 1);
      if (styled_number(std::exp(read_back(exponent)), {.digits = decimals_of_top}) == top) break;
    }
    const Index piece = static_cast<Index>(std::find(s_.row.queries.begin(), s_.row.queries.end(), s_.dot.query) -
                                           s_.row.queries.begin());
    std::vector<double> seen;
    for (Index k = 0; k < s_.row.scores.shape()[1]; ++k) {
      if (std::isfinite(s_.row.scores(piece, k))) seen.push_back(s_.row.scores(piece, k));
    }
    std::string others;
    for (std::size_t n = 0; n < seen.size(); ++n) {
      if (seen.size() > 5 && n >= 2 && n + 2 < seen.size()) {
        if (n == 2) others += " + …";
        continue;
      }
      others += (n == 0 ? "" : " + ") + std::string("e^") + exponent_of(seen[n], t_.style.digits);
    }
    std::string words = fmt::format("= e^{} / ({}) = {} / {}", exponent, others, top, sum);
    if (term.shift != 0)
      words += fmt::format("; {}, the largest, is subtracted from each exponent", t_.number(term.shift));
    if (hides()) {
      const auto before = softmax_term(*s_.before, s_.dot.query, s_.dot.key);
      words += fmt::format("; before: {}, with sum {}", t_.number(before.weight), significant(before.sum, 3));
    }
    return words;
  }

  std::string output_text() const {
    constexpr std::size_t kNamed = 3;
    std::vector<const RowKey*> keys;
    for (const RowKey& key : s_.row.keys) {
      if (!key.hidden) keys.push_back(&key);
    }
    std::sort(keys.begin(), keys.end(), [](const RowKey* a, const RowKey* b) {
      return a->weight != b->weight ? a->weight > b->weight : a->word < b->word;
    });
    if (keys.empty())
      return "outputs a vector of " + norm_text(s_.row.head_contribution, &SentenceRow::head_contribution);
    std::string words = "outputs ";
    const std::size_t named = std::min(kNamed, keys.size());
    for (std::size_t n = 0; n < named; ++n) {
      words += fmt::format("{}{}·v({})", n == 0 ? "" : " + ", t_.number(keys[n]->weight), t_.word(keys[n]->word));
    }
    if (named < keys.size()) words += fmt::format(" + {} more", keys.size() - named);
    return words + ", " + norm_text(s_.row.head_contribution, &SentenceRow::head_contribution);
  }

  // ---- heads

  std::string baseline_text() const {
    const bool test_sentences = s_.ranked_heads.baseline == Baseline::test_sentences;
    return fmt::format("baseline: this head’s mean at the same distance in {}{}",
                       test_sentences      ? "30 sentences"
                       : s_.extents.causal ? "this text"
                                           : "this sentence",
                       s_.extents.causal ? ", at least uniform" : "");
  }

  void other_heads() {
    std::string words;
    std::size_t named = 0;
    for (const AttentionPair& one : s_.ranked_heads.heads) {
      if (one.layer == chosen().layer && one.head == chosen().head) continue;
      if (named == kOtherHeads) break;
      words += fmt::format("{}{} ", named == 0 ? "" : ", ", head_name(one));
      if (!s_.word_named && one.word != chosen().word) words += t_.word(one.word) + " ";
      words += fmt::format("→ {} {} ({}{})", t_.word(one.target), t_.percent(one.weight), named == 0 ? "baseline " : "",
                           t_.percent(one.baseline));
      ++named;
    }
    if (named == 0) return;
    note(fmt::format("{}: {}", s_.head_named ? "most informative heads" : "next heads", words));
  }

  void all_heads() {
    line(t_.paint.bold("  head   " + pad_right(t_.own("query → key"), 25) + "weight  baseline  salience"));
    for (const AttentionPair& one : s_.ranked_heads.heads) {
      const std::string pair =
          truncate_to_width(t_.own(t_.word(one.word) + " → " + t_.word(one.target)), 24, t_.paint.unicode);
      const bool mine = one.layer == chosen().layer && one.head == chosen().head;
      const std::string l = fmt::format("  {}{}{}{}{}", pad_right(head_name(one), 7), pad_right(pair, 24),
                                        pad_left(t_.number(one.weight), 7), pad_left(t_.number(one.baseline), 10),
                                        pad_left(t_.number(one.salience()), 10));
      line(mine ? t_.paint.bold(l) : l);
    }
    note(
        baseline_text() +
        fmt::format(" (at 16 {} or more, its largest mean at any distance); salience = weight − baseline", t_.noun(2)));
  }

  void note(const std::string& words) {
    for (const std::string& l : wrap_words(t_.own(words), t_.width - 2, 0)) line("  " + t_.paint.dim(l));
  }

  void notes() {
    const Index dimension = s_.dot.terms.empty() ? 0 : s_.dot.terms.front().dimension;
    std::string marks = fmt::format("{1}(d{0}) dimension {0}; contribution and norm: L2, after W_output", dimension,
                                    s_.extents.causal ? "" : "* special token; ");
    const auto any = [&](auto is) { return std::any_of(s_.sentence.words.begin(), s_.sentence.words.end(), is); };
    if (any([](const SentenceWord& word) { return word.unknown; }))
      marks += "; † not in the vocabulary: the model sees [UNK], as for any such word";
    if (any([](const SentenceWord& word) { return word.split(); }))
      marks += "; ‡ split into pieces" + std::string(has_pieces_ ? ", whose weights ( ) sum to the word’s" : "");
    note(marks);
    if (several_pieces()) {
      std::string pieces;
      for (const Index q : s_.row.queries) pieces += " " + t_.piece(q);
      note(
          fmt::format("{} is {} pieces,{}: each is a separate query. A word’s weight is summed over the key’s pieces "
                      "and averaged over the query’s; a word’s vector is the mean of its pieces’ vectors",
                      t_.quoted(chosen().word), s_.row.queries.size(), pieces));
    }
    if (hides() && chosen().layer == 0) note("q·k is unchanged: the input of layer 0 is the same");
    note(association_);
  }

  AnalysisText t_;
  const SentenceAnalysis& s_;
  const SentenceTextOptions& o_;
  std::string text_;
  std::vector<std::string> sum_notes_;
  std::string association_;
  bool has_pieces_ = false;
};

}  // namespace

AnalysisText::AnalysisText(const SentenceAnalysis& analyzed, const SentenceTextOptions& asked,
                           const std::stop_token& asked_stop)
    : analysis(analyzed),
      options(asked),
      stop(asked_stop),
      paint{.color = asked.color, .unicode = asked.unicode},
      style{.digits = asked.digits.value_or(2), .unicode = asked.unicode},
      width(std::clamp(asked.width, 40, 120)),
      names_(word_names(analyzed.sentence.words)) {}

std::string AnalysisText::percent(double share) const {
  std::string text = fmt::format("{:.{}f}", 100 * share, std::max(0, style.digits - 2));
  if (share > 0 && text.find_first_of("123456789") == std::string::npos) text = "<1";
  return text + " %";
}

std::string AnalysisText::name(Index index, int most) const {
  const std::string& text = element_at(analysis.sentence.words, index).text;
  const std::string number = element_at(names_, index).substr(text.size());
  return truncate_to_width(paint.shown(text), most - static_cast<int>(number.size()), paint.unicode) + number;
}
std::string AnalysisText::mark(Index index) const {
  return paint.shown(word_mark(element_at(analysis.sentence.words, index)));
}
std::string AnalysisText::word(Index index) const { return name(index) + mark(index); }
std::string AnalysisText::noun(Index count) const {
  return std::string(analysis.extents.causal ? "token" : "word") + (count == 1 ? "" : "s");
}
std::string AnalysisText::quoted(Index index) const {
  if (element_at(analysis.sentence.words, index).special) return name(index);
  return paint.quoted(name(index)) + mark(index);
}
std::string AnalysisText::piece(Index token) const {
  return truncate_to_width(paint.shown(element_at(analysis.sentence.tokens.tokens, token)), 16, paint.unicode);
}

std::string AnalysisText::token(Index token) const {
  for (std::size_t w = 0; w < analysis.sentence.words.size(); ++w) {
    const std::vector<Index>& tokens = analysis.sentence.words[w].tokens;
    if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) continue;
    return tokens.size() == 1 ? word(static_cast<Index>(w)) : piece(token) + mark(static_cast<Index>(w));
  }
  return piece(token);
}

std::vector<std::string> AnalysisText::item(const std::string& label, int label_width, const std::string& words) const {
  std::vector<std::string> lines = wrap_words(own(words), width - label_width - 2, 0);
  for (std::size_t n = 0; n < lines.size(); ++n) {
    lines[n] = pad_left(n == 0 ? label : "", label_width) + "  " + lines[n];
  }
  return lines;
}

std::string signed_term(const AnalysisText& text, double x) {
  return fmt::format(" {} {}", x < 0 ? text.own("−") : "+", text.number(std::fabs(x)));
}

std::string rounding_note(const NumberStyle& style, const std::vector<double>& terms, double total) {
  long long printed = 0;
  for (const double x : terms) printed += printed_units(x, style);
  if (printed == printed_units(total, style)) return "";
  return fmt::format("; rounded figures sum to {}",
                     styled_number(static_cast<double>(printed) / std::pow(10.0, style.digits), style));
}

std::string render_sentence_text(const SentenceAnalysis& analysis, const SentenceTextOptions& options,
                                 const std::stop_token& stop) {
  return Screen(analysis, options, stop).make();
}

}  // namespace regard::inline v0
