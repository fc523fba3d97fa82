// SPDX-License-Identifier: Apache-2.0
//
// Calls that read a model, its text files or JSON, and calls that render sentences as text, end if a stop is requested;
// and a call that follows gives the normal result.
// Read next: python/calls_test.py, which stops them midway.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <stop_token>

#include "regard/explain/compare.h"
#include "regard/explain/sentence_report.h"
#include "regard/explain/steps.h"
#include "regard/io/json.h"
#include "regard/io/rounding.h"
#include "support/data_path.h"
#include "support/model_bytes.h"
#include "support/sentence_model.h"

namespace regard::model_stop_test {
namespace {

const std::string kTiny = data_path("encoder/tiny");
const std::string kHash = "72996caf631517e28a1bcf7363d7757eb65f9a16ea9e81e29cd926bd6b412daa";  // of its numbers

Runtime stopped() {
  std::stop_source source;
  source.request_stop();
  return {.stop = source.get_token()};
}

// Is cancelled, and then succeeds without a stop request.
void stops(const char* name, const std::function<void(const Runtime&)>& call) {
  EXPECT_THROW(call(stopped()), Cancelled) << name;
  EXPECT_NO_THROW(call({})) << name;
}

TEST(ModelStop, ReadingTensors) {
  const std::string header = R"({"half": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}})";
  const SharedBytes bytes = share_bytes(to_bytes(safetensors_bytes(header, std::string("\x00\x3c\x00\xc0", 4))));
  const Checkpoint half = Checkpoint::read_memory(bytes, "half");
  const Checkpoint tiny = Checkpoint::read_file(kTiny + "/model.safetensors");
  const StoredTensor& single = tiny.tensors().front();
  ASSERT_EQ(single.type, ElementType::float32);
  const StoredTensor& stored = half.tensors().front();

  stops("read_file", [](const Runtime& r) { Checkpoint::read_file(kTiny + "/model.safetensors", {}, r.stop); });
  stops("mapped", [](const Runtime& r) { Checkpoint::read_file(kTiny + "/model.safetensors", {.map = true}, r.stop); });
  stops("read_folder", [](const Runtime& r) { Checkpoint::read_folder(kTiny, {}, r.stop); });
  stops("read_memory", [&](const Runtime& r) { Checkpoint::read_memory(bytes, "half", {}, r.stop); });
  stops("read_float32 of F32",
        [&](const Runtime& r) { EXPECT_EQ(tiny.read_float32(single, r.stop)[0], tiny.read_float32(single)[0]); });
  stops("read_float32 of F16",
        [&](const Runtime& r) { EXPECT_EQ(half.read_float32(stored, r.stop), (std::vector<float>{1, -2})); });
  const StoredTensor* matrix = tiny.find("embeddings.word_embeddings.weight");
  stops("round_tensors", [&](const Runtime& r) { round_tensors(tiny, {&matrix, 1}, ElementType::int8, r.stop); });
  stops("share_float32", [&](const Runtime& r) { EXPECT_EQ(half.share_float32(stored, r.stop).get()[1], -2); });
  stops("sha256", [&](const Runtime& r) { EXPECT_EQ(tiny.sha256(r.stop), kHash); });
  EXPECT_EQ(tiny.sha256(stopped().stop), kHash);  // already computed
}

TEST(ModelStop, ReadingShards) {
  const TestFolder folder;
  const std::string index = R"({"weight_map": {"a": "one.safetensors"}})";
  folder.write("one.safetensors", safetensors_bytes(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
                                                    bytes_of<float>({1})));
  folder.write("model.safetensors.index.json", index);
  stops("read_folder", [&](const Runtime& r) { Checkpoint::read_folder(folder.path(), {}, r.stop); });
  stops("read_shard_index", [&](const Runtime& r) { read_shard_index(index, "index", r.stop); });
}

TEST(ModelStop, ReadingTexts) {
  const std::string tokenizer = small_tokenizer_json();
  stops("read_model_text", [](const Runtime& r) { read_model_text(kTiny, "config.json", 10000, r.stop); });
  stops("valid_utf8_bytes", [](const Runtime& r) { EXPECT_EQ(valid_utf8_bytes("text", r.stop), 4u); });
  stops("read_json", [](const Runtime& r) { read_json("[1, 2]", "numbers", 64, r.stop); });
  stops("Tokenizer::read", [&](const Runtime& r) { Tokenizer::read(tokenizer, "tokenizer.json", {}, r.stop); });
  stops("read_explain_input",
        [](const Runtime& r) { read_explain_input(R"({"Q": [[1]], "K": [[1]], "V": [[1]]})", "input", r.stop); });
}

TEST(ModelStop, LoadingFolders) {
  const TestFolder folder;
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(kTiny + "/" + name, folder / name);
  }
  folder.write("tokenizer.json", small_tokenizer_json());
  stops("load_encoder", [&](const Runtime& r) { load_encoder(folder.path(), {}, r); });
  stops("Tokenizer::read_folder", [&](const Runtime& r) { Tokenizer::read_folder(folder.path(), {}, r.stop); });
  stops("load_sentence_model", [&](const Runtime& r) { load_sentence_model(folder.path(), {}, r); });
}

TEST(ModelStop, RenderingSentences) {
  const SentenceModel& model = small_sentence_model();
  const SentenceAnalysis analysis = analyze_sentence(model, "he sat on the bank", {.query = "bank", .full = true});
  const Comparison comparison = compare_word(model, "bank", {"he sat on the bank", "the bank of the river"});
  stops("render_sentence_text", [&](const Runtime& r) { render_sentence_text(analysis, {}, r.stop); });
  stops("render_compare_text", [&](const Runtime& r) { render_compare_text(comparison, {}, r.stop); });
}

}  // namespace
}  // namespace regard::model_stop_test
