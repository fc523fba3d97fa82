// SPDX-License-Identifier: Apache-2.0
//
// A sentence's analysis as JSON: the content of the screen in full, and how it was computed.
// docs/guide/sentence.md lists the fields. Read next: include/regard/explain/sentence_report.h, sentence_json.h.
#include "sentence_json.h"
#include "regard/explain/sentence_report.h"

namespace regard::inline v0 {
namespace {

class AnalysisWriter {
 public:
  AnalysisWriter(const SentenceAnalysis& analysis, const std::stop_token& stop)
      : s_(analysis), json_(json_style(ElementType::float64), stop) {}

  std::string make(const SentenceJsonOptions& options) {
    json_.begin_object();
    source(options);
    sentence();
    findings();
    chosen();
    row("row", s_.row);
    if (s_.before) row("before", *s_.before);
    if (!s_.kept.empty()) json_.numbers("cosine_with_before", s_.kept);
    expanded();
    evidence();
    heads();
    if (s_.details) work(*s_.details);
    json_.end_object();
    return json_.take();
  }

 private:
  void source(const SentenceJsonOptions& options) {
    json_.source(options.command);
    json_.name("model");
    json_.begin_object();
    json_.string("name", s_.model);
    json_.string("sha256", s_.sha256);
    json_.whole("layers", s_.extents.num_layers);
    json_.whole("heads", s_.extents.num_heads);
    json_.whole("head_size", s_.extents.head_size);
    json_.whole("width", s_.extents.width);
    if (s_.extents.causal) json_.boolean("causal", true);
    json_.end_object();
  }

  void sentence() {
    const Sentence& sentence = s_.sentence;
    json_.string("text", sentence.text);
    json_.indices("token_ids", sentence.tokens.ids);
    json_.strings("tokens", sentence.tokens.tokens, JsonLayout::one_line);
    write_words(json_, sentence.words);
    if (sentence.num_truncated_tokens > 0) json_.whole("num_truncated_tokens", sentence.num_truncated_tokens);
    json_.indices("hidden", sentence.hidden);
  }

  void findings() {
    const SentenceFindings found = sentence_findings(s_);
    json_.name("findings");
    json_.begin_object();
    json_.string("finding", found.finding);
    json_.string("selection", found.selection);
    json_.string("evidence", found.evidence);
    json_.string("association", found.association);
    json_.end_object();
  }

  // The pair in every head, and the effect of hiding each other word.
  void evidence() {
    const auto [layers, heads, words] = s_.attention.shape();
    Tensor<double, 2> weights({layers, heads});
    for (Index layer = 0; layer < layers; ++layer) {
      for (Index head = 0; head < heads; ++head) weights(layer, head) = s_.attention(layer, head, s_.chosen.target);
    }
    const PairInHeads all = pair_in_heads(s_);
    json_.name("in_all_heads");
    json_.begin_object();
    json_.matrix("weights", weights.view());
    json_.number("mean", all.mean);
    json_.number("special", all.special);
    json_.number("uniform", all.uniform);
    json_.end_object();
    json_.objects("hidden_alone", s_.alone, [&](const HiddenWord& one) {
      json_.whole("word", one.word);
      json_.number("cosine", one.cosine);
    });
    json_.whole("not_hidden_alone", s_.not_hidden_alone);
  }

  void pair(const AttentionPair& one) {
    json_.whole("layer", one.layer);
    json_.whole("head", one.head);
    json_.whole("word", one.word);
    json_.whole("target", one.target);
    json_.number("weight", one.weight);
    json_.number("baseline", one.baseline);
    json_.number("salience", one.salience());
  }
  void chosen() {
    json_.name("chosen");
    json_.begin_object();
    pair(s_.chosen);
    json_.boolean("head_named", s_.head_named);
    json_.boolean("word_named", s_.word_named);
    json_.end_object();
  }
  void heads() {
    json_.name("ranked_heads");
    json_.begin_object();
    json_.string("baseline", s_.ranked_heads.baseline == Baseline::test_sentences ? "test_sentences" : "this_sentence");
    json_.objects("heads", s_.ranked_heads.heads, [&](const AttentionPair& one) { pair(one); });
    json_.end_object();
  }

