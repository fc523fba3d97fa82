// SPDX-License-Identifier: Apache-2.0
//
// Models of sentences: loads an encoder from memory, runs a model, and finds the parameters of a head in it.
//
// Read next: sentence_model.h, sentence_folder.cpp, regard/model/encoder.h, regard/train/trained_model.h.
#include "sentence_model.h"

#include <fmt/format.h>

#include <utility>

#include "regard/error.h"
#include "regard/io/utf8.h"

namespace regard::inline v0 {
namespace {

// `count` of a matrix's columns, from `first` on.
TensorView<const float, 2> columns_of(const TensorView<const float, 2>& matrix, Index first, Index count) {
  return {matrix.pointer(0, first), {matrix.shape[0], count}, matrix.strides};
}
HeadProjection projection_of(const TensorView<const float, 2>& weight, const TensorView<const float, 1>& bias,
                             Index head, Index head_size) {
  HeadProjection projection{columns_of(weight, head * head_size, head_size), {}};
  if (!bias.absent()) projection.bias = {bias.pointer(head * head_size), {head_size}, bias.strides};
  return projection;
}
template <class Layer>
HeadProjections projections_in(const Layer& layer, Index head, Index kv_head, Index head_size) {
  const TensorView<const float, 2>& output = layer.w_output;
  return {.query = projection_of(layer.w_query, layer.b_query, head, head_size),
          .key = projection_of(layer.w_key, layer.b_key, kv_head, head_size),
          .value = projection_of(layer.w_value, layer.b_value, kv_head, head_size),
          .output = {output.pointer(head * head_size, 0), {head_size, output.shape[1]}, output.strides}};
}

// A token as a word: without the space before it, whitespace as symbols, invalid UTF-8 bytes in hexadecimal.
std::string token_word(std::string_view token) {
  if (token.size() > 1 && token[0] == ' ' && token.find_first_not_of(" \t\n\v\f\r") != std::string_view::npos)
    token.remove_prefix(1);
  std::string word;
  while (!token.empty()) {
    const std::size_t bytes = character_bytes(token);
    const std::string_view character = token.substr(0, bytes);
    if (character == " ") {
      word += "␣";
    } else if (character == "\n") {
      word += "↵";
    } else if (character == "\t") {
      word += "⇥";
    } else if (valid_utf8_bytes(character) == bytes) {
      word += character;
    } else {
      word += fmt::format("\\x{:02X}", static_cast<unsigned char>(character[0]));
    }
    token.remove_prefix(bytes);
  }
  return word;
}

}  // namespace

SentenceModel encoder_model(std::string name, Encoder encoder, Tokenizer tokenizer) {
  SentenceModel model{std::move(name), std::move(encoder), std::move(tokenizer)};
  if (model.tokenizer->vocabulary_size() > model.encoder.config.vocabulary) {
    throw DataError(fmt::format("{}: tokenizer.json has {} tokens and config.json a vocab_size of {}",
                                escape_for_terminal(model.folder), model.tokenizer->vocabulary_size(),
                                model.encoder.config.vocabulary));
  }
  return model;
}

SentenceModel read_sentence_model(const ModelInMemory& files, const ModelFileOptions& options, const Runtime& runtime) {
  Encoder encoder = read_encoder(files.config_json, files.safetensors, files.name, options, runtime);
  Tokenizer tokenizer = files.tokenizer ? *files.tokenizer
                                        : Tokenizer::read(files.tokenizer_json, files.name + "/tokenizer.json",
                                                          {.max_memory_bytes = options.max_memory_bytes}, runtime.stop);
  SentenceModel model = encoder_model(files.name, std::move(encoder), std::move(tokenizer));
  model.known_sha256 = files.sha256;
  return model;
}

ModelExtents SentenceModel::extents() const {
  if (trained) {
    const DecoderConfig& c = trained->decoder.config;
    return {c.num_layers, c.num_heads, c.head_size, c.width, c.max_positions, true};
  }
  const EncoderConfig& c = encoder.config;
  return {c.num_layers, c.num_heads, c.num_heads == 0 ? 0 : c.head_size(), c.width, c.max_positions, false};
}

std::string SentenceModel::sha256(const std::stop_token& stop) const {
  if (!known_sha256.empty()) return known_sha256;
  const std::shared_ptr<const Checkpoint>& checkpoint = trained ? trained->decoder.checkpoint : encoder.checkpoint;
  return checkpoint ? checkpoint->sha256(stop) : "";
}

ModelTrace SentenceModel::trace(std::span<const Index> ids, std::vector<Index> hidden_keys, const Runtime& runtime,
                                std::vector<Index> last_rows) const {
  if (trained)
    return decode_trace(trained->decoder, ids, {.hidden_keys = std::move(hidden_keys), .logits = false}, runtime);
  return encode(encoder, ids, {.hidden_keys = std::move(hidden_keys), .last_rows = std::move(last_rows)}, runtime);
}

void check_is_encoder(const SentenceModel& model, std::string_view what) {
  if (!model.trained) return;
  throw InvalidArgument(
      fmt::format("{}: the model in {} is a decoder; expected an encoder", what, escape_for_terminal(model.folder)));
}

HeadProjections head_projections(const SentenceModel& model, Index layer, Index head) {
  const auto n = static_cast<std::size_t>(layer);
  if (!model.trained) return projections_in(model.encoder.layers[n], head, head, model.encoder.config.head_size());
  const DecoderConfig& c = model.trained->decoder.config;
  return projections_in(model.trained->decoder.layers[n], head, head / (c.num_heads / c.num_kv_heads), c.head_size);
}

TensorView<const float, 1> output_bias(const SentenceModel& model, Index layer) {
  const auto n = static_cast<std::size_t>(layer);
  return model.trained ? model.trained->decoder.layers[n].b_output : model.encoder.layers[n].b_output;
}

bool rotates(const SentenceModel& model) {
  return model.trained && model.trained->decoder.config.positions == PositionKind::rotary;
}

TokenizedText decoder_tokens(const Vocabulary& vocabulary, std::string_view text, const std::stop_token& stop) {
  TokenizedText tokens;
  tokens.ids = vocabulary.encode(text, stop);
  std::size_t at = 0;
  for (const Index id : tokens.ids) {
    const std::string_view token = vocabulary.token(id);
    if (vocabulary.kind() == VocabularyKind::words) at = text.find_first_not_of(" \t\n\v\f\r", at);
    const auto begin = static_cast<Index>(at);
    at += token.size();
    tokens.byte_ranges.push_back({begin, static_cast<Index>(at)});
    tokens.words.push_back(token_word(token));
    tokens.tokens.push_back(tokens.words.back());
    tokens.word.push_back(static_cast<Index>(tokens.word.size()));
  }
  return tokens;
}

Tensor<float, 2> head_output_of(const SentenceModel& model, const ModelTrace& trace, Index layer, Index head,
                                const Runtime& runtime) {
  return model.trained ? head_output(model.trained->decoder, trace, layer, head, runtime)
                       : head_output(model.encoder, trace, layer, head, runtime);
}

Tensor<double, 2> value_norms_of(const SentenceModel& model, const ModelTrace& trace, Index layer,
                                 const Runtime& runtime) {
  return model.trained ? value_norms(model.trained->decoder, trace, layer, runtime)
                       : value_norms(model.encoder, trace, layer, runtime);
}

}  // namespace regard::inline v0
