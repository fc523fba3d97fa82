// SPDX-License-Identifier: Apache-2.0
//
// Compares the vectors of one word across sentences; see regard/explain/compare.h.
//
//     for each sentence:        read → the vectors of its words at every stage → drop the trace
//     then, from these vectors: floor, and for each pair the cosines, the controls and the heads' shares
//
// The floor needs no loop over pairs: with unit vectors u, Σ over pairs of u·u′ = (‖Σ u‖² − Σ ‖u‖²) / 2, over all words
// minus the same sum within each group of equal words.
// Read next: compare_text.cpp.
#include "regard/explain/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

#include "regard/error.h"
#include "regard/io/utf8.h"
#include "sentence_model.h"

namespace regard::inline v0 {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

// Two words are the same if their pieces have the same ids.
using Spelling = std::vector<Index>;

// The part of a sentence's trace that is kept.
struct WordTrace {
  Tensor<float, 3> states;     // (stages, W, E)
  Tensor<float, 3> handed_on;  // (N, H, E): each head's context of the word · its rows of W_output
  Tensor<double, 3> attention;
};

// Whether the word counts for the floor, the controls and the other words: not a special token, not punctuation.
bool counts(const SentenceWord& word) { return !word.special && has_letter_or_digit(word.text); }

Spelling spelling_of(const ComparedSentence& sentence, Index word) {
  Spelling ids;
  for (const Index token : sentence.words[static_cast<std::size_t>(word)].tokens) {
    ids.push_back(sentence.tokens.ids[static_cast<std::size_t>(token)]);
  }
  return ids;
}

std::vector<Index> words_spelled(const ComparedSentence& sentence, const Spelling& spelling) {
  std::vector<Index> found;
  for (std::size_t w = 0; w < sentence.words.size(); ++w) {
    if (spelling_of(sentence, static_cast<Index>(w)) == spelling) found.push_back(static_cast<Index>(w));
  }
  return found;
}

// The word of that name, or nothing if it does not occur. Throws if it occurs several times.
std::optional<Index> find_word(const std::vector<SentenceWord>& words, const std::string& name) {
  if (words_named(words, name).empty()) return std::nullopt;
  return word_index(words, name);
}

std::string at_token(const ComparedSentence& sentence, Index word) {
  return fmt::format("@{}", sentence.words[static_cast<std::size_t>(word)].tokens.front());
}

// One name for each sentence.
std::vector<std::string> names_of(std::string_view word, std::size_t num_sentences) {
  const auto commas = static_cast<std::size_t>(std::count(word.begin(), word.end(), ','));
  if (commas == 0 || commas == word.size()) return std::vector<std::string>(num_sentences, std::string(word));
  if (commas + 1 != num_sentences) {
    throw InvalidArgument(
        fmt::format("\"{}\" names {} words, but there are {} sentences; give one name, or one "
                    "for each sentence",
                    escape_for_terminal(truncate_text(word, 200)), commas + 1, num_sentences));
  }
  std::vector<std::string> names(1);
  for (const char c : word) {
    if (c == ',') {
      names.emplace_back();
    } else {
      names.back() += c;
    }
  }
  return names;
}

class Comparer {
 public:
  Comparer(const SentenceModel& model, const CompareOptions& options, const Runtime& runtime)
      : model_(model), options_(options), runtime_(runtime) {}

  Comparison compare(std::string_view word, const std::vector<std::string>& texts) {
    check_is_encoder(model_, "compare");
    const auto count = static_cast<Index>(texts.size());
    if (count < 2 || count > kMaxCompared) {
      throw InvalidArgument(
          fmt::format("{} sentence{} to compare; expected 2 to {}", count, count == 1 ? "" : "s", kMaxCompared));
    }
    const EncoderConfig& config = model_.encoder.config;
    c_.model_folder = model_.folder;
    c_.num_heads = config.num_heads;
    c_.head_size = config.head_size();
    c_.hide = options_.hide;
    c_.stages = {"word", "+position"};
    for (Index layer = 0; layer < config.num_layers; ++layer) c_.stages.push_back(fmt::format("L{}", layer));

    const std::vector<std::string> names = names_of(word, texts.size());
    std::vector<WordTrace> traces;
    for (std::size_t s = 0; s < texts.size(); ++s) traces.push_back(read_first(names[s], texts[s]));
    c_.word = c_.sentences[0].words[static_cast<std::size_t>(c_.sentences[0].word)].text;
    for (std::size_t s = 1; s < texts.size(); ++s) {
      const ComparedSentence& sentence = c_.sentences[s];
      if (spelling_of(sentence, sentence.word) == spelling_of(c_.sentences[0], c_.sentences[0].word)) continue;
      throw InvalidArgument(fmt::format(
          "\"{}\" in A and \"{}\" in {} are different words; expected one word that occurs in every sentence",
          escape_for_terminal(c_.word),
          escape_for_terminal(sentence.words[static_cast<std::size_t>(sentence.word)].text), sentence.name));
    }
    find_control();
    c_.plain = numbers_of(std::move(traces));
    if (!options_.hide.empty()) hide();
    c_.model_sha256 = model_.sha256(runtime_.stop);
    return std::move(c_);
  }

