// SPDX-License-Identifier: Apache-2.0
//
// A comparison as text; see regard/explain/compare.h.
//
//     the verdict that the controls allow, then the figures  →  the sentences  →  the table of cosines  →  the effect
//     of hiding  →  which heads make the two least similar sentences differ
//
// Read next: table.h, terminal.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "explain/report/json_style.h"
#include "explain/report/table.h"
#include "explain/report/terminal.h"
#include "regard/explain/compare.h"
#include "regard/runtime.h"

namespace regard::inline v0 {
namespace {

constexpr int kDigits = 3;  // of cosines

const ComparedSentence& sentence_of(const Comparison& c, Index s) { return c.sentences[static_cast<std::size_t>(s)]; }

class CompareRenderer {
 public:
  CompareRenderer(const Comparison& c, const CompareTextOptions& options, const std::stop_token& stop)
      : c_(c),
        options_(options),
        stop_(stop),
        paint_{options.color, options.unicode},
        width_(std::max(options.width, 40)) {
    for (const ComparedSentence& sentence : c.sentences) names_.push_back(word_names(sentence.words));
  }

  std::string render() {
    const CompareNumbers& shown = c_.plain;
    if (options_.brief) {
      brief_verdict();
      line("Cosine (1 = same direction) of " + quoted(c_.word) + " in A with");
      other_sentences();
      table(shown, pairs_with_first(), true);
      if (c_.hidden) paragraph(test_line(), false);
      return std::move(out_);
    }
    const std::vector<std::string> found = findings();
    for (const std::string& text : found) paragraph(text, &text == &found.front());
    line("");
    for (const ComparedSentence& sentence : c_.sentences) {
      line(fitted("  " + sentence.name + "  " + marked(sentence)));
      if (sentence.num_truncated_tokens > 0)
        line(fmt::format("     truncated: {} tokens too many for the model", sentence.num_truncated_tokens));
    }
    legend();
    line("");
    paragraph("Cosine of the vectors of " + quoted(c_.word) + ": 1 is the same direction, 0 a right angle", false);
    table(shown, shown_pairs(), !options_.full);
    floor_note(shown);
    if (c_.hidden) {
      line("");
      paragraph("The same with " + hidden_words() + " hidden from every other word, in every layer", false);
      table(*c_.hidden, shown_pairs(), !options_.full);
    }
    heads(shown);
    return std::move(out_);
  }

  std::vector<std::string> findings() const {
    std::vector<std::string> found;
    const std::size_t far = extreme_pair(false), near = extreme_pair(true);
    const ComparedPair& apart = c_.plain.pairs[far];
    const ComparedPair& close = c_.plain.pairs[near];
    const auto end = [](const ComparedPair& pair) { return pair.cosine.back(); };
    found.push_back(control_verdict(apart));
    if (c_.hidden) found.push_back(test_verdict());
    std::string figures =
        "Cosine of " + quoted(c_.word) + " after " + last_stage() + ": " + both(apart) + " " + number(end(apart));
    if (near != far) figures += ", " + both(close) + " " + number(end(close));
    if (c_.plain.floor_pairs > 0)
      figures += fmt::format("; mean over {} pairs of different words (floor) {}", c_.plain.floor_pairs,
                             number(c_.plain.floor.back()));
    found.push_back(figures + ".");
    if (near != far) found.push_back(order_verdict(apart, close));
    return found;
  }

 private:
  // ---- lines and numbers

