// SPDX-License-Identifier: Apache-2.0
//
// Sentences: groups a text's pieces into words, hides words as hidden keys, computes sums and means over pieces.
// Read next: include/regard/explain/sentence.h.
#include "regard/explain/sentence.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "explain/report/terminal.h"
#include "regard/error.h"
#include "regard/explain/steps.h"
#include "sentence_model.h"

namespace regard::inline v0 {
namespace {

std::vector<SentenceWord> words_of(const TokenizedText& text, Index unknown_id) {
  std::vector<SentenceWord> words;
  Index current = -1;
  for (std::size_t i = 0; i < text.ids.size(); ++i) {
    const Index word = text.word[i];
    if (word < 0) {
      words.push_back({text.tokens[i], {}, true});
    } else if (word != current) {
      words.push_back({text.words[static_cast<std::size_t>(word)], {}, false});
    }
    current = word;
    words.back().tokens.push_back(static_cast<Index>(i));
    words.back().unknown = words.back().unknown || text.ids[i] == unknown_id;
  }
  return words;
}

// Removes tokens so that `kept` are left: at the end or, with keep_last, before the last token, which stays the last.
void truncate_tokens(TokenizedText& text, Index kept, bool keep_last) {
  const std::ptrdiff_t last = keep_last ? 1 : 0;
  const auto shorten = [&](auto& entries) { entries.erase(entries.begin() + (kept - last), entries.end() - last); };
  shorten(text.ids);
  shorten(text.tokens);
  shorten(text.word);
  shorten(text.byte_ranges);
}

// NaN cannot be sorted, and one NaN makes every figure meaningless.
void check_finite(const SentenceModel& model, const ModelTrace& trace) {
  const auto check = [&](const auto& array, const std::string& name) {
    const float* end = array.data() + array.size();
    const float* found = std::find_if(array.data(), end, [](float x) { return !std::isfinite(x); });
    if (found == end) return;
    // (L, E) or (H, L, D).
    const auto& shape = array.shape();
    const Index token = (found - array.data()) / shape.back() % shape[shape.size() - 2];
    throw DataError(fmt::format(
        "{}: {} is {} at token {}: parameters are too large or not finite, so there are no values to show for "
        "this text",
        escape_for_terminal(model.folder), name, *found, token));
  };
  check(trace.embedded, "embedded");
  for (std::size_t n = 0; n < trace.layers.size(); ++n) {
    const LayerTrace& layer = trace.layers[n];
    const auto check_in_layer = [&](const auto& array, const char* name) {
      check(array, fmt::format("{} of layer {}", name, n));
    };
    check_in_layer(layer.attention_input, "attention_input");
    check_in_layer(layer.query, "query");
    check_in_layer(layer.key, "key");
    check_in_layer(layer.value, "value");
    check_in_layer(layer.context, "context");
    check_in_layer(layer.attention_output, "attention_output");
    check_in_layer(layer.residual, "residual");
    check_in_layer(layer.attention_normed, "attention_normed");
    check_in_layer(layer.feed_forward, "feed_forward");
    check_in_layer(layer.output, "output");
  }
}

std::string lower_ascii(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

bool read_whole(std::string_view text, Index& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return !text.empty() && error == std::errc() && end == text.data() + text.size() && number >= 0;
}

// "on the bank": a word between those before and after it.
std::string with_neighbors(const std::vector<SentenceWord>& words, Index word) {
  constexpr int kWidest = 20;  // display width of a word
  std::string text;
  for (Index w = std::max<Index>(word - 1, 0); w <= std::min(word + 1, static_cast<Index>(words.size()) - 1); ++w) {
    const std::string& one = words[static_cast<std::size_t>(w)].text;
    text += (text.empty() ? "" : " ") + truncate_to_width(escape_for_terminal(one), kWidest, true);
  }
  return text;
}

std::string choices(const std::vector<SentenceWord>& words, const std::vector<Index>& found, std::string_view name) {
  std::string text;
  for (std::size_t n = 0; n < found.size(); ++n) {
    text += fmt::format("{}{}#{} ({})",
                        n == 0                  ? ""
                        : n + 1 == found.size() ? " or "
                                                : ", ",
                        escape_for_terminal(name), n, with_neighbors(words, found[n]));
  }
  return text;
}

}  // namespace

FittedTokens fitted_tokens(const SentenceModel& model, std::string_view text, bool truncate,
                           const std::stop_token& stop) {
  FittedTokens fitted{.tokens = model.trained ? decoder_tokens(model.trained->vocabulary, text, stop)
                                              : model.tokenizer.value().encode(text, stop)};
  const auto length = static_cast<Index>(fitted.tokens.ids.size());
  const ModelExtents extents = model.extents();
  const Index positions = extents.max_positions;
  if (length <= positions) return fitted;
  if (!truncate || (positions < 2 && !extents.causal)) {
    throw InvalidArgument(fmt::format(
        "the text has {} tokens and the model has {} positions; shorten it or truncate it (--truncate; in Python "
        "truncate=True)",
        length, positions));
  }
  fitted.num_truncated_tokens = length - positions;
  truncate_tokens(fitted.tokens, positions, !extents.causal);
  return fitted;
}

Sentence read_sentence(const SentenceModel& model, std::string_view text, const SentenceOptions& options,
                       const Runtime& runtime) {
  Sentence sentence;
  sentence.text = text;
  FittedTokens fitted = fitted_tokens(model, text, options.truncate, runtime.stop);
  sentence.tokens = std::move(fitted.tokens);
  sentence.num_truncated_tokens = fitted.num_truncated_tokens;
  constexpr Index kNoUnknown = -1;
  sentence.words = words_of(sentence.tokens, model.tokenizer ? model.tokenizer->unknown_id() : kNoUnknown);
  std::vector<Index> hidden_keys;
  for (const std::string& name : options.hide) sentence.hidden.push_back(word_index(sentence.words, name));
  std::sort(sentence.hidden.begin(), sentence.hidden.end());
  sentence.hidden.erase(std::unique(sentence.hidden.begin(), sentence.hidden.end()), sentence.hidden.end());
  for (const Index word : sentence.hidden) {
    const auto& tokens = sentence.words[static_cast<std::size_t>(word)].tokens;
    hidden_keys.insert(hidden_keys.end(), tokens.begin(), tokens.end());
  }
  std::vector<Index> last_rows;
  if (const auto named = words_named(sentence.words, options.only); named.size() == 1)
    last_rows = sentence.words[static_cast<std::size_t>(named.front())].tokens;
  sentence.trace = model.trace(sentence.tokens.ids, std::move(hidden_keys), runtime, std::move(last_rows));
  check_finite(model, sentence.trace);
  return sentence;
}

namespace {

// The words spelled like that; if none is, those that differ only in the case of ASCII letters.
std::vector<Index> words_spelled(const std::vector<SentenceWord>& words, std::string_view text) {
  std::vector<Index> found;
  for (const bool exact : {true, false}) {
    for (std::size_t w = 0; w < words.size(); ++w) {
      if (exact ? words[w].text == text : lower_ascii(words[w].text) == lower_ascii(text)) {
        found.push_back(static_cast<Index>(w));
      }
    }
    if (!found.empty()) break;
  }
  return found;
}

// `WORD#1` as the word and the number; nothing if the name has another form.
std::optional<std::pair<std::string_view, Index>> numbered(std::string_view name) {
  const std::size_t mark = name.rfind('#');
  Index number = 0;
  if (mark == std::string_view::npos || mark == 0 || !read_whole(name.substr(mark + 1), number)) return std::nullopt;
  return std::pair(name.substr(0, mark), number);
}

}  // namespace

std::vector<Index> words_named(const std::vector<SentenceWord>& words, std::string_view name) {
  if (name.starts_with('@')) {
    Index token = 0;
    if (!read_whole(name.substr(1), token)) return {};
    for (std::size_t w = 0; w < words.size(); ++w) {
      const auto& tokens = words[w].tokens;
      if (std::find(tokens.begin(), tokens.end(), token) != tokens.end()) return {static_cast<Index>(w)};
    }
    return {};
  }
  std::vector<Index> found = words_spelled(words, name);
  if (!found.empty()) return found;
  if (const auto one = numbered(name)) {
    found = words_spelled(words, one->first);
    if (one->second < static_cast<Index>(found.size())) return {found[static_cast<std::size_t>(one->second)]};
  }
  return {};
}

Index word_index(const std::vector<SentenceWord>& words, std::string_view name) {
  const std::vector<Index> found = words_named(words, name);
  if (found.size() == 1) return found.front();
  const std::string shown = fmt::format("\"{}\"", text_in_message(name));
  if (found.size() > 1) {
    throw InvalidArgument(fmt::format("{} occurs {} times in this text; expected one of {}", shown, found.size(),
                                      choices(words, found, name)));
  }
  if (name.starts_with('@')) {
    throw InvalidArgument(fmt::format("token {} does not exist in this text; expected @0 to @{}", shown,
                                      words.empty() ? 0 : words.back().tokens.back()));
  }
  if (const auto one = numbered(name)) {
    if (const std::vector<Index> others = words_spelled(words, one->first); !others.empty()) {
      throw InvalidArgument(
          fmt::format("{} is not in this text; expected {}", shown, choices(words, others, one->first)));
    }
  }
  std::string all;
  constexpr std::size_t kShown = 24;
  for (std::size_t w = 0; w < words.size() && w < kShown; ++w) {
    all += fmt::format("{}{}", w == 0 ? "" : ", ", text_in_message(words[w].text));
  }
  if (words.size() > kShown) all += ", …";
  throw InvalidArgument(fmt::format("{} is not in this text; expected one of {}", shown, all));
}

std::vector<std::string> word_names(const std::vector<SentenceWord>& words) {
  std::map<std::string_view, Index> count, next;
  for (const SentenceWord& word : words) ++count[word.text];
  std::vector<std::string> names;
  for (const SentenceWord& word : words) {
    names.push_back(count[word.text] == 1 ? word.text : fmt::format("{}#{}", word.text, next[word.text]++));
  }
  return names;
}

std::string_view word_mark(const SentenceWord& word) { return word.unknown ? "†" : word.split() ? "‡" : ""; }

void check_has_words(const std::vector<SentenceWord>& words) {
  if (std::all_of(words.begin(), words.end(), [](const SentenceWord& word) { return word.special; }))
    throw InvalidArgument("the text is empty; expected at least one word");
}

std::string vocabulary_warning(const std::vector<SentenceWord>& words) {
  constexpr Index kMinWords = 2, kMinShare = 4;  // a quarter
  Index all = 0, unknown = 0, split = 0;
  for (const SentenceWord& word : words) {
    if (word.special) continue;
    ++all;
    unknown += word.unknown ? 1 : 0;
    split += word.split() ? 1 : 0;
  }
  if (unknown + split < kMinWords || kMinShare * (unknown + split) < all) return "";
  return fmt::format(
      "{} of {} words are not in the vocabulary ({} split into pieces, {} unknown): the model may not know this "
      "language.",
      unknown + split, all, split, unknown);
}

Tensor<double, 2> word_weights(const Sentence& sentence, const Tensor<float, 3>& weights, Index head) {
  const Index num_words = static_cast<Index>(sentence.words.size());
  Tensor<double, 2> result({num_words, num_words});
  for (Index q = 0; q < num_words; ++q) {
    const auto& queries = sentence.words[static_cast<std::size_t>(q)].tokens;
    for (Index k = 0; k < num_words; ++k) {
      double sum = 0;
      for (const Index query : queries) {
        for (const Index key : sentence.words[static_cast<std::size_t>(k)].tokens) sum += weights(head, query, key);
      }
      result(q, k) = sum / static_cast<double>(queries.size());
    }
  }
  return result;
}

Tensor<double, 3> word_attention(const Sentence& sentence, Index word, const Runtime& runtime) {
  const auto num_layers = static_cast<Index>(sentence.trace.layers.size());
  const Index num_heads = num_layers == 0 ? 0 : sentence.trace.layers.front().query.shape()[0];
  const auto num_words = static_cast<Index>(sentence.words.size());
  const std::vector<Index>& queries = sentence.words[static_cast<std::size_t>(word)].tokens;
  Tensor<double, 3> result({num_layers, num_heads, num_words});
  for (Index layer = 0; layer < num_layers; ++layer) {
    const Tensor<float, 3> weights = trace_weights(sentence.trace, layer, WeightsKind::weights, runtime);
    for (Index head = 0; head < num_heads; ++head) {
      for (Index w = 0; w < num_words; ++w) {
        double sum = 0;
        for (const Index query : queries) {
          for (const Index key : sentence.words[static_cast<std::size_t>(w)].tokens)
            sum += static_cast<double>(weights(head, query, key));
        }
        result(layer, head, w) = sum / static_cast<double>(queries.size());
      }
    }
  }
  return result;
}

std::vector<float> word_vector(const Sentence& sentence, const Tensor<float, 2>& states, Index word) {
  return mean_rows(states, sentence.words[static_cast<std::size_t>(word)].tokens);
}

double cosine(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) {
    throw InvalidArgument(
        fmt::format("cosine: vectors of {} and {} elements; expected equal sizes", a.size(), b.size()));
  }
  double product = 0, a_squared = 0, b_squared = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = a[i], y = b[i];
    product += x * y;
    a_squared += x * x;
    b_squared += y * y;
  }
  return a_squared == 0 || b_squared == 0 ? 0.0 : product / std::sqrt(a_squared * b_squared);
}

}  // namespace regard::inline v0