  void row(std::string_view name, const SentenceRow& r) {
    json_.name(name);
    json_.begin_object();
    json_.objects("words", r.keys, [&](const RowKey& key) {
      json_.whole("word", key.word);
      json_.boolean("special", key.special);
      json_.boolean("hidden", key.hidden);
      if (s_.extents.causal) json_.boolean("later", key.later);
      json_.number("weight", key.weight);
      json_.number("contribution", key.contribution);
    });
    json_.indices("queries", r.queries);
    json_.matrix("q_dot_k", r.dots.view());
    json_.matrix("scores", r.scores.view());
    json_.matrix("weights", r.weights.view());
    json_.numbers("context", r.context);
    json_.number("head_contribution", r.head_contribution);
    json_.number("heads_contribution", r.heads_contribution);
    json_.number("input_norm", r.input_norm);
    json_.end_object();
  }

  void terms(std::string_view name, const std::vector<DotTerm>& all, std::string_view first, std::string_view second) {
    json_.objects(name, all, [&](const DotTerm& term) {
      json_.whole("dimension", term.dimension);
      json_.number(first, term.query);
      json_.number(second, term.key);
      json_.number("product", term.product);
    });
  }
  void expanded() {
    json_.name("expanded");
    json_.begin_object();
    json_.whole("word", s_.attended);
    json_.whole("query_token", s_.dot.query);
    json_.whole("key_token", s_.dot.key);
    json_.number("q_dot_k", s_.dot.dot);
    terms("products", s_.dot.terms, "query", "key");
    json_.number("score", s_.term.score);
    json_.number("shift", s_.term.shift);
    json_.number("exponential", s_.term.exponential);
    json_.number("sum", s_.term.sum);
    json_.number("weight", s_.term.weight);
    json_.end_object();
  }

  template <class T>
  void vector(std::string_view name, const std::vector<T>& numbers) {
    json_.numbers(name, std::vector<double>(numbers.begin(), numbers.end()));
  }
  void norm(std::string_view name, const NormDetails& one) {
    json_.name(name);
    json_.begin_object();
    json_.number("mean", one.mean);
    json_.number("deviation", one.deviation);
    json_.end_object();
  }
  void projection(std::string_view name, const std::vector<ProjectedElement>& numbers) {
    json_.objects(name, numbers, [&](const ProjectedElement& number) {
      terms("largest", number.largest, "x", "parameter");
      json_.number("others", number.others);
      json_.number("bias", number.bias);
      json_.number("value", number.value);
    });
  }
  void work(const SentenceDetails& w) {
    json_.name("full");
    json_.begin_object();
    json_.whole("query_token", w.query);
    json_.whole("key_token", w.key);
    vector("word", w.word);
    if (!w.position.empty()) vector("position", w.position);
    if (!s_.extents.causal) {
      vector("type", w.type);
      norm("embedding_norm", w.embedding_norm);
    }
    vector("embedded", w.embedded);
    vector("input", w.input);
    if (s_.extents.causal) {
      norm("input_norm", w.input_norm);
      vector("attention_input", w.attention_input);
      json_.boolean("rotated", w.rotated);
    }
    projection("query", w.query_elements);
    projection("key", w.key_elements);
    projection("value", w.value_elements);
    vector("context", w.context);
    vector("head_share", w.head_share);
    vector("other_heads", w.other_heads);
    if (!w.b_output.empty()) vector("b_output", w.b_output);
    vector("attention_output", w.attention_output);
    if (s_.extents.causal) vector("residual", w.residual);
    if (!w.attention_normed.empty()) {
      norm("attention_norm", w.attention_norm);
      vector("attention_normed", w.attention_normed);
    }
    json_.objects("feed_forward_units", w.units, [&](const FeedForwardUnit& unit) {
      json_.whole("unit", unit.unit);
      if (w.activation == "swiglu") json_.number("gate", unit.gate);
      json_.number("before", unit.before);
      json_.number("after", unit.after);
      json_.number("contribution", unit.contribution);
    });
    if (!w.feed_forward.empty()) vector("feed_forward", w.feed_forward);
    if (!s_.extents.causal) norm("output_norm", w.output_norm);
    vector("output", w.output);
    json_.end_object();
  }

  const SentenceAnalysis& s_;
  JsonWriter json_;
};

}  // namespace

std::string render_sentence_json(const SentenceAnalysis& analysis, const SentenceJsonOptions& options,
                                 const std::stop_token& stop) {
  return AnalysisWriter(analysis, stop).make(options);
}

}  // namespace regard::inline v0