  void line(const std::string& text) {
    throw_if_stopped(stop_, "the explanation");
    out_ += text + "\n";
  }
  void paragraph(const std::string& text, bool bold) {
    for (const std::string& part : wrap_words(paint_.shown(text), std::min(width_, kWidestProse), 0))
      line(bold ? paint_.bold(part) : part);
  }
  std::string fitted(const std::string& text) const { return truncate_to_width(text, width_, paint_.unicode); }
  std::string shown(const std::string& text, int width = 24) const {
    return truncate_to_width(paint_.shown(text), width, paint_.unicode);
  }
  // Quoted, with the mark of an unknown or split word.
  std::string quoted(const std::string& word) const { return paint_.quoted(shown(word)) + mark_of(word); }
  std::string mark_of(const std::string& text) const {
    for (const ComparedSentence& sentence : c_.sentences) {
      for (const SentenceWord& word : sentence.words) {
        if (word.text == text) return paint_.shown(word_mark(word));
      }
    }
    return "";
  }
  std::string number(double x, int digits = kDigits) const {
    return styled_number(x, NumberStyle{.digits = digits, .unicode = paint_.unicode});
  }
  // b − a, computed from the printed figures.
  double printed_change(double a, double b) const {
    const NumberStyle style{.digits = kDigits, .unicode = paint_.unicode};
    return static_cast<double>(printed_units(b, style) - printed_units(a, style)) / std::pow(10, kDigits);
  }
  std::string signed_number(double x) const { return (x > 0 ? "+" : "") + number(x); }
  // The sentence with the word in brackets; unknown and split words carry their marks.
  std::string marked(const ComparedSentence& sentence) const {
    std::string text;
    std::size_t done = 0;
    const auto copy_to = [&](std::size_t end) {
      text += paint_.shown(sentence.text.substr(done, end - done));
      done = end;
    };
    for (std::size_t w = 0; w < sentence.words.size(); ++w) {
      const SentenceWord& word = sentence.words[w];
      const bool compared = static_cast<Index>(w) == sentence.word;
      const auto [begin, end] = bytes_of(sentence, word);
      if (begin == end || begin < done || (!compared && word_mark(word).empty())) continue;
      copy_to(begin);
      if (compared) text += "[";
      copy_to(end);
      text += paint_.shown(word_mark(word)) + (compared ? "]" : "");
    }
    copy_to(sentence.text.size());
    return text;
  }
  // The bytes of a word in the text; none for a special token.
  static std::pair<std::size_t, std::size_t> bytes_of(const ComparedSentence& sentence, const SentenceWord& word) {
    const std::vector<Index>& tokens = word.tokens;
    const auto& first = sentence.tokens.byte_ranges[static_cast<std::size_t>(tokens.front())];
    const auto& last = sentence.tokens.byte_ranges[static_cast<std::size_t>(tokens.back())];
    return {static_cast<std::size_t>(first[0]), static_cast<std::size_t>(last[1])};
  }
  const std::string& name(Index sentence) const { return sentence_of(c_, sentence).name; }
  std::string both(const ComparedPair& pair) const { return name(pair.first) + " and " + name(pair.second); }
  std::string hidden_words() const {
    std::vector<std::string> words;
    for (const std::string& word : c_.hide) words.push_back(quoted(word));
    return and_list(words);
  }
  std::string last_stage() const {
    return c_.stages.size() > 2 ? "layer " + c_.stages.back().substr(1) : "the embedding";
  }

  // The meaning of the marks, and a warning for sentences with many words outside the vocabulary.
  void legend() {
    bool unknown = false, split = false;
    for (const ComparedSentence& sentence : c_.sentences) {
      for (const SentenceWord& word : sentence.words) {
        unknown = unknown || word.unknown;
        split = split || word.split();
      }
      if (const std::string warning = vocabulary_warning(sentence.words); !warning.empty())
        for (const std::string& part :
             wrap_words("Note: " + sentence.name + ": " + warning, std::min(width_, kWidestProse) - 2, 0))
          line(paint_.warn("  " + part));
    }
    if (unknown) note("† not in the vocabulary: the model sees [UNK], as for any such word");
    if (split) note("‡ split into pieces: its vector is their mean");
  }
  void note(const std::string& text) {
    for (const std::string& part : wrap_words(paint_.shown(text), std::min(width_, kWidestProse) - 2, 0))
      line(paint_.dim("  " + part));
  }

  // ---- which pairs

