// SPDX-License-Identifier: Apache-2.0
//
// config.json of a decoder. A description that Llama covers is written as Llama's, so that transformers reads it;
// any other has a model_type of its own and three more fields.
//
//     model_type "llama"             norm rms, positions rotary, feed_forward swiglu, no biases
//     model_type "regard_decoder"    norm, positions, feed_forward and biases are fields
//
// Read next: regard/model/decoder.h, regard/io/json_fields.h.
#include <fmt/format.h>

#include <array>

#include "regard/error.h"
#include "regard/io/json_fields.h"
#include "regard/io/json_writer.h"
#include "regard/io/utf8.h"
#include "regard/model/decoder.h"

namespace regard::inline v0 {
namespace {

constexpr std::array<std::string_view, 2> kModelTypes{"llama", "regard_decoder"};

// A whole number of config.json.
struct DecoderExtent {
  std::string_view name;
  Index DecoderConfig::* member;
  bool has_default;  // absent: 0, which completed() replaces
};

constexpr std::array<DecoderExtent, 8> kDecoderExtents{
    {{"vocab_size", &DecoderConfig::vocabulary, false},
     {"hidden_size", &DecoderConfig::width, false},
     {"intermediate_size", &DecoderConfig::feed_forward, false},
     {"num_hidden_layers", &DecoderConfig::num_layers, false},
     {"num_attention_heads", &DecoderConfig::num_heads, false},
     {"num_key_value_heads", &DecoderConfig::num_kv_heads, true},
     {"head_dim", &DecoderConfig::head_size, true},
     {"max_position_embeddings", &DecoderConfig::max_positions, false}}};

bool is_llama(const DecoderConfig& c) {
  return c.norm == NormKind::rms && c.positions == PositionKind::rotary &&
         c.feed_forward_kind == FeedForwardKind::swiglu && !c.biases;
}

// Each norm has the field name that models of transformers with that norm use.
std::string_view epsilon_field(NormKind norm) { return norm == NormKind::rms ? "rms_norm_eps" : "layer_norm_eps"; }

template <class Enum, std::size_t Count>
std::string_view name_of(Enum value, const std::array<std::string_view, Count>& names) {
  return names[static_cast<std::size_t>(value)];
}

// Fields of Llama that change the computation. They may be absent or null, or have the one value that is supported.
void check_llama_fields(const JsonFields& fields) {
  const auto check = [&](std::string_view name, std::string_view supported, auto is_supported) {
    const JsonValue* value = fields.find(name);
    if (value == nullptr || value->kind() == JsonValue::Kind::null || is_supported(*value)) return;
    fields.fail(*value, fmt::format("{} is {}; only {} is supported", name, JsonFields::shown(*value), supported));
  };
  const auto is_false = [](const JsonValue& v) { return v.kind() == JsonValue::Kind::boolean && !v.boolean(); };
  check("hidden_act", "\"silu\"", [](const JsonValue& v) { return v.text() == "silu"; });
  check("attention_bias", "false", is_false);
  check("mlp_bias", "false", is_false);
  check("rope_scaling", "null", [](const JsonValue&) { return false; });
}

}  // namespace

std::string decoder_config_json(const DecoderConfig& config) {
  const DecoderConfig c = completed(config);
  const bool llama = is_llama(c);
  JsonWriter json;
  json.begin_object();
  json.string("model_type", kModelTypes[llama ? 0 : 1]);
  if (llama) json.list("architectures", std::array{std::string_view("LlamaForCausalLM")});
  for (const DecoderExtent& extent : kDecoderExtents) json.whole(extent.name, c.*extent.member);
  json.number(epsilon_field(c.norm), c.norm_epsilon);
  json.number("rope_theta", c.rotary_base);
  json.boolean("tie_word_embeddings", c.tied);
  if (llama) {
    json.string("hidden_act", "silu");
    json.boolean("attention_bias", false);
    json.boolean("mlp_bias", false);
    // Llama's own tokens 1 and 2 are ordinary ones here: generation does not stop at them.
    json.null("bos_token_id");
    json.null("eos_token_id");
  } else {
    json.string("norm", name_of(c.norm, kNormNames));
    json.string("positions", name_of(c.positions, kPositionNames));
    json.string("feed_forward", name_of(c.feed_forward_kind, kFeedForwardNames));
    json.boolean("biases", c.biases);
  }
  json.string("torch_dtype", "float32");
  json.end_object();
  return json.take();
}

DecoderConfig parse_decoder_config(std::string_view text, const std::string& source) {
  const JsonValue root = read_json(text, source);
  const JsonFields fields(source, root);
  DecoderConfig config;
  const bool llama = fields.word("model_type", kModelTypes) == 0;
  if (llama) {
    check_llama_fields(fields);
    config.norm = NormKind::rms;
    config.positions = PositionKind::rotary;
    config.feed_forward_kind = FeedForwardKind::swiglu;
    config.tied = fields.find("tie_word_embeddings") != nullptr && fields.boolean("tie_word_embeddings");
  } else {
    config.norm = fields.enumerator<NormKind>("norm", kNormNames);
    config.positions = fields.enumerator<PositionKind>("positions", kPositionNames);
    config.feed_forward_kind = fields.enumerator<FeedForwardKind>("feed_forward", kFeedForwardNames);
    config.biases = fields.boolean("biases");
    config.tied = fields.boolean("tie_word_embeddings");
  }
  for (const DecoderExtent& extent : kDecoderExtents) {
    if (extent.has_default && fields.find(extent.name) == nullptr) continue;
    const bool may_be_0 =
        extent.member == &DecoderConfig::feed_forward && config.feed_forward_kind == FeedForwardKind::none;
    config.*extent.member = fields.whole(extent.name, may_be_0 ? 0 : 1, Index{1} << 24);
  }
  config.norm_epsilon = fields.number(epsilon_field(config.norm));
  config.rotary_base = fields.number("rope_theta");
  try {
    return completed(config);
  } catch (const InvalidArgument& error) {
    throw DataError(fmt::format("{}: {}", escape_for_terminal(source), error.what()));
  }
}

}  // namespace regard::inline v0
