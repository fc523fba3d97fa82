// SPDX-License-Identifier: Apache-2.0
//
// Decoders from folders: the logits have the bits of DecoderTraining and are close to those of transformers; the trace
// satisfies its formulas; untrusted folders are rejected.
// Read next: src/model/decoder/decoder_load.cpp, decoder_trace.cpp.
#include "regard/model/decoder_inference.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "regard/error.h"
#include "regard/io/json.h"
#include "regard/train/decoder_training.h"
#include "support/arrays.h"
#include "support/data_path.h"
#include "support/decoder_cases.h"
#include "support/instruction_sets.h"
#include "support/rejection.h"
#include "support/same_bits.h"

namespace regard::decoder_inference_test {
namespace {

constexpr Index kLength = 40;

template <int Rank>
std::vector<std::uint64_t> bits(const Tensor<float, Rank>& tensor) {
  return bits_of(std::vector<float>(tensor.data(), tensor.data() + tensor.size()));
}

template <int Rank>
double f(const Tensor<float, Rank>& tensor, Index i, Index j) {
  return static_cast<double>(tensor(i, j));
}

// ---- values

TEST(DecoderTrace, LogitsHaveTheBitsOfTraining) {
  for (const auto& [name, config] : decoder_cases(kLength)) {
    SCOPED_TRACE(name);
    const Decoder decoder = tiny_decoder(config);
    const std::vector<Index> ids = some_ids(kLength, config.vocabulary);
    DecoderTraining<float> training(config);
    const std::vector<float> parameters = tiny_parameters(config);
    std::copy(parameters.begin(), parameters.end(), training.parameters().begin());
    on_every_instruction_set([&](const kernels::KernelTable&) {
      const TensorView<const Index, 2> tokens(ids.data(), {1, kLength});
      training.evaluate({.tokens = tokens, .targets = tokens});
      const TensorView<const float, 2> logits = training.logits();
      std::vector<float> expected;
      for (Index i = 0; i < kLength; ++i) {
        for (Index v = 0; v < config.vocabulary; ++v) expected.push_back(logits(i, v));
      }
      EXPECT_TRUE(same_bits(bits(decode_trace(decoder, ids).logits), bits_of(expected)));
    });
  }
}

// The reference is in double; tests/frameworks/decoder_files_test.py compares it with transformers.
TEST(DecoderTrace, LogitsAreThoseOfTransformers) {
  const std::string folder = data_path("decoder/tiny_llama");
  const Decoder decoder = load_decoder(folder);
  std::ostringstream text;
  text << std::ifstream(folder + "/logits.json").rdbuf();
  const JsonValue expected = read_json(text.str(), "logits.json");
  std::vector<Index> ids;
  for (const double id : expected.find("tokens")->numbers()) ids.push_back(static_cast<Index>(id));
  const DecoderTrace trace = decode_trace(decoder, ids);
  const std::vector<JsonValue>& rows = expected.find("logits")->items();
  ASSERT_EQ(rows.size(), ids.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i].numbers().size(), 13u);
    for (std::size_t v = 0; v < 13; ++v)
      EXPECT_NEAR(f(trace.logits, static_cast<Index>(i), static_cast<Index>(v)), rows[i].numbers()[v], 2e-6);
  }
}

TEST(DecoderTrace, RowsDoNotDependOnWhatFollows) {
  for (const auto& [name, config] : decoder_cases(kLength)) {
    SCOPED_TRACE(name);
    const Decoder decoder = tiny_decoder(config);
    const std::vector<Index> ids = some_ids(kLength, config.vocabulary);
    const DecoderTrace whole = decode_trace(decoder, ids);
    const DecoderTrace part = decode_trace(decoder, std::span(ids).first(17), {}, {.num_threads = 5});
    const auto first_rows = [](const Tensor<float, 2>& tensor) {
      return bits_of(std::vector<float>(tensor.data(), tensor.data() + 17 * tensor.shape()[1]));
    };
    EXPECT_TRUE(same_bits(bits(part.logits), first_rows(whole.logits)));
    for (std::size_t n = 0; n < whole.layers.size(); ++n)
      EXPECT_TRUE(same_bits(bits(part.layers[n].output), first_rows(whole.layers[n].output)));
  }
}

