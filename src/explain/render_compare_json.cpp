// SPDX-License-Identifier: Apache-2.0
//
// A comparison as JSON; docs/compare.md lists the fields.
// Read next: regard/compare.h, json_text.h.
#include "json_text.h"
#include "regard/compare.h"
#include "regard/runtime.h"
#include "sentence_json.h"

namespace regard {
inline namespace v0 {
namespace {

void write_sentence(JsonWriter& json, const ComparedSentence& sentence) {
  json.begin_object();
  json.string("name", sentence.name);
  json.string("text", sentence.text);
  json.indices("ids", sentence.tokens.ids);
  json.strings("tokens", sentence.tokens.tokens, true);
  write_words(json, sentence.words);
  json.name("word");
  json.whole(sentence.word);
  json.indices("hidden", sentence.hidden);
  json.name("cut_tokens");
  json.whole(sentence.cut_tokens);
  json.end_object();
}

void write_pair(JsonWriter& json, const Comparison& c, const ComparedPair& pair) {
  json.begin_object();
  json.name("sentences");
  json.begin_array(true);
  json.string(c.sentences[static_cast<std::size_t>(pair.first)].name);
  json.string(c.sentences[static_cast<std::size_t>(pair.second)].name);
  json.end_array();
  json.numbers("cosine", pair.cosine);
  json.numbers("above_floor", pair.above_floor);
  json.name("controls");
  json.begin_array();
  for (const ControlWord& control : pair.controls) {
    json.begin_object();
    json.string("word", control.text);
    json.numbers("cosine", control.cosine);
    json.end_object();
  }
  json.end_array();
  json.numbers("difference", pair.difference);
  json.name("share");
  json.begin_array();
  const auto [layers, heads] = pair.share.shape();
  for (Index layer = 0; layer < layers; ++layer) {
    json.begin_array(true);
    for (Index head = 0; head < heads; ++head) json.number(pair.share(layer, head));
    json.end_array();
  }
  json.end_array();
  json.end_object();
}

void write_compared(JsonWriter& json, const Comparison& c, const CompareNumbers& numbers) {
  json.numbers("floor", numbers.floor);
  json.name("floor_pairs");
  json.whole(numbers.floor_pairs);
  json.name("pairs");
  json.begin_array();
  for (const ComparedPair& pair : numbers.pairs) write_pair(json, c, pair);
  json.end_array();
  json.name("attention");
  json.begin_array();
  for (const Tensor<double, 3>& attention : numbers.attention) {
    const auto [layers, heads, words] = attention.shape();
    json.begin_array();
    for (Index layer = 0; layer < layers; ++layer) {
      json.begin_array();
      for (Index head = 0; head < heads; ++head) {
        json.begin_array(true);
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

std::string render_compare_json(const Comparison& c, std::string_view command) {
  JsonWriter json(NumberType::f64);
  json.begin_object();
  write_source(json, command, c.model_folder, c.model_sha256);
  json.string("word", c.word);
  json.strings("findings", compare_findings(c));
  json.name("sentences");
  json.begin_array();
  for (const ComparedSentence& sentence : c.sentences) write_sentence(json, sentence);
  json.end_array();
  json.strings("stages", c.stages, true);
  write_compared(json, c, c.plain);
  if (c.hidden) {
    json.name("hidden");
    json.begin_object();
    json.strings("words", c.hide, true);
    write_compared(json, c, *c.hidden);
    json.name("others");
    json.begin_array();
    for (const OtherHidden& other : c.others) {
      json.begin_object();
      json.string("word", other.text);
      json.numbers("cosine", other.cosine);
      json.end_object();
    }
    json.end_array();
    json.name("others_left_out");
    json.whole(c.others_left_out);
    json.end_object();
  }
  json.end_object();
  return json.take();
}

}  // namespace v0
}  // namespace regard
