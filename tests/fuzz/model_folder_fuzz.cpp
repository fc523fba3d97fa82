// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes as the files of a model folder are rejected, or are an encoder that encodes a text, or a
// decoder that continues one.
//
//     bytes    4                4                  c            t                           the rest
//              c, little-end.   t, little-endian   config.json  tokenizer.json, of a        model.safetensors
//                                                               decoder vocabulary.json
//
// Read next: include/regard/explain/sentence.h, tests/fuzz/model_folder_corpus.py.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "regard/explain/sentence.h"
#include "regard/model/generate.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// The folder is removed when the process exits normally.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / "regard-fuzz-XXXXXX") {
    require(mkdtemp(path_.data()) != nullptr);
  }
  ~Folder() {
    for (const char* file : kFiles) unlink((path_ + "/" + file).c_str());
    rmdir(path_.c_str());
  }
  const std::string& path() const { return path_; }
  void write(int file, std::string_view bytes) const {
    std::ofstream(path_ + "/" + kFiles[file], std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
  }

 private:
  static constexpr const char* kFiles[] = {"config.json", "tokenizer.json", "model.safetensors", "vocabulary.json"};
  std::string path_;
};

std::string_view take(std::string_view& bytes, std::size_t count) {
  const std::string_view front = bytes.substr(0, count);
  bytes.remove_prefix(front.size());
  return front;
}

std::size_t take_length(std::string_view& bytes) {
  std::size_t length = 0;
  const std::string_view front = take(bytes, 4);
  for (std::size_t i = 0; i < front.size(); ++i) length |= std::size_t{static_cast<unsigned char>(front[i])} << 8 * i;
  return length;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::size_t config_bytes = take_length(rest), tokenizer_bytes = take_length(rest);
  folder.write(0, take(rest, config_bytes));
  const std::string_view tokenizer = take(rest, tokenizer_bytes);
  folder.write(1, tokenizer);
  folder.write(2, rest);
  folder.write(3, tokenizer);

  regard::Runtime runtime;
  runtime.num_threads = 1;
  regard::ModelFileOptions options;
  options.max_memory_bytes = 128 << 20;
  for (const bool map : {false, true}) {
    options.map = map;
    try {
      const regard::SentenceModel model = regard::load_sentence_model(folder.path(), options, runtime);
      const char* const content = model.trained ? "b a" : "a b [MASK] ab";
      const regard::TokenizedText text = regard::fitted_tokens(model, content, false, runtime.stop).tokens;
      const regard::ModelTrace trace = model.trace(text.ids, {}, runtime);
      require(trace.output().shape()[0] == static_cast<regard::Index>(text.ids.size()));
      if (model.trained) {
        const auto ids = regard::generate(model.trained->decoder, text.ids, {.max_tokens = 3}, runtime).ids;
        require(!ids.empty() && ids.size() <= 3);
        model.trained->vocabulary.decode(ids);
      }
    } catch (const std::runtime_error& error) {
      require(std::string_view(error.what()).starts_with(folder.path()));
      require(std::string_view(error.what()).find('\n') == std::string_view::npos);
    } catch (const std::invalid_argument&) {
      // More tokens than the model has positions, or a token that its vocabulary lacks.
      continue;
    }
  }
  return 0;
}
