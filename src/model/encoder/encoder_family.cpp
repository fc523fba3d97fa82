// SPDX-License-Identifier: Apache-2.0
//
// The supported families of encoders, one table each. BERT: Devlin et al., arXiv 1810.04805; names as in files written
// by Hugging Face's transformers.
// Read next: encoder_load.cpp.
#include "encoder_family.h"

#include <fmt/format.h>

#include <array>
#include <string>

namespace regard::inline v0 {
namespace {

// Far beyond every existing model, and small enough that a product of two of them cannot overflow.
constexpr Index kMaxTokens = Index{1} << 22;
constexpr Index kMaxLayers = 4096;
constexpr Index kMaxColumns = Index{1} << 24;

constexpr std::array<ConfigField, 7> kBertFields{
    {{'V', "vocab_size", &EncoderConfig::vocabulary, kMaxTokens},
     {'N', "num_hidden_layers", &EncoderConfig::num_layers, kMaxLayers},
     {'H', "num_attention_heads", &EncoderConfig::num_heads, kMaxColumns},
     {'E', "hidden_size", &EncoderConfig::width, kMaxColumns},
     {'F', "intermediate_size", &EncoderConfig::feed_forward, kMaxColumns},
     {'P', "max_position_embeddings", &EncoderConfig::max_positions, kMaxTokens},
     {'T', "type_vocab_size", &EncoderConfig::num_types, kMaxTokens}}};

// A decoder of this family does not attend to later keys, and cross-attention needs a second sequence.
constexpr std::array<ConfigChoice, 4> kBertChoices{{{"hidden_act", "gelu", true},
                                                    {"position_embedding_type", "absolute", false},
                                                    {"is_decoder", false, false},
                                                    {"add_cross_attention", false, false}}};

constexpr std::array<ParameterName<Encoder>, 5> kBertParameters{
    {{"embeddings.word_embeddings.weight", "V E", MatrixLayout::as_seen, &Encoder::word_table},
     {"embeddings.position_embeddings.weight", "P E", MatrixLayout::as_seen, &Encoder::position_table},
     {"embeddings.token_type_embeddings.weight", "T E", MatrixLayout::as_seen, &Encoder::type_table},
     {"embeddings.LayerNorm.weight", "E", MatrixLayout::as_seen, &Encoder::norm_embedding_gain},
     {"embeddings.LayerNorm.bias", "E", MatrixLayout::as_seen, &Encoder::norm_embedding_bias}}};

using Layer = EncoderLayer;
constexpr std::array<ParameterName<Layer>, 16> kBertLayer{
    {{"encoder.layer.{layer}.attention.self.query.weight", "E E", MatrixLayout::out_in, &Layer::w_query},
     {"encoder.layer.{layer}.attention.self.query.bias", "E", MatrixLayout::as_seen, &Layer::b_query},
     {"encoder.layer.{layer}.attention.self.key.weight", "E E", MatrixLayout::out_in, &Layer::w_key},
     {"encoder.layer.{layer}.attention.self.key.bias", "E", MatrixLayout::as_seen, &Layer::b_key},
     {"encoder.layer.{layer}.attention.self.value.weight", "E E", MatrixLayout::out_in, &Layer::w_value},
     {"encoder.layer.{layer}.attention.self.value.bias", "E", MatrixLayout::as_seen, &Layer::b_value},
     {"encoder.layer.{layer}.attention.output.dense.weight", "E E", MatrixLayout::out_in, &Layer::w_output},
     {"encoder.layer.{layer}.attention.output.dense.bias", "E", MatrixLayout::as_seen, &Layer::b_output},
     {"encoder.layer.{layer}.attention.output.LayerNorm.weight", "E", MatrixLayout::as_seen,
      &Layer::norm_attention_gain},
     {"encoder.layer.{layer}.attention.output.LayerNorm.bias", "E", MatrixLayout::as_seen, &Layer::norm_attention_bias},
     {"encoder.layer.{layer}.intermediate.dense.weight", "F E", MatrixLayout::out_in, &Layer::w_up},
     {"encoder.layer.{layer}.intermediate.dense.bias", "F", MatrixLayout::as_seen, &Layer::b_up},
     {"encoder.layer.{layer}.output.dense.weight", "E F", MatrixLayout::out_in, &Layer::w_down},
     {"encoder.layer.{layer}.output.dense.bias", "E", MatrixLayout::as_seen, &Layer::b_down},
     {"encoder.layer.{layer}.output.LayerNorm.weight", "E", MatrixLayout::as_seen, &Layer::norm_output_gain},
     {"encoder.layer.{layer}.output.LayerNorm.bias", "E", MatrixLayout::as_seen, &Layer::norm_output_bias}}};

// Files that originate from TensorFlow call the gain gamma and the bias beta.
constexpr std::array<EncoderFamily::Ending, 2> kBertEndings{
    {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}}};

constexpr std::array<std::string_view, 2> kBertUnread{"embeddings.position_ids", "pooler."};
constexpr std::array<std::string_view, 3> kBertUnreadHeads{"cls.", "classifier.", "qa_outputs."};

constexpr std::array<EncoderFamily, 1> kFamilies{{{.model_type = "bert",
                                                   .fields = kBertFields,
                                                   .choices = kBertChoices,
                                                   .epsilon_field = "layer_norm_eps",
                                                   .activation_field = "hidden_act",
                                                   .prefix = "bert.",
                                                   .parameters = kBertParameters,
                                                   .layer_parameters = kBertLayer,
                                                   .endings = kBertEndings,
                                                   .unread = kBertUnread,
                                                   .unread_heads = kBertUnreadHeads}}};

}  // namespace

const EncoderFamily* find_family(std::string_view model_type) {
  for (const EncoderFamily& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::string known_families() {
  std::string text;
  for (const EncoderFamily& family : kFamilies) {
    text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", family.model_type);
  }
  return text;
}

}  // namespace regard::inline v0