  std::vector<std::size_t> pairs_with_first() const {
    std::vector<std::size_t> pairs;
    for (std::size_t p = 0; p < c_.plain.pairs.size(); ++p) {
      if (c_.plain.pairs[p].first == 0) pairs.push_back(p);
    }
    return pairs;
  }
  std::vector<std::size_t> shown_pairs() const {
    std::vector<std::size_t> pairs = pairs_with_first();
    if (options_.full) {
      pairs.clear();
      for (std::size_t p = 0; p < c_.plain.pairs.size(); ++p) pairs.push_back(p);
    }
    return pairs;
  }
  // Of the pairs with A, the one whose vectors end farthest apart or, with `nearest`, closest together.
  std::size_t extreme_pair(bool nearest) const {
    std::size_t chosen = 0;
    for (const std::size_t p : pairs_with_first()) {
      const double x = c_.plain.pairs[p].cosine.back(), y = c_.plain.pairs[chosen].cosine.back();
      if (nearest ? x > y : x < y) chosen = p;
    }
    return chosen;
  }
  // The control that occurs in both pairs, or nothing.
  static const ControlWord* control_named(const ComparedPair& pair, const std::string& text) {
    for (const ControlWord& control : pair.controls) {
      if (control.text == text) return &control;
    }
    return nullptr;
  }
  // The first word that all pairs with A share, else the pair's own first.
  const ControlWord* chosen_control(const ComparedPair& pair) const {
    for (const ControlWord& candidate : c_.plain.pairs[0].controls) {
      const std::vector<std::size_t> pairs = pairs_with_first();
      if (std::all_of(pairs.begin(), pairs.end(),
                      [&](std::size_t p) { return control_named(c_.plain.pairs[p], candidate.text) != nullptr; })) {
        if (const ControlWord* control = control_named(pair, candidate.text)) return control;
      }
    }
    return pair.controls.empty() ? nullptr : &pair.controls.front();
  }

  // ---- the finding

  void brief_verdict() {
    const ComparedPair& pair = c_.plain.pairs[extreme_pair(false)];
    const ControlWord* control = chosen_control(pair);
    if (control == nullptr) return;
    paragraph(pair.cosine.back() < control->cosine.back()
                  ? quoted(c_.word) + " differs more between " + both(pair) + " than the control " +
                        quoted(control->text) + " does."
                  : quoted(control->text) + " differs at least as much: this table alone shows nothing about " +
                        quoted(c_.word) + ".",
              true);
  }

  // The layers, or stages, after which the word differs more than every control.
  std::string stages_below(const ComparedPair& pair) const {
    std::vector<std::string> below;
    for (std::size_t stage = 1; stage < c_.stages.size(); ++stage) {
      if (std::all_of(pair.controls.begin(), pair.controls.end(),
                      [&](const ControlWord& control) { return pair.cosine[stage] < control.cosine[stage]; })) {
        below.push_back(c_.stages[stage]);
      }
    }
    return and_list(below);
  }

  // Whether the word differs more than the words that both sentences share.
  std::string control_verdict(const ComparedPair& pair) const {
    const std::string subject = "Between " + both(pair) + ", " + quoted(c_.word);
    if (pair.controls.empty()) {
      return "No other word occurs in both " + both(pair) + ": there is no control that shows whether " +
             quoted(c_.word) + " differs more than any word would. Choose sentences that share another word.";
    }
    const auto by_end = [](const ControlWord& a, const ControlWord& b) { return a.cosine.back() < b.cosine.back(); };
    const auto [low, high] = std::minmax_element(pair.controls.begin(), pair.controls.end(), by_end);
    const double word = pair.cosine.back();
    const auto figure = [&](const ControlWord& control) {
      return quoted(control.text) + " (" + number(control.cosine.back()) + ")";
    };
    const std::string own = " (cosine " + number(word) + ")";
    const std::string all = pair.controls.size() == 1 ? "the control " + figure(*low)
                                                      : fmt::format("any of the {} words that both share, {} to {}",
                                                                    pair.controls.size(), figure(*low), figure(*high));
    if (word < low->cosine.back()) return subject + own + " differs more than " + all + ".";
    const std::string nothing = ": on its own, this shows nothing about " + quoted(c_.word) + ".";
    std::string text = word >= high->cosine.back()
                           ? subject + own + " does not differ more than " + all + nothing
                           : subject + own + " differs less than some words that both share, such as " + figure(*low) +
                                 ", and more than others, such as " + figure(*high) + nothing;
    const std::string below = stages_below(pair);
    if (!below.empty()) text += " At " + below + ", it does differ more.";
    return text;
  }

  // Whether the nearer pair is nearer for this word alone.
  std::string order_verdict(const ComparedPair& apart, const ComparedPair& close) const {
    const ControlWord* a = chosen_control(apart);
    const ControlWord* b = a == nullptr ? nullptr : control_named(close, a->text);
    const double gap = close.cosine.back() - apart.cosine.back();
    const std::string nearer = both(close) + " are more similar than " + both(apart) + " by " +
                               number(printed_change(apart.cosine.back(), close.cosine.back()));
    if (b == nullptr) return nearer + "; no other word occurs in all of them, so this may hold for every word.";
    const double control_gap = b->cosine.back() - a->cosine.back();
    const double printed = printed_change(a->cosine.back(), b->cosine.back());
    const std::string control = quoted(a->text);
    if (control_gap >= gap) {
      return nearer + ", and by " + number(printed) + " for " + control +
             ": the order may come from the sentences rather than from the word.";
    }
    if (control_gap > 0) {
      return nearer + ", and by " + number(printed) + " for " + control +
             ": this much of the difference may come from the sentences.";
    }
    return nearer + "; for " + control + ", they are not (" + signed_number(printed) + ").";
  }

