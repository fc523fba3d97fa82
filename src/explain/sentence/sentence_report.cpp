// SPDX-License-Identifier: Apache-2.0
//
// A sentence's story: the word and head worth reading, their row, the same row before words were hidden.
//
//     read_sentence (nothing hidden) → telling_heads → sentence_row → unfold_dot, softmax_term
//     encode (each other word hidden by itself) ─────→ cosine: how far the word's vector moves
//     read_sentence (words hidden)   ────────────────→ sentence_row: after beside before
//
// Read next: include/regard/explain/sentence_report.h, sentence_work.cpp, sentence_text.cpp.
#include "regard/explain/sentence_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>

#include "regard/explain/steps.h"
#include "regard/parallel.h"

namespace regard {
inline namespace v0 {
namespace {

std::string model_name(const SentenceModel& model, std::string_view sha256) {
  if (sha256 == minilm_sha256()) return "all-MiniLM-L6-v2";
  std::string_view folder = model.folder;
  while (folder.size() > 1 && folder.ends_with('/')) folder.remove_suffix(1);
  return std::string(folder.substr(folder.rfind('/') + 1));
}

void check_head(const EncoderConfig& config, const SentenceStoryOptions& options) {
  if (options.layer.has_value() != options.head.has_value()) {
    throw std::invalid_argument("a head is named by its layer and its number in it; give both or neither");
  }
  if (!options.layer) return;
  if (*options.layer < 0 || *options.layer >= config.num_layers || *options.head < 0 ||
      *options.head >= config.num_heads) {
    throw std::invalid_argument(fmt::format("there is no L{}H{}; layers are 0 to {}, heads 0 to {}", *options.layer,
                                            *options.head, config.num_layers - 1, config.num_heads - 1));
  }
}

// The word attended to most; among words of the text where any is seen.
Index heard_most(const SentenceRow& row) {
  const RowKey* best = nullptr;
  for (const RowKey& key : row.keys) {
    if (key.hidden) continue;
    const bool better = best == nullptr || (best->special != key.special ? best->special : key.weight > best->weight);
    if (better) best = &key;
  }
  return best == nullptr ? row.word : best->word;
}

// The pieces of two words with the largest weight: the place among the row's queries, and the token.
std::array<Index, 2> closest_pieces(const Sentence& sentence, const SentenceRow& row, Index key_word) {
  const std::vector<Index>& keys = sentence.words[static_cast<std::size_t>(key_word)].tokens;
  std::array<Index, 2> best{0, keys.front()};
  for (Index q = 0; q < static_cast<Index>(row.queries.size()); ++q) {
    for (const Index key : keys) {
      if (row.weights(q, key) > row.weights(best[0], best[1])) best = {q, key};
    }
  }
  return {row.queries[static_cast<std::size_t>(best[0])], best[1]};
}

// The other words of the text, at most kMaxHiddenAlone: those with the largest weights.
std::vector<Index> words_to_hide(const SentenceStory& story, const Sentence& sentence, Index& left_out) {
  std::vector<Index> words;
  for (std::size_t w = 0; w < sentence.words.size(); ++w) {
    if (!sentence.words[w].special && static_cast<Index>(w) != story.chosen.word)
      words.push_back(static_cast<Index>(w));
  }
  std::sort(words.begin(), words.end(), [&](Index a, Index b) {
    const auto weight = [&](Index word) { return story.row.keys[static_cast<std::size_t>(word)].weight; };
    return weight(a) != weight(b) ? weight(a) > weight(b) : a < b;
  });
  left_out = std::max<Index>(0, static_cast<Index>(words.size()) - kMaxHiddenAlone);
  words.resize(words.size() - static_cast<std::size_t>(left_out));
  return words;
}

void hide_each_alone(const SentenceModel& model, const Sentence& sentence, SentenceStory& story,
                     const Runtime& runtime) {
  const std::vector<Index> words = words_to_hide(story, sentence, story.not_hidden_alone);
  const std::vector<float> whole = word_vector(sentence, sentence.trace.output(), story.chosen.word);
  const std::vector<Index>& rows = sentence.words[static_cast<std::size_t>(story.chosen.word)].tokens;
  story.alone.resize(words.size());
  std::atomic<Index> done = 0;
  Runtime each = runtime;
  each.progress = {};
  parallel_for(
      static_cast<Index>(words.size()),
      [&](Index i, const Runtime& one) {
        const Index word = words[static_cast<std::size_t>(i)];
        const EncoderTrace trace = encode(model.encoder, sentence.tokens.ids,
                                          {.hidden_keys = sentence.words[static_cast<std::size_t>(word)].tokens}, one);
        const double similarity = cosine(mean_rows(trace.output(), rows), whole);
        if (!std::isfinite(similarity)) {
          throw std::runtime_error(fmt::format(
              "{}: with token {} hidden the output is not finite: parameters that are too large, or not finite "
              "themselves, give this text no numbers to show",
              escape_for_terminal(model.folder), sentence.words[static_cast<std::size_t>(word)].tokens.front()));
        }
        story.alone[static_cast<std::size_t>(i)] = {word, similarity};
        if (runtime.progress) runtime.progress(++done, static_cast<Index>(words.size()));
      },
      each);
  std::sort(story.alone.begin(), story.alone.end(), [](const HiddenAlone& a, const HiddenAlone& b) {
    return a.cosine != b.cosine ? a.cosine < b.cosine : a.word < b.word;
  });
}

}  // namespace

PairInHeads pair_in_heads(const SentenceStory& story) {
  const auto [layers, heads, words] = story.attention.shape();
  const double count = static_cast<double>(layers * heads);
  PairInHeads pair;
  for (Index layer = 0; layer < layers; ++layer) {
    for (Index head = 0; head < heads; ++head) {
      pair.mean += story.attention(layer, head, story.chosen.target) / count;
      for (Index w = 0; w < words; ++w) {
        if (story.sentence.words[static_cast<std::size_t>(w)].special)
          pair.special += story.attention(layer, head, w) / count;
      }
    }
  }
  pair.uniform =
      static_cast<double>(story.sentence.words[static_cast<std::size_t>(story.chosen.target)].tokens.size()) /
      static_cast<double>(story.sentence.tokens.ids.size());
  return pair;
}

SentenceStory tell_sentence(const SentenceModel& model, std::string_view text, const SentenceStoryOptions& options,
                            const Runtime& asked) {
  Runtime runtime = asked;
  runtime.progress = {};  // that of the passes with one word hidden alone
  check_head(model.encoder.config, options);
  SentenceStory story;
  story.config = model.encoder.config;
  story.sha256 = model.encoder.checkpoint->sha256(runtime);
  story.model = model_name(model, story.sha256);
  story.head_named = options.layer.has_value();
  story.word_named = !options.query.empty();
  Sentence plain = read_sentence(model, text, {.hide = {}, .truncate = options.truncate}, runtime);
  check_has_words(plain.words);
  std::optional<Index> word;
  if (story.word_named) word = word_index(plain.words, options.query);
  story.telling = telling_heads(plain, story.sha256, word, runtime);
  const auto chosen = std::find_if(story.telling.heads.begin(), story.telling.heads.end(), [&](const Listening& one) {
    return !options.layer || (one.layer == *options.layer && one.head == *options.head);
  });
  if (chosen == story.telling.heads.end()) throw std::invalid_argument("the model has no heads");
  story.chosen = *chosen;

  story.row = sentence_row(model, plain, story.chosen.layer, story.chosen.head, story.chosen.word);
  story.heard = story.chosen.target;
  story.attention = word_attention(plain, story.chosen.word, runtime);
  hide_each_alone(model, plain, story, asked);
  if (options.hide.empty()) {
    story.sentence = std::move(plain);
  } else {
    story.before = std::move(story.row);
    story.sentence = read_sentence(model, text, {.hide = options.hide, .truncate = options.truncate}, runtime);
    story.row = sentence_row(model, story.sentence, story.chosen.layer, story.chosen.head, story.chosen.word);
    if (story.row.keys[static_cast<std::size_t>(story.heard)].hidden) story.heard = heard_most(story.row);
    for (std::size_t layer = 0; layer < plain.trace.layers.size(); ++layer) {
      story.kept.push_back(
          cosine(word_vector(plain, plain.trace.layers[layer].output, story.chosen.word),
                 word_vector(story.sentence, story.sentence.trace.layers[layer].output, story.chosen.word)));
    }
  }
  const auto [query, key] = closest_pieces(story.sentence, story.row, story.heard);
  story.dot = unfold_dot(story.sentence, story.row, query, key);
  story.term = softmax_term(story.row, query, key);
  if (options.full) story.work = sentence_work(model, story.sentence, story.row, query, key);
  return story;
}

}  // namespace v0
}  // namespace regard
