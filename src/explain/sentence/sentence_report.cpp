// SPDX-License-Identifier: Apache-2.0
//
// A sentence's analysis: the most informative head and word, their row, and the same row before words were hidden.
//
//     read_sentence (nothing hidden) → ranked_heads → sentence_row → expand_dot, softmax_term
//     encode (each other word hidden individually) ──→ cosine: how much the word's vector changes
//     read_sentence (words hidden)   ────────────────→ sentence_row: the row after hiding, next to the row before
//
// Read next: include/regard/explain/sentence_report.h, sentence_details.cpp, sentence_text.cpp.
#include "regard/explain/sentence_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "regard/error.h"
#include "regard/explain/steps.h"
#include "regard/parallel.h"

namespace regard::inline v0 {
namespace {

std::string model_name(const SentenceModel& model, std::string_view sha256) {
  if (sha256 == minilm_sha256()) return "all-MiniLM-L6-v2";
  std::string_view folder = model.folder;
  while (folder.size() > 1 && folder.ends_with('/')) folder.remove_suffix(1);
  return std::string(folder.substr(folder.rfind('/') + 1));
}

void check_head(const ModelExtents& config, const SentenceAnalysisOptions& options) {
  if (options.layer.has_value() != options.head.has_value()) {
    throw InvalidArgument("a head is named by its layer and its index in that layer; give both or neither");
  }
  if (!options.layer) return;
  if (*options.layer < 0 || *options.layer >= config.num_layers || *options.head < 0 ||
      *options.head >= config.num_heads) {
    throw InvalidArgument(fmt::format("L{}H{} does not exist; layers are 0 to {}, heads 0 to {}", *options.layer,
                                      *options.head, config.num_layers - 1, config.num_heads - 1));
  }
}

// The word attended to most; a word of the text if any is visible.
Index most_attended(const SentenceRow& row) {
  const RowKey* best = nullptr;
  for (const RowKey& key : row.keys) {
    if (key.hidden || key.later) continue;
    const bool better = best == nullptr || (best->special != key.special ? best->special : key.weight > best->weight);
    if (better) best = &key;
  }
  return best == nullptr ? row.word : best->word;
}

// The pieces of two words with the largest weight: the index among the row's queries, and the token.
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

// The other visible words of the text, at most kMaxHiddenWords: those with the largest weights.
std::vector<Index> words_to_hide(const SentenceAnalysis& analysis, Index& left_out) {
  std::vector<Index> words;
  for (const RowKey& key : analysis.row.keys) {
    if (!key.special && !key.later && key.word != analysis.chosen.word) words.push_back(key.word);
  }
  std::sort(words.begin(), words.end(), [&](Index a, Index b) {
    const auto weight = [&](Index word) { return analysis.row.keys[static_cast<std::size_t>(word)].weight; };
    return weight(a) != weight(b) ? weight(a) > weight(b) : a < b;
  });
  left_out = std::max<Index>(0, static_cast<Index>(words.size()) - kMaxHiddenWords);
  words.resize(words.size() - static_cast<std::size_t>(left_out));
  return words;
}

void hide_each_alone(const SentenceModel& model, const Sentence& sentence, SentenceAnalysis& analysis,
                     const Runtime& runtime) {
  const std::vector<Index> words = words_to_hide(analysis, analysis.not_hidden_alone);
  const std::vector<float> whole = word_vector(sentence, sentence.trace.output(), analysis.chosen.word);
  const std::vector<Index>& rows = sentence.words[static_cast<std::size_t>(analysis.chosen.word)].tokens;
  analysis.alone.resize(words.size());
  std::atomic<Index> done = 0;
  Runtime each = runtime;
  each.progress = {};
  parallel_for(
      static_cast<Index>(words.size()),
      [&](Index i, const Runtime& one) {
        const Index word = words[static_cast<std::size_t>(i)];
        const ModelTrace trace =
            model.trace(sentence.tokens.ids, sentence.words[static_cast<std::size_t>(word)].tokens, one, rows);
        const double similarity = cosine(mean_rows(trace.output(), rows), whole);
        if (!std::isfinite(similarity)) {
          throw DataError(fmt::format(
              "{}: with token {} hidden, the output is not finite: parameters are too large or not finite, so "
              "there are no values to show for this text",
              escape_for_terminal(model.folder), sentence.words[static_cast<std::size_t>(word)].tokens.front()));
        }
        analysis.alone[static_cast<std::size_t>(i)] = {word, similarity};
        if (runtime.progress) runtime.progress(++done, static_cast<Index>(words.size()));
      },
      each);
  std::sort(analysis.alone.begin(), analysis.alone.end(), [](const HiddenWord& a, const HiddenWord& b) {
    return a.cosine != b.cosine ? a.cosine < b.cosine : a.word < b.word;
  });
}

}  // namespace

PairInHeads pair_in_heads(const SentenceAnalysis& analysis) {
  const auto [layers, heads, words] = analysis.attention.shape();
  const double count = static_cast<double>(layers * heads);
  PairInHeads pair;
  for (Index layer = 0; layer < layers; ++layer) {
    for (Index head = 0; head < heads; ++head) {
      pair.mean += analysis.attention(layer, head, analysis.chosen.target) / count;
      for (Index w = 0; w < words; ++w) {
        if (analysis.sentence.words[static_cast<std::size_t>(w)].special)
          pair.special += analysis.attention(layer, head, w) / count;
      }
    }
  }
  const Index visible = analysis.extents.causal ? analysis.chosen.word + 1  // each word has one token
                                                : static_cast<Index>(analysis.sentence.tokens.ids.size());
  pair.uniform =
      static_cast<double>(analysis.sentence.words[static_cast<std::size_t>(analysis.chosen.target)].tokens.size()) /
      static_cast<double>(visible);
  return pair;
}

SentenceAnalysis analyze_sentence(const SentenceModel& model, std::string_view text,
                                  const SentenceAnalysisOptions& options, const Runtime& asked) {
  Runtime runtime = asked;
  runtime.progress = {};  // progress counts only the passes with one hidden word
  check_head(model.extents(), options);
  SentenceAnalysis analysis;
  analysis.extents = model.extents();
  analysis.sha256 = model.sha256(runtime.stop);
  analysis.model = model_name(model, analysis.sha256);
  analysis.head_named = options.layer.has_value();
  analysis.word_named = !options.query.empty();
  const std::string only = options.only_query ? options.query : "";
  Sentence plain = read_sentence(model, text, {.hide = {}, .truncate = options.truncate, .only = only}, runtime);
  check_has_words(plain.words);
  std::optional<Index> word;
  if (analysis.word_named) word = word_index(plain.words, options.query);
  analysis.ranked_heads = ranked_heads(plain, analysis.sha256, word, runtime);
  const auto chosen = std::find_if(
      analysis.ranked_heads.heads.begin(), analysis.ranked_heads.heads.end(), [&](const AttentionPair& one) {
        return !options.layer || (one.layer == *options.layer && one.head == *options.head);
      });
  if (chosen == analysis.ranked_heads.heads.end()) throw InvalidArgument("the model has no heads");
  analysis.chosen = *chosen;

  analysis.row = sentence_row(model, plain, analysis.chosen.layer, analysis.chosen.head, analysis.chosen.word);
  analysis.attended = analysis.chosen.target;
  analysis.attention = word_attention(plain, analysis.chosen.word, runtime);
  if (options.hide_each) hide_each_alone(model, plain, analysis, asked);
  if (options.hide.empty()) {
    analysis.sentence = std::move(plain);
  } else {
    analysis.before = std::move(analysis.row);
    analysis.sentence =
        read_sentence(model, text, {.hide = options.hide, .truncate = options.truncate, .only = only}, runtime);
    analysis.row =
        sentence_row(model, analysis.sentence, analysis.chosen.layer, analysis.chosen.head, analysis.chosen.word);
    if (analysis.row.keys[static_cast<std::size_t>(analysis.attended)].hidden)
      analysis.attended = most_attended(analysis.row);
    for (std::size_t layer = 0; layer < plain.trace.layers.size(); ++layer) {
      analysis.kept.push_back(
          cosine(word_vector(plain, plain.trace.layers[layer].output, analysis.chosen.word),
                 word_vector(analysis.sentence, analysis.sentence.trace.layers[layer].output, analysis.chosen.word)));
    }
  }
  const auto [query, key] = closest_pieces(analysis.sentence, analysis.row, analysis.attended);
  analysis.dot = expand_dot(analysis.sentence, analysis.row, query, key);
  analysis.term = softmax_term(analysis.row, query, key);
  if (options.full) analysis.details = sentence_details(model, analysis.sentence, analysis.row, query, key);
  return analysis;
}

}  // namespace regard::inline v0