TEST(DecoderTrace, KeepsEveryIntermediateResult) {
  for (const auto& [name, config] : decoder_cases(kLength)) {
    SCOPED_TRACE(name);
    const Decoder decoder = tiny_decoder(config);
    const DecoderTrace trace = decode_trace(decoder, some_ids(kLength, config.vocabulary));
    EXPECT_TRUE(trace.causal);
    EXPECT_EQ(trace.position.size() > 0, config.positions == PositionKind::learned);
    ASSERT_EQ(static_cast<Index>(trace.layers.size()), config.num_layers);
    for (std::size_t n = 0; n < trace.layers.size(); ++n) {
      const LayerTrace& t = trace.layers[n];
      EXPECT_TRUE(same_bits(bits(t.input), bits(n == 0 ? trace.embedded : trace.layers[n - 1].output)));
      const std::array<Index, 3> heads{config.num_heads, kLength, config.head_size};
      for (const Tensor<float, 3>* tensor : {&t.query, &t.key, &t.value, &t.context}) EXPECT_EQ(tensor->shape(), heads);
      const bool has_feed_forward = config.feed_forward_kind != FeedForwardKind::none;
      EXPECT_EQ(t.feed_forward.size() > 0, has_feed_forward);
      EXPECT_EQ(t.attention_normed.size() > 0, has_feed_forward);
      for (Index i = 0; i < kLength; ++i) {
        for (Index e = 0; e < config.width; ++e) {
          EXPECT_EQ(t.residual(i, e), t.input(i, e) + t.attention_output(i, e));
          EXPECT_EQ(t.output(i, e), has_feed_forward ? t.residual(i, e) + t.feed_forward(i, e) : t.residual(i, e));
        }
      }
    }
  }
}

TEST(DecoderTrace, HeadOutputsAndBiasSumToTheAttentionOutput) {
  for (const auto& [name, config] : decoder_cases(kLength)) {
    SCOPED_TRACE(name);
    const Decoder decoder = tiny_decoder(config);
    const DecoderTrace trace = decode_trace(decoder, some_ids(kLength, config.vocabulary));
    for (Index layer = 0; layer < config.num_layers; ++layer) {
      const LayerTrace& t = trace.layers[static_cast<std::size_t>(layer)];
      Tensor<double, 2> sum({kLength, config.width}), magnitude({kLength, config.width});
      const Tensor<double, 2> norms = value_norms(decoder, trace, layer);
      for (Index head = 0; head < config.num_heads; ++head) {
        const Tensor<float, 2> output = head_output(decoder, trace, layer, head);
        for (Index i = 0; i < kLength; ++i) {
          double square = 0;
          for (Index e = 0; e < config.width; ++e) {
            double from_value = 0;
            for (Index d = 0; d < config.head_size; ++d) {
              const double w = static_cast<double>(
                  decoder.layers[static_cast<std::size_t>(layer)].w_output(head * config.head_size + d, e));
              from_value += static_cast<double>(t.value(head, i, d)) * w;
              magnitude(i, e) += std::fabs(static_cast<double>(t.context(head, i, d)) * w);
            }
            square += from_value * from_value;
            sum(i, e) += f(output, i, e);
          }
          EXPECT_NEAR(norms(head, i), std::sqrt(square), 1e-6 * (1 + std::sqrt(square)));
        }
      }
      const TensorView<const float, 1>& bias = decoder.layers[static_cast<std::size_t>(layer)].b_output;
      for (Index i = 0; i < kLength; ++i) {
        for (Index e = 0; e < config.width; ++e) {
          const double b = bias.absent() ? 0 : static_cast<double>(bias(e));
          // linear.h: a chain of H · D products, here and in each head.
          const auto products = static_cast<double>(config.num_heads * config.head_size);
          const double bound = 0x1p-24 * 2 * (products + 2) * (magnitude(i, e) + std::fabs(b));
          EXPECT_NEAR(sum(i, e) + b, f(t.attention_output, i, e), bound);
        }
      }
    }
  }
}

TEST(DecoderTrace, WeightsAreCausalAndSumToOne) {
  const auto cases = decoder_cases(kLength);
  const Decoder decoder = tiny_decoder(cases[2].second);
  const std::vector<Index> ids = some_ids(kLength, 13);
  const std::vector<Index> hidden{0, 7, 8};
  const DecoderTrace trace = decode_trace(decoder, ids, {.hidden_keys = hidden});
  for (Index layer = 0; layer < 2; ++layer) {
    const Tensor<float, 3> weights = trace_weights(trace, layer);
    const Tensor<float, 3> scores = trace_weights(trace, layer, WeightsKind::scores);
    for (Index h = 0; h < 4; ++h) {
      for (Index i = 0; i < kLength; ++i) {
        double sum = 0;
        for (Index j = 0; j < kLength; ++j) {
          const bool visible = j <= i && j != 0 && j != 7 && j != 8;
          EXPECT_EQ(visible, std::isfinite(scores(h, i, j)));
          if (!visible) {
            EXPECT_EQ(weights(h, i, j), 0);
          }
          sum += static_cast<double>(weights(h, i, j));
        }
        EXPECT_NEAR(sum, i == 0 ? 0 : 1, 1e-5);
        for (Index d = 0; i == 0 && d < 6; ++d) EXPECT_EQ(trace.layers[0].context(h, 0, d), 0);
      }
    }
  }
}

