// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any text as the training.json of a checkpoint whose other files are valid is rejected with its
// path, or is the checkpoint of the same run.
// Read next: src/train/checkpoint/checkpoint_files.cpp, docs/reference/file-formats.md.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "regard/error.h"
#include "regard/train/checkpoint.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

regard::TrainingSettings settings() {
  return regard::completed({.model = {.vocabulary = 3, .width = 2, .feed_forward = 2, .max_positions = 2}});
}

// A run with one step, and the folder of its checkpoint, which is removed when the process exits normally.
class Run {
 public:
  Run() : folder_(std::filesystem::temp_directory_path() / "regard-fuzz-XXXXXX") {
    require(mkdtemp(folder_.data()) != nullptr);
    const auto size = static_cast<std::size_t>(regard::decoder_size(settings().model));
    for (std::vector<float>* array : {&parameters_, &first_, &second_}) array->assign(size, 0.5f);
    path_ = regard::save_checkpoint<float>(folder_,
                                           {settings(), data_, {{0, 1.5, 2.5, 1e-3}}, {{"vocabulary.json", "{}\n"}}},
                                           {parameters_, first_, second_});
  }
  ~Run() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  void load(std::string_view text) {
    std::ofstream(path_ + "/training.json", std::ios::binary).write(text.data(), static_cast<long>(text.size()));
    try {
      const regard::LoadedCheckpoint loaded =
          regard::load_checkpoint<float>(path_, settings(), data_, {parameters_, first_, second_});
      require(loaded.state.history.size() == 1 && loaded.state.history[0].loss == 1.5);
      require(!regard::first_difference(loaded.state.settings, settings()));
      require(loaded.state.data.identity == data_.identity);
    } catch (const regard::DataError& error) {
      require(std::string_view(error.what()).starts_with(path_));
      require(std::string_view(error.what()).find('\n') == std::string_view::npos);
    }
  }

 private:
  std::string folder_, path_;
  regard::TrainingData data_{"fuzz", {{"kind", "text"}}};
  std::vector<float> parameters_, first_, second_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Run run;
  run.load({reinterpret_cast<const char*>(data), size});
  return 0;
}