  // ---- the table

  struct Row {
    std::string label;
    std::vector<double> numbers;
    std::string note;
    bool quiet = false;
  };
  void add_pair(std::vector<Row>& rows, const ComparedPair& pair, bool one_control) const {
    rows.push_back({both(pair), pair.cosine, "", false});
    // A brief table shows only the control of the verdict.
    if (options_.brief && &pair != &c_.plain.pairs[extreme_pair(false)]) return;
    const ControlWord* chosen = chosen_control(pair);
    for (const ControlWord& control : pair.controls) {
      if (one_control && &control != chosen) continue;
      rows.push_back(
          {fmt::format("  {} {},{}", paint_.quoted(shown(control.text, 10)), name(pair.first), name(pair.second)),
           control.cosine, "control", true});
    }
  }

  void table(const CompareNumbers& numbers, const std::vector<std::size_t>& pairs, bool one_control) {
    std::vector<Row> rows;
    for (const std::size_t p : pairs) add_pair(rows, numbers.pairs[p], one_control);
    if (numbers.floor_pairs > 0) rows.push_back({"other words", numbers.floor, "floor", true});
    int label_width = 0, note_width = 0;
    for (const Row& row : rows) {
      label_width = std::max(label_width, display_width(row.label));
      note_width = std::max(note_width, display_width(row.note));
    }
    std::vector<int> widths;
    for (std::size_t stage = 0; stage < c_.stages.size(); ++stage) {
      int widest = display_width(c_.stages[stage]);
      for (const Row& row : rows) widest = std::max(widest, display_width(number(row.numbers[stage])));
      widths.push_back(widest + 2);
    }
    int all = 2 + label_width;
    for (const int w : widths) all += w;
    // Narrower gaps if that avoids a second block.
    if (all > width_ && all - static_cast<int>(widths.size()) <= width_) {
      for (int& w : widths) --w;
    }
    for (std::size_t first = 0; first < c_.stages.size();) {
      int total = 2 + label_width;
      std::size_t last = first;
      while (last < c_.stages.size() && (last == first || total + widths[last] <= width_)) total += widths[last++];
      const bool notes = last == c_.stages.size() && total + 3 + note_width <= width_;
      if (first > 0) line("");
      std::string head(static_cast<std::size_t>(2 + label_width), ' ');
      for (std::size_t stage = first; stage < last; ++stage) head += pad_left(c_.stages[stage], widths[stage]);
      line(paint_.dim(head));
      for (const Row& row : rows) {
        std::string text = "  " + pad_right(row.label, label_width);
        for (std::size_t stage = first; stage < last; ++stage)
          text += pad_left(number(row.numbers[stage]), widths[stage]);
        if (notes && !row.note.empty()) text += "   " + row.note;
        line(row.quiet ? paint_.dim(text) : text);
      }
      first = last;
    }
  }

  void floor_note(const CompareNumbers& numbers) {
    std::string text =
        "word: the row of the embedding table; +position: position added, normalized; L0: after layer 0. control: a "
        "word that occurs in both sentences, mean over its occurrences";
    if (numbers.floor_pairs > 0) {
      text += fmt::format(". floor: mean over all {} pairs of different words of these sentences", numbers.floor_pairs);
    }
    for (const std::string& part : wrap_words(text + ".", std::min(width_, kWidestProse) - 2, 0))
      line(paint_.dim("  " + part));
  }

  void other_sentences() {
    std::string text;
    for (std::size_t s = 1; s < c_.sentences.size(); ++s) {
      const int most =
          std::max(20, (width_ - 2) / static_cast<int>(std::min<std::size_t>(2, c_.sentences.size() - 1)) - 6);
      text += "  " + pad_right(name(static_cast<Index>(s)) + "  " + shown(c_.sentences[s].text, most), most + 4);
      if (s % 2 == 0 || s + 1 == c_.sentences.size()) {
        text.erase(text.find_last_not_of(' ') + 1);
        line(text);
        text.clear();
      }
    }
  }