TEST(DecoderTrace, HiddenKeysAreThoseOfAShorterTextWithoutPositions) {
  const DecoderConfig config = decoder_cases(kLength)[4].second;
  ASSERT_EQ(config.positions, PositionKind::none);
  const Decoder decoder = tiny_decoder(config);
  const std::vector<Index> ids{5, 9, 1, 7, 3, 3};
  const DecoderTrace hidden = decode_trace(decoder, ids, {.hidden_keys = {1, 3}});
  const DecoderTrace shorter = decode_trace(decoder, std::vector<Index>{5, 1, 3, 3});
  const Index vocabulary = config.vocabulary;
  for (Index v = 0; v < vocabulary; ++v) EXPECT_NEAR(f(hidden.logits, 5, v), f(shorter.logits, 3, v), 1e-5);
}

TEST(DecoderTrace, LeavesOutLogitsThatAreNotWanted) {
  const Decoder decoder = tiny_decoder(decoder_cases(kLength)[0].second);
  const DecoderTrace trace = decode_trace(decoder, some_ids(5, 13), {.logits = false});
  EXPECT_EQ(trace.logits.size(), 0);
  EXPECT_EQ(trace.output().shape()[0], 5);
  EXPECT_EQ(decode_trace(decoder, {}).logits.size(), 0);
}

TEST(DecoderTrace, RejectsBeforeAnyWork) {
  const Decoder decoder = tiny_decoder(decoder_cases(kLength)[0].second);
  EXPECT_EQ(rejection([&] { decode_trace(decoder, std::vector<Index>(41, 1)); }),
            "decode_trace: 41 tokens; this model has 40 positions");
  EXPECT_EQ(rejection([&] { decode_trace(decoder, std::vector<Index>{1, 13}); }),
            "decode_trace: token 1 has id 13; expected 0 to 12");
  EXPECT_EQ(rejection([&] { decode_trace(decoder, std::vector<Index>{1}, {.hidden_keys = {1}}); }),
            "decode_trace: hidden key 1 does not exist; the text has 1 tokens, numbered from 0");
  const DecoderTrace trace = decode_trace(decoder, std::vector<Index>{1, 2});
  EXPECT_EQ(rejection([&] { head_output(decoder, trace, 0, 4); }),
            "head_output: head 4 does not exist; there are 4, numbered from 0");
  EXPECT_EQ(rejection([&] { value_norms(decoder, trace, 2); }),
            "value_norms: layer 2 does not exist; there are 2, numbered from 0");
  EXPECT_EQ(rejection([&] { value_norms(tiny_decoder(decoder_cases(kLength)[2].second), trace, 0); }),
            "value_norms: the trace comes from a different model");
}

// ---- folders

// The message of load_decoder, with FOLDER in place of the folder's path.
std::string load_rejection(const TestFolder& folder, const ModelFileOptions& options = {}) {
  std::string text = rejection<DataError>([&] { load_decoder(folder.path(), options); });
  for (std::size_t at; (at = text.find(folder.path())) != std::string::npos;)
    text.replace(at, folder.path().size(), "FOLDER");
  return text;
}

TEST(DecoderLoad, ReadsDescriptionAndHash) {
  const Decoder decoder = load_decoder(data_path("decoder/tiny_llama"));
  EXPECT_EQ(decoder.config, tiny_llama_config());
  EXPECT_EQ(decoder.checkpoint->sha256().size(), 64u);
  EXPECT_EQ(decoder.layers.size(), 2u);
  EXPECT_TRUE(decoder.position_table.absent());
}

TEST(DecoderLoad, OneErrorListsAllTensorsThatDoNotMatch) {
  const DecoderConfig config = decoder_cases(kLength)[0].second;
  const std::vector<float> parameters = tiny_parameters(config);
  std::vector<StoredTensor> tensors = stored_parameters(config, parameters);
  const std::vector<std::uint8_t> bytes(16);
  tensors[0].name = "model.embed_tokens.bias";
  tensors[1].shape = {16, kLength};
  tensors[2].type = ElementType::uint8;
  tensors[2].bytes = std::as_bytes(std::span(bytes));
  const TestFolder folder;
  folder.write("config.json", decoder_config_json(config));
  write_safetensors(folder / "model.safetensors", tensors);
  EXPECT_EQ(load_rejection(folder),
            "FOLDER: 4 tensors do not match config.json: model.embed_tokens.weight is missing, "
            "expected (13, 16); model.embed_positions.weight has shape (16, 40), expected (40, 16); "
            "model.layers.0.input_layernorm.weight has type U8, expected F32, F64, F16 or BF16; "
            "model.embed_tokens.bias is not a tensor of this decoder with 2 layers");
}

