// SPDX-License-Identifier: Apache-2.0
//
// The description of a decoder: defaults, rejections, the list of its parameters, and its config.json.
// Read next: src/model/decoder/decoder_config.cpp, decoder_json.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "regard/error.h"
#include "regard/model/decoder.h"
#include "support/rejection.h"

namespace regard::decoder_config_test {
namespace {

const DecoderConfig kSmall{.vocabulary = 65, .num_layers = 2, .num_heads = 4, .width = 24, .max_positions = 64};

// "name (extents)" of each parameter.
std::vector<std::string> lines(const DecoderConfig& config) {
  std::vector<std::string> lines;
  for (const DecoderParameter& parameter : decoder_parameters(config)) {
    std::string line = parameter.name + " (";
    for (std::size_t axis = 0; axis < parameter.shape.size(); ++axis) {
      line += (axis > 0 ? ", " : "") + std::to_string(parameter.shape[axis]);
    }
    lines.push_back(line + ")");
  }
  return lines;
}

TEST(DecoderConfig, FeedForwardLayersHaveTheActivationOfTheirName) {
  EXPECT_EQ(activation_of(FeedForwardKind::relu), Activation::relu);
  EXPECT_EQ(activation_of(FeedForwardKind::gelu), Activation::gelu);
  EXPECT_EQ(activation_of(FeedForwardKind::gelu_tanh), Activation::gelu_tanh);
  EXPECT_EQ(activation_of(FeedForwardKind::swiglu), Activation::none);
  EXPECT_EQ(activation_of(FeedForwardKind::none), Activation::none);
}

TEST(DecoderConfig, CompletesWhatIsZero) {
  const DecoderConfig c = completed(kSmall);
  EXPECT_EQ(c.num_kv_heads, 4);
  EXPECT_EQ(c.head_size, 6);
  EXPECT_EQ(c.feed_forward, 96);
  EXPECT_EQ(completed(c), c);

  DecoderConfig swiglu = kSmall;
  swiglu.feed_forward_kind = FeedForwardKind::swiglu;
  for (const auto& [width, expected] : {std::pair<Index, Index>{24, 64}, {28, 80}, {768, 2048}, {4096, 10928}}) {
    swiglu.width = width;
    EXPECT_EQ(completed(swiglu).feed_forward, expected) << width;
    EXPECT_GE(3 * expected, 8 * width);
    EXPECT_LT(3 * (expected - 8), 8 * width);
  }
  DecoderConfig none = kSmall;
  none.feed_forward_kind = FeedForwardKind::none;
  EXPECT_EQ(completed(none).feed_forward, 0);
}

TEST(DecoderConfig, KeepsWhatIsGiven) {
  DecoderConfig c = kSmall;
  c.num_kv_heads = 2;
  c.head_size = 10;
  c.feed_forward = 7;
  EXPECT_EQ(completed(c), c);
}

TEST(DecoderConfig, ListsParametersInTheOrderOfTraining) {
  const DecoderConfig attention_only{.vocabulary = 16,
                                     .num_layers = 1,
                                     .num_heads = 2,
                                     .width = 8,
                                     .max_positions = 4,
                                     .feed_forward_kind = FeedForwardKind::none};
  EXPECT_EQ(lines(attention_only),
            (std::vector<std::string>{
                "model.embed_tokens.weight (16, 8)", "model.embed_positions.weight (4, 8)",
                "model.layers.0.input_layernorm.weight (8)", "model.layers.0.self_attn.q_proj.weight (8, 8)",
                "model.layers.0.self_attn.k_proj.weight (8, 8)", "model.layers.0.self_attn.v_proj.weight (8, 8)",
                "model.layers.0.self_attn.o_proj.weight (8, 8)", "model.norm.weight (8)"}));

  const DecoderConfig llama{.vocabulary = 16,
                            .num_heads = 4,
                            .num_kv_heads = 2,
                            .width = 8,
                            .head_size = 6,
                            .feed_forward = 20,
                            .max_positions = 4,
                            .norm = NormKind::rms,
                            .positions = PositionKind::rotary,
                            .feed_forward_kind = FeedForwardKind::swiglu,
                            .tied = false};
  EXPECT_EQ(lines(llama),
            (std::vector<std::string>{
                "model.embed_tokens.weight (16, 8)", "model.layers.0.input_layernorm.weight (8)",
                "model.layers.0.self_attn.q_proj.weight (24, 8)", "model.layers.0.self_attn.k_proj.weight (12, 8)",
                "model.layers.0.self_attn.v_proj.weight (12, 8)", "model.layers.0.self_attn.o_proj.weight (8, 24)",
                "model.layers.0.post_attention_layernorm.weight (8)", "model.layers.0.mlp.gate_proj.weight (20, 8)",
                "model.layers.0.mlp.up_proj.weight (20, 8)", "model.layers.0.mlp.down_proj.weight (8, 20)",
                "model.norm.weight (8)", "lm_head.weight (16, 8)"}));
}

TEST(DecoderConfig, BiasesFollowTheMatricesOfTheirGroup) {
  DecoderConfig c = kSmall;
  c.num_layers = 1;
  c.biases = true;
  c.feed_forward = 50;
  c.feed_forward_kind = FeedForwardKind::swiglu;
  EXPECT_EQ(lines(c), (std::vector<std::string>{"model.embed_tokens.weight (65, 24)",
                                                "model.embed_positions.weight (64, 24)",
                                                "model.layers.0.input_layernorm.weight (24)",
                                                "model.layers.0.input_layernorm.bias (24)",
                                                "model.layers.0.self_attn.q_proj.weight (24, 24)",
                                                "model.layers.0.self_attn.k_proj.weight (24, 24)",
                                                "model.layers.0.self_attn.v_proj.weight (24, 24)",
                                                "model.layers.0.self_attn.q_proj.bias (24)",
                                                "model.layers.0.self_attn.k_proj.bias (24)",
                                                "model.layers.0.self_attn.v_proj.bias (24)",
                                                "model.layers.0.self_attn.o_proj.weight (24, 24)",
                                                "model.layers.0.self_attn.o_proj.bias (24)",
                                                "model.layers.0.post_attention_layernorm.weight (24)",
                                                "model.layers.0.post_attention_layernorm.bias (24)",
                                                "model.layers.0.mlp.gate_proj.weight (50, 24)",
                                                "model.layers.0.mlp.up_proj.weight (50, 24)",
                                                "model.layers.0.mlp.gate_proj.bias (50)",
                                                "model.layers.0.mlp.up_proj.bias (50)",
                                                "model.layers.0.mlp.down_proj.weight (24, 50)",
                                                "model.layers.0.mlp.down_proj.bias (24)",
                                                "model.norm.weight (24)",
                                                "model.norm.bias (24)"}));
  // RMS norm has no bias; a feed-forward layer without a gate has one matrix and one bias less.
  c.norm = NormKind::rms;
  EXPECT_EQ(lines(c).size(), 22u - 3);
  c.feed_forward_kind = FeedForwardKind::gelu;
  EXPECT_EQ(lines(c).size(), 22u - 3 - 2);
}

TEST(DecoderConfig, KindsAndLayersOfParameters) {
  DecoderConfig c = kSmall;
  c.biases = true;
  c.tied = false;
  std::set<std::string> names;
  for (const DecoderParameter& p : decoder_parameters(c)) {
    EXPECT_TRUE(names.insert(p.name).second) << p.name;
    const auto has = [&](std::string_view part) { return p.name.find(part) != std::string::npos; };
    EXPECT_EQ(p.layer, has("layers.0.") ? 0 : has("layers.1.") ? 1 : -1) << p.name;
    const ParameterKind expected = has(".bias")                        ? ParameterKind::bias
                                   : has("norm")                       ? ParameterKind::gain
                                   : has("embed_tokens")               ? ParameterKind::table
                                   : has("embed_positions")            ? ParameterKind::positions
                                   : has("lm_head")                    ? ParameterKind::output
                                   : has("o_proj") || has("down_proj") ? ParameterKind::residual
                                                                       : ParameterKind::projection;
    EXPECT_EQ(p.kind, expected) << p.name;
  }
}

TEST(DecoderConfig, SizeIsTheSumOfAllParameters) {
  for (bool biases : {false, true}) {
    for (bool tied : {false, true}) {
      for (NormKind norm : {NormKind::layer, NormKind::rms}) {
        for (PositionKind positions : {PositionKind::learned, PositionKind::rotary, PositionKind::none}) {
          for (FeedForwardKind kind : {FeedForwardKind::none, FeedForwardKind::relu, FeedForwardKind::gelu,
                                       FeedForwardKind::gelu_tanh, FeedForwardKind::swiglu}) {
            DecoderConfig c = kSmall;
            c.num_kv_heads = 2;
            c.norm = norm;
            c.positions = positions;
            c.feed_forward_kind = kind;
            c.tied = tied;
            c.biases = biases;
            Index sum = 0;
            for (const DecoderParameter& parameter : decoder_parameters(c)) sum += parameter.size();
            EXPECT_EQ(decoder_size(c), sum);
          }
        }
      }
    }
  }
}

// The shape of GPT-2: 124,439,808 parameters.
TEST(DecoderConfig, SizeOfGpt2) {
  const DecoderConfig gpt2{
      .vocabulary = 50257, .num_layers = 12, .num_heads = 12, .width = 768, .max_positions = 1024, .biases = true};
  EXPECT_EQ(decoder_size(gpt2), 124439808);
}

TEST(DecoderConfig, RejectsWhatIsOutOfRange) {
  const auto message = [](auto change) {
    DecoderConfig c = kSmall;
    change(c);
    const std::string text = rejection([&] { completed(c); });
    EXPECT_EQ(rejection([&] { decoder_parameters(c); }), text);
    EXPECT_EQ(rejection([&] { decoder_size(c); }), text);
    return text;
  };
  using C = DecoderConfig;
  EXPECT_EQ(message([](C& c) { c.vocabulary = 0; }), "decoder: vocabulary is 0; expected 1 to 16777216");
  EXPECT_EQ(message([](C& c) { c.num_layers = 4097; }), "decoder: num_layers is 4097; expected 1 to 4096");
  EXPECT_EQ(message([](C& c) { c.num_heads = -1; }), "decoder: num_heads is -1; expected 1 to 16777216");
  EXPECT_EQ(message([](C& c) { c.width = 16777217; }), "decoder: width is 16777217; expected 1 to 16777216");
  EXPECT_EQ(message([](C& c) { c.max_positions = 0; }), "decoder: max_positions is 0; expected 1 to 16777216");
  for (Index heads : {3, -1, 8}) {
    EXPECT_EQ(message([&](C& c) { c.num_kv_heads = heads; }),
              "decoder: num_kv_heads is " + std::to_string(heads) + "; expected a divisor of num_heads, which is 4");
  }
  EXPECT_EQ(message([](C& c) { c.width = 26; }),
            "decoder: width is 26; expected a multiple of num_heads, which is 4, or a head_size");
  EXPECT_EQ(message([](C& c) { c.head_size = -2; }), "decoder: head_size is -2; expected 1 to 16777216");
  EXPECT_EQ(message([](C& c) { c.head_size = 1 << 23; }),
            "decoder: num_heads · head_size is 33554432; expected 1 to 16777216");
  EXPECT_EQ(message([](C& c) {
              c.head_size = 5;
              c.positions = PositionKind::rotary;
            }),
            "decoder: head_size is 5; expected an even number with rotary position embeddings");
  EXPECT_EQ(message([](C& c) { c.feed_forward = -1; }), "decoder: feed_forward is -1; expected 1 to 16777216");
  EXPECT_EQ(message([](C& c) {
              c.feed_forward = 8;
              c.feed_forward_kind = FeedForwardKind::none;
            }),
            "decoder: feed_forward is 8; expected 0 without feed-forward layers");
  EXPECT_EQ(message([](C& c) { c.norm_epsilon = -1e-5; }),
            "decoder: norm_epsilon is -1e-05; expected a finite number of at least 0");
  EXPECT_EQ(message([](C& c) { c.norm_epsilon = std::nan(""); }),
            "decoder: norm_epsilon is nan; expected a finite number of at least 0");
  EXPECT_EQ(message([](C& c) { c.rotary_base = 0; }), "decoder: rotary_base is 0; expected a finite number above 0");
  EXPECT_EQ(message([](C& c) { c.rotary_base = HUGE_VAL; }),
            "decoder: rotary_base is inf; expected a finite number above 0");
  EXPECT_EQ(message([](C& c) {
              c.vocabulary = 1 << 24;
              c.num_heads = 1 << 12;
              c.width = 1 << 16;
              c.num_layers = 1;
              c.feed_forward = 1;
            }),
            "decoder: the number of parameters is 1116696018944; expected at most 1099511627776");
}

const DecoderConfig kLlama{.vocabulary = 65,
                           .num_layers = 2,
                           .num_heads = 4,
                           .num_kv_heads = 2,
                           .width = 24,
                           .max_positions = 64,
                           .norm = NormKind::rms,
                           .norm_epsilon = 1e-6,
                           .positions = PositionKind::rotary,
                           .rotary_base = 5e5,
                           .feed_forward_kind = FeedForwardKind::swiglu};

TEST(DecoderJson, LlamaIsWrittenForTransformers) {
  EXPECT_EQ(decoder_config_json(kLlama), R"({
  "model_type": "llama",
  "architectures": ["LlamaForCausalLM"],
  "vocab_size": 65,
  "hidden_size": 24,
  "intermediate_size": 64,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "head_dim": 6,
  "max_position_embeddings": 64,
  "rms_norm_eps": 1e-06,
  "rope_theta": 5e+05,
  "tie_word_embeddings": true,
  "hidden_act": "silu",
  "attention_bias": false,
  "mlp_bias": false,
  "bos_token_id": null,
  "eos_token_id": null,
  "torch_dtype": "float32"
}
)");
}

TEST(DecoderJson, OtherModelsNameTheirChoices) {
  EXPECT_EQ(decoder_config_json(kSmall), R"({
  "model_type": "regard_decoder",
  "vocab_size": 65,
  "hidden_size": 24,
  "intermediate_size": 96,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "num_key_value_heads": 4,
  "head_dim": 6,
  "max_position_embeddings": 64,
  "layer_norm_eps": 1e-05,
  "rope_theta": 10000,
  "tie_word_embeddings": true,
  "norm": "layer",
  "positions": "learned",
  "feed_forward": "gelu",
  "biases": false,
  "torch_dtype": "float32"
}
)");
}