  // ---- what hiding changed

  // The pair with A that hiding changed most, and the effect of the other words on it.
  struct Test {
    std::size_t pair = 0;
    double before = 0, after = 0;
    double low = 0, high = 0;  // of the other words
    const OtherHidden* most = nullptr;
    double change() const { return after - before; }
  };
  Test test() const {
    Test test;
    const auto set = [&](std::size_t p) {
      test.pair = p;
      test.before = c_.plain.pairs[p].cosine.back();
      test.after = c_.hidden->pairs[p].cosine.back();
    };
    set(0);
    for (const std::size_t p : pairs_with_first()) {
      if (std::abs(c_.hidden->pairs[p].cosine.back() - c_.plain.pairs[p].cosine.back()) > std::abs(test.change()))
        set(p);
    }
    for (const OtherHidden& other : c_.others) {
      const double x = other.cosine[test.pair];
      if (test.most == nullptr) test.low = test.high = x;
      if (test.most == nullptr || std::abs(x - test.before) > std::abs(test.most->cosine[test.pair] - test.before)) {
        test.most = &other;
      }
      test.low = std::min(test.low, x);
      test.high = std::max(test.high, x);
    }
    return test;
  }

  std::string test_line() const {
    const Test t = test();
    const ComparedPair& pair = c_.plain.pairs[t.pair];
    std::string text = "Test: hiding " + hidden_words() + " takes " + name(pair.first) + "," + name(pair.second) +
                       " from " + number(t.before) + " to " + number(t.after);
    if (t.most != nullptr) text += " (others: " + number(t.low) + " to " + number(t.high) + ")";
    return text + ".";
  }

  std::string test_verdict() const {
    const Test t = test();
    const ComparedPair& pair = c_.plain.pairs[t.pair];
    std::string text = "With " + hidden_words() + " hidden, the cosine of " + both(pair) + " changes from " +
                       number(t.before) + " to " + number(t.after) + " (" +
                       signed_number(printed_change(t.before, t.after)) + ")";
    if (t.most != nullptr) {
      const double most = t.most->cosine[t.pair] - t.before;
      const std::string printed = signed_number(printed_change(t.before, t.most->cosine[t.pair]));
      const bool largest = std::abs(t.change()) > std::abs(most);
      text += largest ? fmt::format(": the largest change of {} tests", c_.others.size() + 1)
                      : std::string(": hiding another word changes it at least as much");
      text += c_.others.size() == 1
                  ? " (without " + quoted(t.most->text) + ", the only other word, " + printed + ")"
                  : fmt::format(" (each of {} other words hidden alone: {} to {}; largest change: {}, without {})",
                                c_.others.size(), number(t.low), number(t.high), printed, quoted(t.most->text));
    }
    text += ".";
    if (c_.others_left_out > 0) text += fmt::format(" {} more words were not tried.", c_.others_left_out);
    const ControlWord* control = chosen_control(pair);
    const ControlWord* moved = control == nullptr ? nullptr : control_named(c_.hidden->pairs[t.pair], control->text);
    if (moved != nullptr) {
      text += " The cosine of the control " + quoted(control->text) + " changes from " +
              number(control->cosine.back()) + " to " + number(moved->cosine.back()) + ".";
    }
    return text;
  }

  // ---- heads

  struct Look {
    std::string word;
    double weight = 0;
  };
  // The word that the head attends to most, except for the word itself and special tokens.
  Look look(const CompareNumbers& numbers, Index sentence, Index layer, Index head) const {
    const ComparedSentence& s = sentence_of(c_, sentence);
    const std::vector<std::string>& names = names_[static_cast<std::size_t>(sentence)];
    Look best;
    for (std::size_t w = 0; w < s.words.size(); ++w) {
      const double weight = numbers.attention[static_cast<std::size_t>(sentence)](layer, head, w);
      if (s.words[w].special || static_cast<Index>(w) == s.word || weight <= best.weight) continue;
      best = {names[w] + std::string(word_mark(s.words[w])), weight};
    }
    return best;
  }
  std::string look_text(const CompareNumbers& numbers, Index sentence, Index layer, Index head) const {
    const Look seen = look(numbers, sentence, layer, head);
    const int most = std::clamp((width_ - 44) / 2 - 6, 5, 20);
    return pad_right(shown(seen.word, most), most) + " " + pad_left(number(seen.weight, 2), 4);
  }

