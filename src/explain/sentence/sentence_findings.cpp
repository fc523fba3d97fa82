// SPDX-License-Identifier: Apache-2.0
//
// Findings about a sentence in words, and how far they depend on the choice of the head:
//
//     finding      one weight of one head, with its uniform value and the head's baseline
//     selection    out of how many heads it was chosen, and what they do on average
//     evidence     how hiding each word, one at a time, changes the word's vector
//     association  what a weight does not show
//
// Read next: regard/explain/sentence_report.h, sentence_text.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "sentence_text.h"

namespace regard::inline v0 {
namespace {

class Findings {
 public:
  explicit Findings(const AnalysisText& text) : t_(text), s_(text.analysis) {}

  SentenceFindings make() const {
    return {.finding = s_.before ? hidden_finding() : plain_finding(),
            .selection = selection(),
            .evidence = s_.before ? hidden_evidence() : evidence(),
            .association = association(),
            .warning = vocabulary_warning(s_.sentence.words)};
  }

 private:
  const AttentionPair& chosen() const { return s_.chosen; }
  std::string head_name() const { return fmt::format("layer {}, head {}", chosen().layer, chosen().head); }
  std::string cosine_text(double x) const { return styled_number(x, {.digits = 3, .unicode = t_.paint.unicode}); }
  std::string last_layer() const { return fmt::format("layer {}", s_.extents.num_layers - 1); }

  double uniform() const {
    Index visible = 0;
    for (const RowKey& key : s_.row.keys) {
      if (!key.hidden && !key.later)
        visible += static_cast<Index>(element_at(s_.sentence.words, key.word).tokens.size());
    }
    const auto tokens = static_cast<double>(element_at(s_.sentence.words, chosen().target).tokens.size());
    return visible == 0 ? 0.0 : tokens / static_cast<double>(visible);
  }

  std::string baseline() const {
    const Index distance = chosen().target - chosen().word;
    const Index far = std::abs(distance);
    const std::string where =
        far == 0 ? fmt::format("on the {} itself", t_.noun())
                 : fmt::format("{}{} {} {}", std::min(far, kFarthest), far >= kFarthest ? " or more" : "", t_.noun(far),
                               distance > 0 ? "ahead" : "back");
    constexpr Index kFewPairs = 30;
    std::string few;
    if (s_.ranked_heads.baseline == Baseline::this_sentence && chosen().pairs < kFewPairs)
      few = fmt::format(", a mean of only {} pair{}", chosen().pairs, chosen().pairs == 1 ? "" : "s");
    return fmt::format("baseline of this head {}: {}{}{}", where, far >= kFarthest ? "at most " : "",
                       t_.percent(chosen().baseline), few);
  }

  // How the target ranks among all keys of a row.
  std::string attends(const SentenceRow& row, Index target) const {
    if (s_.term.sum == 0) return "attends to nothing: every key is hidden";
    const double weight = element_at(row.keys, target).weight;
    const RowKey* most = nullptr;
    Index more = 0;
    for (const RowKey& key : row.keys) {
      if (key.weight > weight && key.word != target) ++more;
      if (most == nullptr || key.weight > most->weight) most = &key;
    }
    if (more == 0) return fmt::format("attends most to {}: {} of its attention", t_.quoted(target), t_.percent(weight));
    const std::string first = fmt::format("{} ({})", t_.quoted(most->word), t_.percent(most->weight));
    return fmt::format("gives {} of its attention to {}; {}", t_.percent(weight), t_.quoted(target),
                       more == 1 ? fmt::format("only {} receives more", first)
                                 : fmt::format("{} others receive more, most of all {}", more, first));
  }

  std::string plain_finding() const {
    std::string words = fmt::format("In {}, {} {} (uniform: {}; {}).", head_name(), t_.quoted(chosen().word),
                                    attends(s_.row, chosen().target), t_.percent(uniform()), baseline());
    if (chosen().layer > 0)
      words += fmt::format(" {} already mixed other {} into the vector at {}.",
                           chosen().layer == 1   ? "Layer 0 has"
                           : chosen().layer == 2 ? "Layers 0 and 1 have"
                                                 : fmt::format("Layers 0 to {} have", chosen().layer - 1),
                           t_.noun(2), t_.quoted(chosen().target));
    return words;
  }

  std::string hidden_words() const {
    std::vector<std::string> words;
    for (const Index word : s_.sentence.hidden) words.push_back(t_.quoted(word));
    return and_list(words);
  }

  std::string hidden_finding() const {
    const double was = element_at(s_.before->keys, chosen().target).weight;
    const std::string start =
        fmt::format("In {}, with {} hidden in all layers, {} ", head_name(), hidden_words(), t_.quoted(chosen().word));
    if (element_at(s_.row.keys, chosen().target).hidden)
      return start + fmt::format("{} ({} had {} before).", attends(s_.row, s_.attended), t_.quoted(chosen().target),
                                 t_.percent(was));
    return start + fmt::format("gives {} of its attention to {} ({} before).",
                               t_.percent(element_at(s_.row.keys, chosen().target).weight), t_.quoted(chosen().target),
                               t_.percent(was));
  }