TEST(DecoderJson, ReadsWhatIsWritten) {
  int num_llama = 0;
  for (bool biases : {false, true}) {
    for (NormKind norm : {NormKind::layer, NormKind::rms}) {
      for (PositionKind positions : {PositionKind::learned, PositionKind::rotary, PositionKind::none}) {
        for (FeedForwardKind kind : {FeedForwardKind::none, FeedForwardKind::relu, FeedForwardKind::gelu,
                                     FeedForwardKind::gelu_tanh, FeedForwardKind::swiglu}) {
          DecoderConfig c = kSmall;
          c.num_kv_heads = 2;
          c.norm = norm;
          c.norm_epsilon = 0.1;
          c.positions = positions;
          c.rotary_base = 1.0 / 3;
          c.feed_forward_kind = kind;
          c.tied = biases;
          c.biases = biases;
          const std::string text = decoder_config_json(c);
          EXPECT_EQ(parse_decoder_config(text, "config.json"), completed(c)) << text;
          num_llama += text.find("llama") != std::string::npos;
        }
      }
    }
  }
  EXPECT_EQ(num_llama, 1);
}

TEST(DecoderJson, FieldsOfOtherWritersHaveDefaults) {
  // As transformers writes a configuration whose other fields have Llama's default values.
  const DecoderConfig c = parse_decoder_config(
      R"({"model_type": "llama", "vocab_size": 100, "hidden_size": 32, "intermediate_size": 40,
          "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 16, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "rope_scaling": null, "initializer_range": 0.02, "use_cache": true})",
      "config.json");
  EXPECT_EQ(c.num_kv_heads, 4);
  EXPECT_EQ(c.head_size, 8);
  EXPECT_FALSE(c.tied);
}