 private:
  WordTrace read_first(const std::string& name, const std::string& text) {
    ComparedSentence compared;
    compared.name = std::string(1, static_cast<char>('A' + c_.sentences.size()));
    try {
      Sentence sentence = read_sentence(model_, text, {.hide = {}, .truncate = options_.truncate}, runtime_);
      check_has_words(sentence.words);
      compared.word = word_index(sentence.words, name);
      WordTrace trace = trace_of(sentence, compared.word);
      compared.text = std::move(sentence.text);
      compared.tokens = std::move(sentence.tokens);
      compared.words = std::move(sentence.words);
      compared.num_truncated_tokens = sentence.num_truncated_tokens;
      c_.sentences.push_back(std::move(compared));
      return trace;
    } catch (const std::invalid_argument& error) {
      throw InvalidArgument(fmt::format("sentence {}: {}", compared.name, error.what()));
    }
  }

  WordTrace trace_of(const Sentence& sentence, Index word) const {
    const ModelTrace& t = sentence.trace;
    const auto num_words = static_cast<Index>(sentence.words.size());
    const auto num_layers = static_cast<Index>(t.layers.size());
    const Index width = model_.encoder.config.width, heads = model_.encoder.config.num_heads;
    WordTrace kept{Tensor<float, 3>({num_layers + 2, num_words, width}), Tensor<float, 3>({num_layers, heads, width}),
                   word_attention(sentence, word, runtime_)};
    const auto keep = [&](Index stage, const Tensor<float, 2>& states) {
      for (Index w = 0; w < num_words; ++w) {
        const std::vector<float> vector = word_vector(sentence, states, w);
        std::copy(vector.begin(), vector.end(), &kept.states(stage, w, Index{0}));
      }
    };
    keep(0, t.word);
    keep(1, t.embedded);
    for (Index layer = 0; layer < num_layers; ++layer) {
      keep(layer + 2, t.layers[static_cast<std::size_t>(layer)].output);
      for (Index head = 0; head < heads; ++head) {
        const Tensor<float, 2> handed_on = head_output(model_.encoder, t, layer, head, runtime_);
        const std::vector<float> vector = word_vector(sentence, handed_on, word);
        std::copy(vector.begin(), vector.end(), &kept.handed_on(layer, head, Index{0}));
      }
    }
    return kept;
  }

  void find_control() {
    if (options_.control.empty()) return;
    const std::string shown = text_in_message(options_.control);
    std::size_t sentences = 0;
    for (const ComparedSentence& sentence : c_.sentences) {
      const std::vector<Index> found = words_named(sentence.words, options_.control);
      if (found.empty()) continue;
      control_ = spelling_of(sentence, found.front());
      ++sentences;
    }
    if (sentences < 2) {
      throw InvalidArgument(
          fmt::format("the control \"{}\" occurs in {} of the sentences; expected a word that occurs in at least two",
                      shown, sentences));
    }
    if (control_ == spelling_of(c_.sentences[0], c_.sentences[0].word)) {
      throw InvalidArgument(
          fmt::format("the control \"{}\" is the word being compared; expected a different word", shown));
    }
  }

  // ---- figures, from the kept vectors

  std::span<const float> vector(const WordTrace& trace, Index stage, Index word) const {
    return {&trace.states(stage, word, Index{0}), static_cast<std::size_t>(trace.states.shape()[2])};
  }