  void heads(const CompareNumbers& numbers) {
    if (c_.stages.size() <= 2) return;
    std::vector<std::size_t> pairs{extreme_pair(false)};
    if (options_.full) pairs = shown_pairs();
    for (const std::size_t p : pairs) heads_of(numbers, numbers.pairs[p]);
    for (const std::string& part : wrap_words(
             paint_.shown(
                 "share: the projection of a head’s own difference onto the whole difference, in percent; "
                 "a negative share reduces it. A → key: the word with the largest weight, except the word itself "
                 "and special tokens. A weight shows association, not word sense."),
             std::min(width_, kWidestProse) - 2, 0)) {
      line(paint_.dim("  " + part));
    }
  }

  void heads_of(const CompareNumbers& numbers, const ComparedPair& pair) {
    line("");
    paragraph("Which heads make " + both(pair) + " differ? Attention output of " + quoted(c_.word) + " in " +
                  name(pair.first) + " minus that in " + name(pair.second) + ", by layer",
              false);
    const int look_width = display_width(look_text(numbers, pair.first, 0, 0));
    line(paint_.dim("  layer    norm  head       share   " +
                    pad_right(name(pair.first) + paint_.shown(" → key"), look_width) + "   " + name(pair.second) +
                    paint_.shown(" → key")));
    const auto [layers, heads, words] = numbers.attention[static_cast<std::size_t>(pair.first)].shape();
    (void)words;
    for (Index layer = 0; layer < layers; ++layer) layer_lines(numbers, pair, layer, heads);
  }

  void layer_lines(const CompareNumbers& numbers, const ComparedPair& pair, Index layer, Index heads) {
    std::string start = "  " + pad_right(fmt::format("L{}", layer), 5) +
                        pad_left(number(pair.difference[static_cast<std::size_t>(layer)], 2), 8) + "  ";
    if (std::isnan(pair.share(layer, Index{0}))) {
      line(start + "no difference");
      return;
    }
    std::vector<Index> order;
    for (Index head = 0; head < heads; ++head) order.push_back(head);
    std::sort(order.begin(), order.end(), [&](Index a, Index b) {
      const double x = std::abs(pair.share(layer, a)), y = std::abs(pair.share(layer, b));
      return x != y ? x > y : a < b;
    });
    constexpr std::size_t kMaxShown = 2;
    const std::size_t most = options_.full || order.size() <= kMaxShown + 1 ? order.size() : kMaxShown;
    const NumberStyle style{.digits = 1, .unicode = paint_.unicode};
    long long printed = 0;
    const auto share_text = [&](double share) {
      printed += printed_units(100 * share, style);
      return pad_left(number(100 * share, 1), 5);
    };
    double rest = 0;
    for (std::size_t n = 0; n < order.size(); ++n) {
      const Index head = order[n];
      if (n >= most) {
        rest += pair.share(layer, head);
        continue;
      }
      line(start + pad_right(fmt::format("H{}", head), 9) + share_text(pair.share(layer, head)) + " %   " +
           look_text(numbers, pair.first, layer, head) + "   " + look_text(numbers, pair.second, layer, head));
      start = std::string(17, ' ');
    }
    std::string end;
    if (most < order.size()) {
      const std::string others = fmt::format("{} others", order.size() - most);
      end = start + pad_right(others, 9) + share_text(rest) + " %";
    }
    const double excess = static_cast<double>(printed) / 10 - 100;
    std::string note = "sum 100 %";
    if (std::abs(excess) > 0.01) note += " (shown: " + number(100 + excess, 1) + ")";
    line(paint_.dim(end.empty() ? start + note : end + "   " + note));
  }

  const Comparison& c_;
  const CompareTextOptions& options_;
  const std::stop_token& stop_;
  Paint paint_;
  int width_;
  std::vector<std::vector<std::string>> names_;  // the names of each sentence's words
  std::string out_;
};

}  // namespace

std::vector<std::string> compare_findings(const Comparison& comparison) {
  const CompareTextOptions options;
  const std::stop_token stop;
  return CompareRenderer(comparison, options, stop).findings();
}

std::string render_compare_text(const Comparison& comparison, const CompareTextOptions& options,
                                const std::stop_token& stop) {
  return CompareRenderer(comparison, options, stop).render();
}

}  // namespace regard::inline v0