  std::string selection() const {
    const PairInHeads all = pair_in_heads(s_);
    const Index heads = s_.extents.num_layers * s_.extents.num_heads;
    std::vector<std::string> special;
    for (std::size_t w = 0; w < s_.sentence.words.size(); ++w) {
      if (s_.sentence.words[w].special) special.push_back(t_.word(static_cast<Index>(w)));
    }
    std::string words = s_.head_named ? fmt::format("This head was specified; the average of all {} heads", heads)
                                      : fmt::format("This head was selected from {}, whose average", heads);
    words += fmt::format(" is {} on {}", t_.percent(all.mean), t_.quoted(chosen().target));
    if (!special.empty() && !element_at(s_.sentence.words, chosen().target).special)
      words += fmt::format(" and {} on {}", t_.percent(all.special), and_list(special));
    return words + (s_.before ? ", with nothing hidden." : ".");
  }

  std::string not_tried() const {
    if (s_.not_hidden_alone == 0) return "";
    return fmt::format(" (those with the largest weights; {} more were not tried)", s_.not_hidden_alone);
  }

  // The words that are hidden individually: "words", or "earlier tokens" of a decoder.
  std::string visible_noun(Index count) const { return (s_.extents.causal ? "earlier " : "") + t_.noun(count); }

  // Each other word hidden individually, the largest change first.
  std::string evidence() const {
    if (s_.alone.empty()) return "";
    const auto count = s_.alone.size();
    const auto target = std::find_if(s_.alone.begin(), s_.alone.end(),
                                     [&](const HiddenWord& one) { return one.word == chosen().target; });
    if (count == 1)
      return fmt::format(
          "Test: without {}, the only other {}, the vector of {} after {} has a cosine of {} with the original.",
          t_.quoted(s_.alone.front().word), visible_noun(1), t_.quoted(chosen().word), last_layer(),
          cosine_text(s_.alone.front().cosine));
    std::string words =
        fmt::format("Test: {} other {}, hidden one at a time{}. {} changes most without {}", count, visible_noun(2),
                    not_tried(), t_.quoted(chosen().word), t_.quoted(s_.alone.front().word));
    if (target != s_.alone.end() && target != s_.alone.begin())
      words += fmt::format("; {} ranks number {}", t_.quoted(chosen().target), target - s_.alone.begin() + 1);
    words += fmt::format(". Cosine of its vector after {} with the original: without ", last_layer());
    for (std::size_t n = 0; n < count; ++n)
      words += fmt::format("{}{} {}", n == 0 ? "" : ", ", t_.quoted(s_.alone[n].word), cosine_text(s_.alone[n].cosine));
    return words + ".";
  }

  std::string hidden_evidence() const {
    if (s_.kept.empty()) return "";
    std::string words =
        fmt::format("Without {}, the vector of {} after {} has a cosine of {} with the original", hidden_words(),
                    t_.quoted(chosen().word), last_layer(), cosine_text(s_.kept.back()));
    std::vector<HiddenWord> others;
    for (const HiddenWord& one : s_.alone) {
      if (!std::binary_search(s_.sentence.hidden.begin(), s_.sentence.hidden.end(), one.word)) others.push_back(one);
    }
    if (others.empty()) return words + fmt::format("; there is no other {} to compare with.", visible_noun(1));
    if (others.size() == 1)
      return words + fmt::format("; control: {1} without {0}.", t_.quoted(others.front().word),
                                 cosine_text(others.front().cosine));
    return words + fmt::format("; control, {} other {} hidden one at a time{}: {} (without {}) to {} (without {}).",
                               others.size(), visible_noun(2), not_tried(), cosine_text(others.front().cosine),
                               t_.quoted(others.front().word), cosine_text(others.back().cosine),
                               t_.quoted(others.back().word));
  }

  // The example holds for one checkpoint only; tests/cli/model_screen_check.py checks it.
  std::string association() const {
    if (s_.extents.causal) return "A weight shows where attention goes, not what the model does with it.";
    const std::string general = "A weight shows association, not word sense";
    if (s_.sha256 != minilm_sha256()) return general + ".";
    return general +
           fmt::format(
               ": in “the bank lent the money to the river project”, L0H4 also gives {} of the attention of “bank” "
               "to “river”.",
               t_.percent(0.4186));
  }

  const AnalysisText& t_;
  const SentenceAnalysis& s_;
};

}  // namespace

SentenceFindings findings_in(const AnalysisText& text) { return Findings(text).make(); }

SentenceFindings sentence_findings(const SentenceAnalysis& analysis) {
  const SentenceTextOptions options;
  const std::stop_token stop;
  return findings_in(AnalysisText(analysis, options, stop));
}

}  // namespace regard::inline v0