  CompareNumbers numbers_of(std::vector<WordTrace> traces) const {
    CompareNumbers numbers;
    set_floor(traces, numbers);
    const auto count = static_cast<Index>(traces.size());
    for (Index first = 0; first < count; ++first) {
      for (Index second = first + 1; second < count; ++second)
        numbers.pairs.push_back(pair_of(traces, numbers, first, second));
    }
    for (WordTrace& trace : traces) numbers.attention.push_back(std::move(trace.attention));
    return numbers;
  }

  void set_floor(const std::vector<WordTrace>& traces, CompareNumbers& numbers) const {
    const auto num_stages = static_cast<Index>(c_.stages.size());
    const auto width = static_cast<std::size_t>(model_.encoder.config.width);
    for (Index stage = 0; stage < num_stages; ++stage) {
      struct Group {
        std::vector<double> sum;
        double squares = 0;
        Index count = 0;
        void add(std::span<const float> v, double norm) {
          sum.resize(v.size());
          ++count;
          if (norm == 0) return;
          for (std::size_t e = 0; e < v.size(); ++e) sum[e] += static_cast<double>(v[e]) / norm;
          squares += 1;
        }
        double pairs_sum() const {
          double square = 0;
          for (const double x : sum) square += x * x;
          return (square - squares) / 2;
        }
        Index pairs() const { return count * (count - 1) / 2; }
      };
      Group all{std::vector<double>(width)};
      std::map<Spelling, Group> groups;
      for (std::size_t s = 0; s < traces.size(); ++s) {
        for (std::size_t w = 0; w < c_.sentences[s].words.size(); ++w) {
          if (!counts(c_.sentences[s].words[w])) continue;
          const std::span<const float> v = vector(traces[s], stage, static_cast<Index>(w));
          double square = 0;
          for (const float x : v) square += static_cast<double>(x) * static_cast<double>(x);
          all.add(v, std::sqrt(square));
          groups[spelling_of(c_.sentences[s], static_cast<Index>(w))].add(v, std::sqrt(square));
        }
      }
      double sum = all.pairs_sum();
      Index pairs = all.pairs();
      for (const auto& [spelling, group] : groups) {
        sum -= group.pairs_sum();
        pairs -= group.pairs();
      }
      numbers.floor.push_back(pairs > 0 ? sum / static_cast<double>(pairs) : kUndefined);
      numbers.floor_pairs = pairs;
    }
  }

  ComparedPair pair_of(const std::vector<WordTrace>& traces, const CompareNumbers& numbers, Index first,
                       Index second) const {
    ComparedPair pair;
    pair.first = first;
    pair.second = second;
    const ComparedSentence& a = c_.sentences[static_cast<std::size_t>(first)];
    const ComparedSentence& b = c_.sentences[static_cast<std::size_t>(second)];
    const WordTrace& at = traces[static_cast<std::size_t>(first)];
    const WordTrace& bt = traces[static_cast<std::size_t>(second)];
    const auto num_stages = static_cast<Index>(c_.stages.size());
    for (Index stage = 0; stage < num_stages; ++stage) {
      const double floor = numbers.floor[static_cast<std::size_t>(stage)];
      pair.cosine.push_back(cosine(vector(at, stage, a.word), vector(bt, stage, b.word)));
      pair.above_floor.push_back((pair.cosine.back() - floor) / (1 - floor));
    }

    std::vector<Spelling> seen{spelling_of(a, a.word)};
    for (std::size_t w = 0; w < a.words.size(); ++w) {
      const Spelling spelling = spelling_of(a, static_cast<Index>(w));
      if (!(control_.empty() ? counts(a.words[w]) : spelling == control_)) continue;
      if (std::find(seen.begin(), seen.end(), spelling) != seen.end()) continue;
      seen.push_back(spelling);
      const std::vector<Index> in_a = words_spelled(a, spelling), in_b = words_spelled(b, spelling);
      if (in_b.empty()) continue;
      ControlWord control{a.words[w].text, {}};
      for (Index stage = 0; stage < num_stages; ++stage) {
        double sum = 0;
        for (const Index i : in_a) {
          for (const Index j : in_b) sum += cosine(vector(at, stage, i), vector(bt, stage, j));
        }
        control.cosine.push_back(sum / static_cast<double>(in_a.size() * in_b.size()));
      }
      pair.controls.push_back(std::move(control));
    }

    const auto [layers, heads, width] = at.handed_on.shape();
    pair.share = Tensor<double, 2>({layers, heads});
    for (Index layer = 0; layer < layers; ++layer) {
      std::vector<double> difference(static_cast<std::size_t>(width));
      const auto of_head = [&](Index head, Index e) {
        return static_cast<double>(at.handed_on(layer, head, e)) - static_cast<double>(bt.handed_on(layer, head, e));
      };
      for (Index head = 0; head < heads; ++head) {
        for (Index e = 0; e < width; ++e) difference[static_cast<std::size_t>(e)] += of_head(head, e);
      }
      double square = 0;
      for (const double x : difference) square += x * x;
      pair.difference.push_back(std::sqrt(square));
      for (Index head = 0; head < heads; ++head) {
        double product = 0;
        for (Index e = 0; e < width; ++e) product += of_head(head, e) * difference[static_cast<std::size_t>(e)];
        pair.share(layer, head) = square > 0 ? product / square : kUndefined;
      }
    }
    return pair;
  }

