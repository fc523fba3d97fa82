// SPDX-License-Identifier: Apache-2.0
//
// load_encoder and read_encoder: variants that they accept (prefixes, older names, other types), and the messages for
// what they reject. Every rejection of a folder is compared with that of the same files in memory.
// Read next: encoder_test.cpp, src/model/encoder/encoder_family.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "regard/io/rounding.h"
#include "support/data_path.h"
#include "support/encoder_reference.h"
#include "support/model_bytes.h"
#include "support/rejection.h"

namespace regard::encoder_load_test {
namespace {

const std::string kTiny = data_path("encoder/tiny");

struct Part {
  std::string type;  // as in the file
  std::vector<Index> shape;
  std::string bytes;
};
using Parts = std::map<std::string, Part>;

Parts tiny_parts() {
  const Checkpoint checkpoint = Checkpoint::read_file(kTiny + "/model.safetensors");
  Parts parts;
  for (const StoredTensor& t : checkpoint.tensors()) {
    parts[t.name] = {std::string(safetensors_type_name(t.type)), t.shape,
                     std::string(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size())};
  }
  return parts;
}

std::string tiny_config() { return file_bytes(kTiny + "/config.json"); }

// Loads from memory what a folder holds, under the folder's name.
Encoder read_in_memory(const std::string& folder, const ModelFileOptions& options = {}) {
  return read_encoder(file_bytes(folder + "/config.json"),
                      share_bytes(to_bytes(file_bytes(folder + "/model.safetensors"))), folder, options);
}

// The text with one part replaced by another.
std::string with(std::string text, std::string_view piece, std::string_view other) {
  const std::size_t at = text.find(piece);
  if (at == std::string::npos) throw std::logic_error("config.json has no such piece");
  return text.replace(at, piece.size(), other);
}

// A model folder that lives as long as the test.
class Folder {
 public:
  Folder(const std::string& config, const Parts& parts) {
    path_ = testing::TempDir() + "encoder_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(path_);
    std::ofstream(path_ + "/config.json", std::ios::binary) << config;
    std::string header;
    std::string data;
    for (const auto& [name, part] : parts) {
      std::ostringstream entry;
      entry << (header.empty() ? "{" : ",") << '"' << name << R"(":{"dtype":")" << part.type << R"(","shape":[)";
      for (std::size_t axis = 0; axis < part.shape.size(); ++axis) entry << (axis ? "," : "") << part.shape[axis];
      entry << R"(],"data_offsets":[)" << data.size() << ',' << data.size() + part.bytes.size() << "]}";
      header += entry.str();
      data += part.bytes;
    }
    header += "}";
    header.append((8 - header.size() % 8) % 8, ' ');
    std::ofstream file(path_ + "/model.safetensors", std::ios::binary);
    for (std::size_t byte = 0; byte < 8; ++byte) file.put(static_cast<char>(header.size() >> (8 * byte) & 0xff));
    file << header << data;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The message of load_encoder, which is that of read_encoder, with FOLDER in place of the folder's path.
std::string rejection(const std::string& config, const Parts& parts, const ModelFileOptions& options = {}) {
  const Folder folder(config, parts);
  const std::string text = regard::rejection<std::runtime_error>([&] { load_encoder(folder.path(), options); });
  EXPECT_EQ(regard::rejection<std::runtime_error>([&] { read_in_memory(folder.path(), options); }), text);
  return text == "accepted" ? text : with(text, folder.path(), "FOLDER");
}
std::string rejection(const Parts& parts) { return rejection(tiny_config(), parts); }

// The message of load_encoder for the tiny model's config.json with one part replaced, without its location.
std::string config_rejection(std::string_view piece, std::string_view other) {
  std::string text = rejection(with(tiny_config(), piece, other), tiny_parts());
  const std::string start = "FOLDER/config.json: byte ";
  if (!text.starts_with(start)) return text;
  return text.substr(text.find(": ", start.size()) + 2);
}

std::vector<float> output_of(const Encoder& encoder) {
  const ModelTrace trace = encode(encoder, std::vector<Index>{1, 2, 3, 59});
  return {trace.output().data(), trace.output().data() + trace.output().size()};
}
std::vector<float> output_of(const Parts& parts) {
  const Folder folder(tiny_config(), parts);
  return output_of(load_encoder(folder.path()));
}

TEST(EncoderLoad, ReadsConfigAndHash) {
  const Encoder encoder = load_encoder(kTiny);
  EXPECT_EQ(encoder.config.vocabulary, 60);
  EXPECT_EQ(encoder.config.num_layers, 3);
  EXPECT_EQ(encoder.config.num_heads, 4);
  EXPECT_EQ(encoder.config.width, 40);
  EXPECT_EQ(encoder.config.feed_forward, 72);
  EXPECT_EQ(encoder.config.max_positions, 40);
  EXPECT_EQ(encoder.config.num_types, 2);
  EXPECT_EQ(encoder.config.norm_epsilon, 0.001);
  EXPECT_EQ(encoder.config.activation, "gelu");
  EXPECT_EQ(encoder.config.head_size(), 10);
  EXPECT_EQ(encoder.family, "bert");
  EXPECT_EQ(encoder.checkpoint->sha256(), "72996caf631517e28a1bcf7363d7757eb65f9a16ea9e81e29cd926bd6b412daa");
}

TEST(EncoderLoad, MemoryGivesTheModelOfTheFolder) {
  const Encoder from_folder = load_encoder(kTiny);
  const Encoder from_memory = read_in_memory(kTiny);
  EXPECT_EQ(output_of(from_memory), output_of(from_folder));
  EXPECT_EQ(from_memory.checkpoint->sha256(), from_folder.checkpoint->sha256());
  EXPECT_EQ(from_memory.checkpoint->name(), kTiny + "/model.safetensors");
}

TEST(EncoderLoad, CopyOutlivesTheOriginal) {
  auto original = std::make_unique<Encoder>(load_encoder(kTiny));
  const std::vector<float> expected = output_of(*original);
  const Encoder copy = *original;
  original.reset();
  EXPECT_EQ(output_of(copy), expected);
}

TEST(EncoderLoad, ReadsPrefixedAndOlderNames) {
  const std::vector<float> expected = output_of(load_encoder(kTiny));
  const Parts plain = tiny_parts();
  EXPECT_EQ(output_of(plain), expected);

  Parts prefixed;
  for (const auto& [name, part] : plain) prefixed["bert." + name] = part;
  const Part extra{"F32", {1}, std::string(4, '\0')};
  prefixed["bert.pooler.dense.bias"] = extra;
  prefixed["cls.predictions.bias"] = extra;
  prefixed["classifier.bias"] = extra;
  prefixed["qa_outputs.bias"] = extra;
  EXPECT_EQ(output_of(prefixed), expected);

  Parts older;
  for (const auto& [name, part] : plain) {
    std::string other = name;
    if (name.ends_with("LayerNorm.weight")) other = name.substr(0, name.size() - 6) + "gamma";
    if (name.ends_with("LayerNorm.bias")) other = name.substr(0, name.size() - 4) + "beta";
    older[other] = part;
  }
  older["embeddings.position_ids"] = {"I64", {1, 1}, std::string(8, '\0')};
  older["pooler.dense.weight"] = extra;
  EXPECT_EQ(output_of(older), expected);
}

TEST(EncoderLoad, ReadsOtherElementTypes) {
  const std::vector<float> expected = output_of(load_encoder(kTiny));
  Parts doubles = tiny_parts();
  for (auto& [name, part] : doubles) {
    std::string wide;
    for (std::size_t at = 0; at < part.bytes.size(); at += sizeof(float)) {
      float x = 0;
      std::memcpy(&x, part.bytes.data() + at, sizeof x);
      const auto y = static_cast<double>(x);
      wide.append(reinterpret_cast<const char*>(&y), sizeof y);
    }
    part = {"F64", part.shape, wide};
  }
  EXPECT_EQ(output_of(doubles), expected);

  // 0x3f80 is 1 in bf16: a gain of ones.
  Parts halves = tiny_parts();
  Parts ones = tiny_parts();
  const std::string gain = "encoder.layer.2.output.LayerNorm.weight";
  std::string bytes;
  std::string float_bytes;
  for (int e = 0; e < 40; ++e) {
    bytes += std::string("\x80\x3f", 2);
    float_bytes += std::string("\x00\x00\x80\x3f", 4);
  }
  halves[gain] = {"BF16", {40}, bytes};
  ones[gain].bytes = float_bytes;
  EXPECT_EQ(output_of(halves), output_of(ones));
  EXPECT_NE(output_of(halves), expected);
}

SharedBytes tiny_rounded(ElementType type) {
  const Checkpoint checkpoint = Checkpoint::read_file(kTiny + "/model.safetensors");
  return round_tensors(checkpoint, encoder_tensors(tiny_config(), checkpoint, "tiny"), type);
}

TEST(EncoderLoad, RoundedTensorsAreThoseThatTheEncoderReads) {
  Parts parts = tiny_parts();
  const std::size_t num_read = parts.size();
  parts["pooler.dense.bias"] = {"F32", {1}, std::string(4, '\0')};
  const Folder folder(tiny_config(), parts);
  const Checkpoint checkpoint = Checkpoint::read_folder(folder.path());
  const std::vector<const StoredTensor*> tensors = encoder_tensors(tiny_config(), checkpoint, "tiny");
  EXPECT_EQ(tensors.size(), num_read);
  EXPECT_EQ(tensors.front()->name, "embeddings.word_embeddings.weight");
  EXPECT_EQ(tensors.back()->name, "encoder.layer.2.output.LayerNorm.bias");
}

TEST(EncoderLoad, ReadsRoundedMatrices) {
  const Encoder exact = load_encoder(kTiny);
  for (const auto& [type, limit] :
       {std::pair{ElementType::int8, 0.5f / 127}, std::pair{ElementType::float16, 0x1p-11f}}) {
    const Encoder encoder = read_encoder(tiny_config(), tiny_rounded(type), "tiny");
    for (Index o = 0; o < 72; ++o) {  // a row in the file is a column here
      float largest = 0;
      for (Index i = 0; i < 40; ++i) largest = std::max(largest, std::abs(exact.layers[1].w_up(i, o)));
      for (Index i = 0; i < 40; ++i) {
        EXPECT_NEAR(encoder.layers[1].w_up(i, o), exact.layers[1].w_up(i, o), largest * limit * 1.00001f);
      }
    }
    EXPECT_EQ(encoder.layers[2].b_down(7), exact.layers[2].b_down(7));
    EXPECT_NE(output_of(encoder), output_of(exact));
  }
}

TEST(EncoderLoad, RejectsInt8WithoutScales) {
  const std::string start = "FOLDER: 1 tensor does not match config.json: ";
  const std::string name = "encoder.layer.1.intermediate.dense.weight";
  Parts parts = tiny_parts();
  parts[name] = {"I8", {72, 40}, std::string(72 * 40, '\1')};
  EXPECT_EQ(rejection(parts),
            start + name + " has type I8 without scales, expected " + name + ".scale of type F32 and shape (72,)");
  parts[name + ".scale"] = {"F32", {72}, std::string(72 * 4, '\0')};
  EXPECT_EQ(rejection(parts), "accepted");
  parts[name + ".scale"].bytes.replace(8, 4, std::string("\0\0\x80\x7f", 4));
  EXPECT_EQ(rejection(tiny_config(), parts, {.allow_nonfinite = true}),
            "FOLDER/model.safetensors: tensor \"" + name +
                "\" has the scale inf at [2]; expected a finite scale of at most 2^120");
  // Vectors are not rounded.
  parts = tiny_parts();
  parts["embeddings.LayerNorm.bias"] = {"I8", {40}, std::string(40, '\1')};
  EXPECT_EQ(rejection(parts), start + "embeddings.LayerNorm.bias has type I8, expected F32, F64, F16 or BF16");
}

TEST(EncoderLoad, RejectsFieldsByName) {
  const auto expect = [](std::string_view piece, std::string_view other, const std::string& message) {
    EXPECT_EQ(config_rejection(piece, other), message) << other;
  };
  const std::string heads = "\"num_attention_heads\": 4";
  const std::string count = "; expected an integer from 1 to 16777216";
  expect(heads, R"("num_attention_heads": 0)", "num_attention_heads is 0" + count);
  expect(heads, R"("num_attention_heads": -4)", "num_attention_heads is -4" + count);
  expect(heads, R"("num_attention_heads": 4.5)", "num_attention_heads is 4.5" + count);
  expect(heads, R"("num_attention_heads": "4")", "num_attention_heads is \"4\"" + count);
  expect(heads, R"("num_attention_heads": [4])", "num_attention_heads is a list" + count);
  expect(heads, R"("num_attention_heads": 7)",
         "num_attention_heads is 7; expected a divisor of hidden_size, which is 40");
  expect(heads, R"("n_head": 4)", "FOLDER/config.json: num_attention_heads is missing");
  expect("\"num_hidden_layers\": 3", R"("num_hidden_layers": 2147483648)",
         "num_hidden_layers is 2147483648; expected an integer from 1 to 4096");
  expect("\"num_hidden_layers\": 3", R"("num_hidden_layers": 9223372036854775808)",
         "num_hidden_layers is 9.223372036854776e+18; expected an integer from 1 to 4096");
  for (const char* epsilon : {"0", "-1e-12"}) {
    expect("\"layer_norm_eps\": 0.001", "\"layer_norm_eps\": " + std::string(epsilon),
           "layer_norm_eps is " + std::string(epsilon) + "; expected a positive number");
  }
  expect("\"layer_norm_eps\": 0.001", R"("layer_norm_eps": null)",
         "layer_norm_eps is null; expected a positive number");
  expect("\"hidden_act\": \"gelu\"", R"("hidden_act": "gelu_new")",
         "hidden_act is \"gelu_new\"; only \"gelu\" is supported");
  expect("\"is_decoder\": false", R"("is_decoder": true)", "is_decoder is true; only false is supported");
  expect("\"is_decoder\": false", R"("position_embedding_type": "relative_key")",
         "position_embedding_type is \"relative_key\"; only \"absolute\" is supported");
  expect("\"model_type\": \"bert\"", R"("model_type": "gpt2")", "model_type is \"gpt2\"; expected \"bert\"");
  expect("\"model_type\": \"bert\"", R"("model_type": {})", "model_type is an object; expected \"bert\"");
}

TEST(EncoderLoad, ReportsTheOffsetInTheConfig) {
  const std::string config = with(tiny_config(), "\"num_attention_heads\": 4", "\"num_attention_heads\": 0");
  const std::string place = std::to_string(config.find('0', config.find("num_attention_heads")));
  EXPECT_EQ(rejection(config, tiny_parts()).substr(0, 40),
            ("FOLDER/config.json: byte " + place + ": num_attention").substr(0, 40));
  EXPECT_EQ(rejection("[1]", tiny_parts()), "FOLDER/config.json: byte 0: expected an object");
}

TEST(EncoderLoad, ListsEveryInvalidTensor) {
  EXPECT_EQ(rejection(with(tiny_config(), "\"vocab_size\": 60", "\"vocab_size\": 61"), tiny_parts()),
            "FOLDER: 1 tensor does not match config.json: embeddings.word_embeddings.weight has shape "
            "(60, 40), expected (61, 40) = (vocab_size, hidden_size)");

  Parts parts = tiny_parts();
  parts.erase("encoder.layer.1.attention.self.key.bias");
  parts["encoder.layer.0.intermediate.dense.weight"].shape = {40, 72};
  parts["encoder.layer.2.output.LayerNorm.weight"].type = "I32";
  parts["encoder.layer.3.output.LayerNorm.weight"] = parts["encoder.layer.2.output.LayerNorm.bias"];
  EXPECT_EQ(rejection(parts),
            "FOLDER: 4 tensors do not match config.json: "
            "encoder.layer.0.intermediate.dense.weight has shape (40, 72), expected (72, 40) = (intermediate_size, "
            "hidden_size); encoder.layer.1.attention.self.key.bias is missing, expected (40,) = (hidden_size); "
            "encoder.layer.2.output.LayerNorm.weight has type I32, expected F32, F64, F16 or BF16; "
            "encoder.layer.3.output.LayerNorm.weight is not a tensor of a bert encoder with 3 layers");
}

TEST(EncoderLoad, UsesEachTensorOnce) {
  Parts parts = tiny_parts();
  parts["embeddings.LayerNorm.gamma"] = parts["embeddings.LayerNorm.weight"];
  EXPECT_EQ(rejection(parts),
            "FOLDER: 1 tensor does not match config.json: embeddings.LayerNorm.gamma is not a tensor of a "
            "bert encoder with 3 layers");
}

// An escape sequence that sets a terminal's title, and a bidirectional override.
constexpr std::string_view kControls = "\\u001b]0;x\\u0007\\u202e";
constexpr std::string_view kShownControls = "\\u{1b}]0;x\\u{7}\\u{202e}";

TEST(EncoderLoad, MessagesEscapeFileContents) {
  const std::string text = '"' + std::string(kControls) + '"';
  const std::string shown = " is \"" + std::string(kShownControls) + "\"; ";
  EXPECT_EQ(config_rejection("\"bert\"", text), "model_type" + shown + "expected \"bert\"");
  EXPECT_EQ(config_rejection("\"gelu\"", text).substr(0, 10 + shown.size()), "hidden_act" + shown);
  EXPECT_EQ(config_rejection("\"hidden_size\": 40", "\"hidden_size\": " + text).substr(0, 11 + shown.size()),
            "hidden_size" + shown);
  EXPECT_EQ(config_rejection("\"layer_norm_eps\": 0.001", "\"layer_norm_eps\": " + text).substr(0, 14 + shown.size()),
            "layer_norm_eps" + shown);
  Parts parts = tiny_parts();
  parts["a\u202e\u2066b"] = parts["embeddings.LayerNorm.weight"];
  EXPECT_EQ(rejection(parts),
            "FOLDER: 1 tensor does not match config.json: a\\u{202e}\\u{2066}b is not a tensor of a bert "
            "encoder with 3 layers");
}

TEST(EncoderLoad, MessagesEscapeTheFoldersName) {
  const std::string path = testing::TempDir() + "encoder_\x1b]0;x\x07\u202e";
  const std::string shown = testing::TempDir() + "encoder_\\u{1b}]0;x\\u{7}\\u{202e}";
  const auto rejection_of = [&](const std::string& config, const ModelFileOptions& options = {}) {
    std::filesystem::remove_all(path);
    std::filesystem::copy(kTiny, path);
    std::ofstream(path + "/config.json") << config;
    const std::string text = regard::rejection<std::runtime_error>([&] { load_encoder(path, options); });
    std::filesystem::remove_all(path);
    return text;
  };
  for (const std::string& text :
       {rejection_of("{}"), rejection_of("[]"), rejection_of("x"), rejection_of(with(tiny_config(), "\"bert\"", "1")),
        rejection_of(with(tiny_config(), "\"vocab_size\": 60", "\"vocab_size\": 61")),
        rejection_of(tiny_config(), {.max_memory_bytes = 1000}),
        rejection_of(tiny_config(), {.max_memory_bytes = 200000})}) {
    EXPECT_TRUE(text.starts_with(shown)) << text;
    EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
  }
}

TEST(EncoderLoad, TextsAreTruncatedAtCharacterBoundaries) {
  std::string word = "a";
  for (int i = 0; i < 60; ++i) word += "é";
  EXPECT_EQ(config_rejection("\"bert\"", '"' + word + '"'),
            "model_type is \"" + word.substr(0, 79) + "\"; expected \"bert\"");
}

TEST(EncoderLoad, CountsMismatchesBeyondAHundred) {
  const std::string text =
      rejection(with(tiny_config(), "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4096"), tiny_parts());
  EXPECT_TRUE(text.starts_with("FOLDER: 65488 tensors do not match config.json: ")) << text.substr(0, 100);
  EXPECT_TRUE(text.ends_with("; and 65388 more")) << text.substr(text.size() - 100);
}

std::uint64_t data_bytes(const Parts& parts) {
  std::uint64_t sum = 0;
  for (const auto& [name, part] : parts) sum += part.bytes.size();
  return sum;
}

TEST(EncoderLoad, RejectsModelsLargerThanAvailableMemory) {
  Parts parts = tiny_parts();
  for (auto& [name, part] : parts) part = {"F16", part.shape, std::string(part.bytes.size() / 2, '\0')};
  const std::uint64_t stored = data_bytes(parts);
  ModelFileOptions options;
  // As F32, and the packed copies of the matrices.
  std::uint64_t needed = 2 * stored;
  const Encoder encoder = load_encoder(kTiny);
  for (const EncoderLayer& layer : encoder.layers) {
    for (const auto* packed : {&layer.packed_projections, &layer.packed_output, &layer.packed_up, &layer.packed_down}) {
      needed += packed->num_bytes();
    }
  }
  options.max_memory_bytes = stored + needed - 1;
  EXPECT_EQ(rejection(tiny_config(), parts, options), "FOLDER: needs " + std::to_string(needed) +
                                                          " more bytes of memory for computation; " +
                                                          std::to_string(needed - 1) + " are available");
  options.max_memory_bytes = stored + needed;
  EXPECT_EQ(rejection(tiny_config(), parts, options), "accepted");
}

}  // namespace
}  // namespace regard::encoder_load_test
