// SPDX-License-Identifier: Apache-2.0
//
// A sentence's story: the word and head worth reading, their row, the same row before words were hidden.
//
//     read_sentence (nothing hidden) → telling_heads → sentence_row → unfold_dot, softmax_term
//     read_sentence (words hidden)   ────────────────→ sentence_row: after beside before
//
// Read next: include/regard/sentence_story.h, sentence_work.cpp, render_sentence.cpp.
#include "regard/sentence_story.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

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

// The word heard most; among words of the text where it hears any.
Index heard_most(const SentenceRow& row) {
  const RowKey* best = nullptr;
  for (const RowKey& key : row.keys) {
    if (key.hidden) continue;
    const bool better = best == nullptr || (best->special != key.special ? best->special : key.weight > best->weight);
    if (better) best = &key;
  }
  return best == nullptr ? row.word : best->word;
}

// The pieces of two words that listen to each other most: the place among the row's queries, and the token.
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

}  // namespace

SentenceStory tell_sentence(const SentenceModel& model, std::string_view text, const SentenceStoryOptions& options,
                            const Runtime& runtime) {
  check_head(model.encoder.config, options);
  SentenceStory story;
  story.config = model.encoder.config;
  story.sha256 = model.encoder.checkpoint->sha256(runtime);
  story.model = model_name(model, story.sha256);
  story.head_named = options.layer.has_value();
  story.word_named = !options.token.empty();
  Sentence plain = read_sentence(model, text, {.hide = {}, .truncate = options.truncate}, runtime);
  std::optional<Index> word;
  if (story.word_named) word = word_index(plain.words, options.token);
  story.telling = telling_heads(plain, story.sha256, word, runtime);
  const auto chosen = std::find_if(story.telling.heads.begin(), story.telling.heads.end(), [&](const Listening& one) {
    return !options.layer || (one.layer == *options.layer && one.head == *options.head);
  });
  if (chosen == story.telling.heads.end()) throw std::invalid_argument("the model has no heads");
  story.chosen = *chosen;

  story.row = sentence_row(model, plain, story.chosen.layer, story.chosen.head, story.chosen.word);
  story.heard = story.chosen.target;
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