  // ---- hiding

  void hide() {
    std::vector<WordTrace> traces;
    std::vector<Spelling> hidden;
    for (const std::string& name : options_.hide) {
      bool occurs = false;
      for (ComparedSentence& sentence : c_.sentences) {
        std::optional<Index> found;
        try {
          found = find_word(sentence.words, name);
        } catch (const std::invalid_argument& error) {
          throw InvalidArgument(fmt::format("--hide in sentence {}: {}", sentence.name, error.what()));
        }
        if (!found) continue;
        occurs = true;
        sentence.hidden.push_back(*found);
        hidden.push_back(spelling_of(sentence, *found));
      }
      if (!occurs) {
        throw InvalidArgument(fmt::format("--hide: \"{}\" does not occur in any sentence", text_in_message(name)));
      }
    }
    for (ComparedSentence& sentence : c_.sentences) {
      std::sort(sentence.hidden.begin(), sentence.hidden.end());
      sentence.hidden.erase(std::unique(sentence.hidden.begin(), sentence.hidden.end()), sentence.hidden.end());
      traces.push_back(trace_of(read_hiding(sentence, sentence.hidden), sentence.word));
    }
    c_.hidden = numbers_of(std::move(traces));
    hide_others(std::move(hidden));
  }

  Sentence read_hiding(const ComparedSentence& sentence, const std::vector<Index>& words) const {
    SentenceOptions options{.hide = {}, .truncate = options_.truncate};
    for (const Index word : words) options.hide.push_back(at_token(sentence, word));
    return read_sentence(model_, sentence.text, options, runtime_);
  }

  // Hides every other word individually, at all its positions: the effect of hiding that is unrelated to the chosen
  // words.
  void hide_others(std::vector<Spelling> passed_over) {
    passed_over.push_back(spelling_of(c_.sentences[0], c_.sentences[0].word));
    for (const ComparedSentence& from : c_.sentences) {
      for (std::size_t w = 0; w < from.words.size(); ++w) {
        const Spelling spelling = spelling_of(from, static_cast<Index>(w));
        if (!counts(from.words[w])) continue;
        if (std::find(passed_over.begin(), passed_over.end(), spelling) != passed_over.end()) continue;
        passed_over.push_back(spelling);
        if (static_cast<Index>(c_.others.size()) >= options_.most_others) {
          ++c_.others_left_out;
          continue;
        }
        std::vector<std::vector<float>> vectors;
        for (const ComparedSentence& sentence : c_.sentences) {
          const Sentence read = read_hiding(sentence, words_spelled(sentence, spelling));
          vectors.push_back(word_vector(read, read.trace.output(), sentence.word));
        }
        OtherHidden other{from.words[w].text, {}};
        for (const ComparedPair& pair : c_.plain.pairs) {
          other.cosine.push_back(
              cosine(vectors[static_cast<std::size_t>(pair.first)], vectors[static_cast<std::size_t>(pair.second)]));
        }
        c_.others.push_back(std::move(other));
      }
    }
  }

  const SentenceModel& model_;
  const CompareOptions& options_;
  const Runtime& runtime_;
  Comparison c_;
  Spelling control_;  // empty means every shared word
};

}  // namespace

Comparison compare_word(const SentenceModel& model, std::string_view word, const std::vector<std::string>& sentences,
                        const CompareOptions& options, const Runtime& runtime) {
  return Comparer(model, options, runtime).compare(word, sentences);
}

}  // namespace regard::inline v0
