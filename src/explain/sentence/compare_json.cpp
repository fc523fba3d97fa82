// SPDX-License-Identifier: Apache-2.0
//
// A comparison as JSON; docs/guide/compare.md lists the fields.
// Read next: regard/explain/compare.h, json_style.h.
#include "explain/report/json_style.h"
#include "regard/explain/compare.h"
#include "sentence_json.h"

namespace regard::inline v0 {
namespace {

void write_sentence(JsonWriter& json, const ComparedSentence& sentence) {
  json.string("name", sentence.name);
  json.string("text", sentence.text);
  json.indices("ids", sentence.tokens.ids);
  json.strings("tokens", sentence.tokens.tokens, JsonLayout::one_line);
  write_words(json, sentence.words);
  json.whole("word", sentence.word);
  json.indices("hidden", sentence.hidden);
  json.whole("num_truncated_tokens", sentence.num_truncated_tokens);
}

void write_pair(JsonWriter& json, const Comparison& c, const ComparedPair& pair) {
  json.name("sentences");
  json.begin_array(JsonLayout::one_line);
  json.string(c.sentences[static_cast<std::size_t>(pair.first)].name);
  json.string(c.sentences[static_cast<std::size_t>(pair.second)].name);
  json.end_array();
  json.numbers("cosine", pair.cosine);
  json.numbers("above_floor", pair.above_floor);
  json.objects("controls", pair.controls, [&](const ControlWord& control) {
    json.string("word", control.text);
    json.numbers("cosine", control.cosine);
  });
  json.numbers("difference", pair.difference);
  json.matrix("share", pair.share.view());
}

void write_compared(JsonWriter& json, const Comparison& c, const CompareNumbers& numbers) {
  json.numbers("floor", numbers.floor);
  json.whole("floor_pairs", numbers.floor_pairs);
  json.objects("pairs", numbers.pairs, [&](const ComparedPair& pair) { write_pair(json, c, pair); });
  json.name("attention");
  json.begin_array();
  for (const Tensor<double, 3>& attention : numbers.attention) {
    const auto [layers, heads, words] = attention.shape();
    json.begin_array();
    for (Index layer = 0; layer < layers; ++layer) {
      json.begin_array();
      for (Index head = 0; head < heads; ++head) {
        json.begin_array(JsonLayout::one_line);
        for (Index word = 0; word < words; ++word) json.number(attention(layer, head, word));
        json.end_array();
      }
      json.end_array();
    }
    json.end_array();
  }
  json.end_array();
}

}  // namespace

std::string render_compare_json(const Comparison& c, std::string_view command, const std::stop_token& stop) {
  JsonWriter json(json_style(ElementType::float64), stop);
  json.begin_object();
  write_source(json, command, c.model_folder, c.model_sha256);
  json.string("word", c.word);
  json.strings("findings", compare_findings(c));
  json.objects("sentences", c.sentences, [&](const ComparedSentence& sentence) { write_sentence(json, sentence); });
  json.strings("stages", c.stages, JsonLayout::one_line);
  write_compared(json, c, c.plain);
  if (c.hidden) {
    json.name("hidden");
    json.begin_object();
    json.strings("words", c.hide, JsonLayout::one_line);
    write_compared(json, c, *c.hidden);
    json.objects("others", c.others, [&](const OtherHidden& other) {
      json.string("word", other.text);
      json.numbers("cosine", other.cosine);
    });
    json.whole("others_left_out", c.others_left_out);
    json.end_object();
  }
  json.end_object();
  return json.take();
}

}  // namespace regard::inline v0