TEST(DecoderLoad, LeavesBuffersAndTheOutputOfTiedModelsUnread) {
  const DecoderConfig config = decoder_cases(kLength)[3].second;
  ASSERT_TRUE(config.tied);
  const std::vector<float> parameters = tiny_parameters(config), extra{1, 2, 3};
  std::vector<StoredTensor> tensors = stored_parameters(config, parameters);
  for (const char* name : {"lm_head.weight", "model.layers.1.self_attn.rotary_emb.inv_freq"})
    tensors.push_back({name, ElementType::float32, {3}, std::as_bytes(std::span(extra))});
  const TestFolder folder;
  folder.write("config.json", decoder_config_json(config));
  write_safetensors(folder / "model.safetensors", tensors);
  const std::vector<Index> ids{1, 2, 3};
  EXPECT_TRUE(same_bits(bits(decode_trace(load_decoder(folder.path()), ids).logits),
                        bits(decode_trace(tiny_decoder(config), ids).logits)));
}

TEST(DecoderLoad, ConvertsOtherTypes) {
  const DecoderConfig config = decoder_cases(kLength)[1].second;
  const std::vector<float> parameters = tiny_parameters(config);
  std::vector<double> wide(parameters.begin(), parameters.end());
  std::vector<StoredTensor> tensors = stored_parameters(config, parameters);
  std::span<const double> rest = wide;
  for (StoredTensor& tensor : tensors) {
    const std::size_t count = tensor.bytes.size() / sizeof(float);
    tensor.type = ElementType::float64;
    tensor.bytes = std::as_bytes(rest.first(count));
    rest = rest.subspan(count);
  }
  const TestFolder folder;
  folder.write("config.json", decoder_config_json(config));
  write_safetensors(folder / "model.safetensors", tensors);
  const std::vector<Index> ids{1, 2, 3};
  EXPECT_TRUE(same_bits(bits(decode_trace(load_decoder(folder.path()), ids).logits),
                        bits(decode_trace(tiny_decoder(config), ids).logits)));
}

TEST(DecoderLoad, RejectsWhatDoesNotFit) {
  const DecoderConfig config = decoder_cases(kLength)[2].second;
  std::vector<float> parameters = tiny_parameters(config);
  {
    const TestFolder folder;
    EXPECT_NE(load_rejection(folder).find("FOLDER/config.json"), std::string::npos);
    folder.write("config.json", R"({"model_type": "bert"})");
    EXPECT_EQ(load_rejection(folder),
              "FOLDER/config.json: byte 15: model_type is \"bert\"; expected \"llama\", \"regard_decoder\"");
    folder.write("config.json", decoder_config_json(config));
    EXPECT_NE(load_rejection(folder).find("model.safetensors"), std::string::npos);
  }
  const TestFolder folder;
  write_decoder(folder, config, parameters);
  EXPECT_NE(load_rejection(folder, {.max_memory_bytes = 40000}).find("more bytes of memory for computation"),
            std::string::npos);
  DecoderConfig deeper = config;
  deeper.num_layers = 4096;
  folder.write("config.json", decoder_config_json(deeper));
  const std::string text = load_rejection(folder);
  EXPECT_NE(text.find("; and 36746 more"), std::string::npos) << text.substr(text.size() - 200);
  parameters[100] = std::nanf("");
  write_decoder(folder, config, parameters);
  EXPECT_NE(load_rejection(folder).find("nan"), std::string::npos);
  EXPECT_NO_THROW(load_decoder(folder.path(), {.allow_nonfinite = true}));
}

TEST(DecoderLoad, EndsWhenAStopIsRequested) {
  std::stop_source source;
  source.request_stop();
  const Runtime stopped{.stop = source.get_token()};
  EXPECT_THROW(load_decoder(data_path("decoder/tiny_llama"), {}, stopped), Cancelled);
  const Decoder decoder = tiny_decoder(decoder_cases(kLength)[0].second);
  EXPECT_THROW(decode_trace(decoder, std::vector<Index>{1}, {}, stopped), Cancelled);
}

}  // namespace
}  // namespace regard::decoder_inference_test