// The message for a config.json in which one piece is replaced by another. Its offset lies in that piece, and is
// returned as "*".
std::string json_rejection(const DecoderConfig& config, std::string_view piece, std::string_view other) {
  std::string text = decoder_config_json(config);
  const std::size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  text.replace(at, piece.size(), other);
  std::string message = rejection<DataError>([&] { parse_decoder_config(text, "c.json"); });
  const std::string start = "c.json: byte ";
  if (!message.starts_with(start)) return message;
  std::size_t num_digits = 0;
  const std::size_t offset = std::stoul(message.substr(start.size()), &num_digits);
  EXPECT_GE(offset, at);
  EXPECT_LT(offset, at + other.size());
  return message.replace(start.size(), num_digits, "*");
}

TEST(DecoderJson, RejectsWithNameValueAndOffset) {
  EXPECT_EQ(rejection<DataError>([] { parse_decoder_config("[]", "c.json"); }), "c.json: byte 0: expected an object");
  EXPECT_EQ(rejection<DataError>([] { parse_decoder_config("{", "c.json"); }).find("c.json: byte 1"), 0u);
  EXPECT_EQ(json_rejection(kLlama, "\"llama\"", "\"gpt2\""),
            "c.json: byte *: model_type is \"gpt2\"; expected \"llama\", \"regard_decoder\"");
  EXPECT_EQ(json_rejection(kLlama, "hidden_size", "hidden"), "c.json: hidden_size is missing");
  EXPECT_EQ(json_rejection(kLlama, "24", "0"),
            "c.json: byte *: hidden_size is 0; expected an integer from 1 to 16777216");
  EXPECT_EQ(json_rejection(kLlama, "24", "2.5"),
            "c.json: byte *: hidden_size is 2.5; expected an integer from 1 to 16777216");
  EXPECT_EQ(json_rejection(kLlama, "24", "1e300"),
            "c.json: byte *: hidden_size is 1e+300; expected an integer from 1 to 16777216");
  EXPECT_EQ(json_rejection(kLlama, "24", "[24]"),
            "c.json: byte *: hidden_size is a list; expected an integer from 1 to 16777216");
  EXPECT_EQ(json_rejection(kLlama, "\"intermediate_size\": 64", "\"intermediate_size\": 0"),
            "c.json: byte *: intermediate_size is 0; expected an integer from 1 to 16777216");
  EXPECT_EQ(json_rejection(kLlama, "\"head_dim\": 6", "\"head_dim\": 7"),
            "c.json: decoder: head_size is 7; expected an even number with rotary position embeddings");
  EXPECT_EQ(json_rejection(kLlama, "1e-06", "\"1e-6\""), "c.json: byte *: rms_norm_eps is \"1e-6\"; expected a number");
  EXPECT_EQ(json_rejection(kLlama, "1e-06", "-1"),
            "c.json: decoder: norm_epsilon is -1; expected a finite number of at least 0");
  EXPECT_EQ(json_rejection(kLlama, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": 1"),
            "c.json: byte *: tie_word_embeddings is 1; expected true or false");
  EXPECT_EQ(json_rejection(kLlama, "\"silu\"", "\"gelu\""),
            "c.json: byte *: hidden_act is \"gelu\"; only \"silu\" is supported");
  EXPECT_EQ(json_rejection(kLlama, "\"attention_bias\": false", "\"attention_bias\": true"),
            "c.json: byte *: attention_bias is true; only false is supported");
  EXPECT_EQ(json_rejection(kLlama, "\"mlp_bias\": false", "\"mlp_bias\": true"),
            "c.json: byte *: mlp_bias is true; only false is supported");
  EXPECT_EQ(json_rejection(kLlama, "\"bos_token_id\": null", "\"rope_scaling\": {\"factor\": 8}"),
            "c.json: byte *: rope_scaling is an object; only null is supported");
  EXPECT_EQ(json_rejection(kSmall, "\"layer\"", "\"batch\\u001b\""),
            "c.json: byte *: norm is \"batch\\u{1b}\"; expected \"layer\", \"rms\"");
  EXPECT_EQ(json_rejection(kSmall, "\"learned\"", "null"),
            "c.json: byte *: positions is null; expected \"learned\", \"rotary\", \"none\"");
  EXPECT_EQ(json_rejection(kSmall, "\"gelu\"", "\"relu2\""),
            "c.json: byte *: feed_forward is \"relu2\"; expected \"none\", \"relu\", \"gelu\", \"gelu_tanh\", "
            "\"swiglu\"");
  EXPECT_EQ(json_rejection(kSmall, "\"biases\"", "\"bias\""), "c.json: biases is missing");
}

}  // namespace
}  // namespace regard::decoder_config_test
