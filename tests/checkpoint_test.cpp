// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints of training runs: the same bits come back, two are kept, other runs and changed files are rejected, and a
// process that is killed at any moment leaves a complete one.
// Read next: trainer_test.cpp, src/train/checkpoint/checkpoint.cpp, src/train/checkpoint/checkpoint_files.cpp.
#include "regard/train/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "regard/io/safetensors.h"
#include "support/killed_child.h"
#include "support/model_bytes.h"
#include "support/rejection.h"

namespace regard::checkpoint_test {
namespace {

namespace fs = std::filesystem;

TrainingSettings small_settings() {
  return completed({.model = {.vocabulary = 7,
                              .num_layers = 2,
                              .num_heads = 2,
                              .width = 4,
                              .feed_forward = 6,
                              .max_positions = 5,
                              .biases = true},
                    .steps = 100,
                    .batch = 4,
                    .seed = 0xfedcba9876543210,
                    .warmup = 3,
                    .weight_decay = 1.0 / 3});
}

TrainingData small_data() { return {"tale.txt", {{"SHA-256 of the text", std::string(64, 'a')}, {"kind", "text"}}}; }

// A run whose values are a function of its step.
template <class T>
struct SmallRun {
  explicit SmallRun(Index steps, const TrainingSettings& settings = small_settings())
      : state{settings, small_data(), {}, {{"vocabulary.json", "{\"größe\": 1}\n"}}} {
    const auto size = static_cast<std::size_t>(decoder_size(settings.model));
    for (std::size_t i = 0; i < size; ++i) {
      const double x = static_cast<double>(i) + 1000 * static_cast<double>(steps);
      parameters.push_back(static_cast<T>(std::sin(x)));
      first.push_back(static_cast<T>(std::cos(x) * 1e-30));
      second.push_back(static_cast<T>(1 / (x + 1)));
    }
    for (Index step = 0; step < steps; ++step) {
      const auto x = static_cast<double>(step);
      state.history.push_back({step, 1 / (x + 3), std::exp(x / 50), 1e-3 * x});
    }
  }
  TrainingArrays<const T> arrays() const { return {parameters, first, second}; }
  TrainingArrays<T> arrays() { return {parameters, first, second}; }
  bool operator==(const SmallRun& other) const {
    return parameters == other.parameters && first == other.first && second == other.second &&
           state.history == other.state.history && state.files == other.state.files &&
           state.settings == other.state.settings && state.data.name == other.state.data.name &&
           state.data.identity == other.state.data.identity;
  }
  std::string save(const std::string& run) const { return save_checkpoint<T>(run, state, arrays()); }
  // Loads into this run and returns the warning.
  std::string load(const std::string& checkpoint, const TrainingData& data = small_data()) {
    LoadedCheckpoint loaded = load_checkpoint<T>(checkpoint, state.settings, data, arrays());
    state = std::move(loaded.state);
    return loaded.warning;
  }

  TrainingState state;
  std::vector<T> parameters, first, second;
};

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string contents_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void write(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// The message of a load, without the path of the checkpoint.
std::string load_rejection(const std::string& checkpoint, const TrainingSettings& settings = small_settings(),
                           const TrainingData& data = small_data()) {
  SmallRun<float> run(0, settings);
  const SmallRun<float> before = run;
  std::string message = rejection<DataError>([&] { run.load(checkpoint, data); });
  EXPECT_TRUE(message == "accepted" || run == before) << message;
  if (message.starts_with(checkpoint)) message.erase(0, checkpoint.size());
  return message;
}

// The message of a load after a piece of training.json has been replaced.
std::string changed_rejection(std::string_view piece, std::string_view other) {
  const TestFolder folder;
  const std::string checkpoint = SmallRun<float>(2).save(folder / "run");
  std::string text = contents_of(checkpoint + "/training.json");
  const std::size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece << " is not in " << text;
  write(checkpoint + "/training.json", text.replace(at, piece.size(), other));
  return load_rejection(checkpoint);
}

template <class T>
class CheckpointOf : public testing::Test {};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(CheckpointOf, Floats);

TYPED_TEST(CheckpointOf, ComesBackWithTheSameBits) {
  const TestFolder folder;
  TrainingSettings settings = small_settings();
  if (sizeof(TypeParam) == 8) settings.precision = TrainingPrecision::float64;
  for (Index steps : {0, 1, 50}) {
    const SmallRun<TypeParam> saved(steps, settings);
    const std::string checkpoint = saved.save(folder / "run");
    SmallRun<TypeParam> loaded(99, settings);
    EXPECT_EQ(loaded.load(checkpoint), "");
    EXPECT_EQ(loaded, saved);
    const TrainingState read = read_training_state(checkpoint);
    EXPECT_EQ(read.history, saved.state.history);
    EXPECT_EQ(read.settings, settings);
    EXPECT_EQ(read.files, saved.state.files);
  }
}

TEST(Checkpoint, TheSameRunGivesTheSameFiles) {
  const TestFolder folder;
  const std::string a = SmallRun<float>(7).save(folder / "a"), b = SmallRun<float>(7).save(folder / "b");
  EXPECT_EQ(names_in(a), (std::vector<std::string>{"config.json", "model.safetensors", "optimizer.safetensors",
                                                   "training.json", "vocabulary.json"}));
  for (const std::string& name : names_in(a)) EXPECT_EQ(contents_of(a + "/" + name), contents_of(b + "/" + name));
}

TEST(Checkpoint, TheModelIsInFilesOfItsOwn) {
  const TestFolder folder;
  const std::string checkpoint = SmallRun<float>(3).save(folder / "run");
  const DecoderConfig config = parse_decoder_config(contents_of(checkpoint + "/config.json"), "config.json");
  EXPECT_EQ(config, small_settings().model);
  const Checkpoint model = Checkpoint::read_folder(checkpoint);
  const std::vector<DecoderParameter> parameters = decoder_parameters(config);
  EXPECT_EQ(model.tensors().size(), parameters.size());
  for (const DecoderParameter& parameter : parameters) {
    ASSERT_NE(model.find(parameter.name), nullptr) << parameter.name;
    EXPECT_EQ(model.find(parameter.name)->shape, parameter.shape);
  }
  EXPECT_EQ(trained_model_folder(folder / "run"), checkpoint);
  EXPECT_EQ(trained_model_folder(checkpoint), checkpoint);
  EXPECT_EQ(rejection<DataError>([&] { trained_model_folder(folder.path()); }),
            folder.path() +
                ": has neither a config.json nor a checkpoint; expected the folder of a training run or of a model");
}

TEST(Checkpoint, TheTwoNewestAreKept) {
  const TestFolder folder;
  const std::string run = folder / "run";
  EXPECT_TRUE(list_checkpoints(run).empty());
  for (Index steps : {3, 20, 21, 100}) SmallRun<float>(steps).save(run);
  EXPECT_EQ(names_in(run), (std::vector<std::string>{"step-00000021", "step-00000100"}));
  EXPECT_EQ(list_checkpoints(run), (std::vector<std::string>{run + "/step-00000021", run + "/step-00000100"}));
}

TEST(Checkpoint, OnlyFoldersOfStepsAreListed) {
  const TestFolder folder;
  for (const char* name : {"step-00000007", "step-123456789", "step-7", "step-0000000x", "step-000000010",
                           "Step-00000001", "step-00000001.partial", ".step-00000009.partial", "step-", "other"}) {
    fs::create_directory(folder / name);
  }
  folder.write("step-00000008", "a file");
  EXPECT_EQ(list_checkpoints(folder.path()),
            (std::vector<std::string>{folder / "step-00000007", folder / "step-123456789"}));
  // A link that leads nowhere is an error; a folder that does not exist has no checkpoints.
  fs::create_symlink("nowhere", folder / "link");
  EXPECT_EQ(rejection<DataError>([&] { list_checkpoints(folder / "link"); }),
            folder / "link" + ": cannot be read: No such file or directory");
}

TEST(Checkpoint, SavingAStepAgainReplacesIt) {
  const TestFolder folder;
  SmallRun<float> run(5);
  run.save(folder / "run");
  run.parameters[0] = 42;
  const std::string checkpoint = run.save(folder / "run");
  EXPECT_EQ(names_in(folder / "run"), (std::vector<std::string>{"step-00000005"}));
  SmallRun<float> loaded(0);
  loaded.load(checkpoint);
  EXPECT_EQ(loaded.parameters[0], 42);
}

TEST(Checkpoint, AFolderWithALaterStepIsNotOverwritten) {
  const TestFolder folder;
  const std::string run = folder / "run";
  SmallRun<float>(10).save(run);
  EXPECT_EQ(
      rejection<DataError>([&] { SmallRun<float>(9).save(run); }),
      run +
          ": contains a checkpoint from step 10, later than step 9 of this run; expected the folder of this run, or "
          "an empty one");
  EXPECT_EQ(names_in(run), (std::vector<std::string>{"step-00000010"}));
}

TEST(Checkpoint, RemainsOfAKilledProcessAreRemoved) {
  const TestFolder folder;
  fs::create_directories(folder / ".step-00000001.partial/sub");
  fs::create_directories(folder / ".step-00000000.old");
  folder.write(".step-00000001.partial/config.json", "x");
  folder.write("notes.txt", "kept");
  SmallRun<float>(1).save(folder.path());
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"notes.txt", "step-00000001"}));
}

TEST(Checkpoint, MessagesOfAFailedSaveNameThePath) {
  const TestFolder folder;
  const std::string file = folder.write("file", "");
  EXPECT_EQ(rejection<DataError>([&] { SmallRun<float>(1).save(file); }).find(file + ": "), 0u);
  EXPECT_EQ(rejection<DataError>([&] { SmallRun<float>(1).save(folder / "no/run"); }),
            folder / "no/run" + ": the folder cannot be created: No such file or directory");
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"file"}));
}

TEST(Checkpoint, RejectsArraysOfOtherSizesAndNamesOfFiles) {
  const TestFolder folder;
  SmallRun<float> run(1);
  run.second.pop_back();
  EXPECT_EQ(rejection([&] { run.save(folder / "run"); }),
            "save_checkpoint: second_moment has 363 elements; expected 364");
  for (const char* name : {"", "../x", "a/b", ".x", "model.safetensors", "training.json", "vocabulary.json", "a b"}) {
    SmallRun<float> other(1);
    other.state.files.push_back({name, ""});
    EXPECT_EQ(rejection([&] { other.save(folder / "run"); }),
              "save_checkpoint: file 1 is \"" + std::string(name) + "\"; expected a plain name that no other file has");
  }
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(Checkpoint, AnotherTextIsRejected) {
  const TestFolder folder;
  const std::string checkpoint = SmallRun<float>(1).save(folder / "run");
  TrainingData data = small_data();
  data.name = "moved/tale.txt";
  EXPECT_EQ(load_rejection(checkpoint, small_settings(), data), "accepted");
  data.identity[0].second = std::string(64, 'b');
  EXPECT_EQ(load_rejection(checkpoint, small_settings(), data),
            ": was saved with SHA-256 of the text " + std::string(64, 'a') + "; this run has " + std::string(64, 'b'));
  EXPECT_EQ(load_rejection(checkpoint, small_settings(), {"induction", {{"task", "induction"}}}),
            ": was saved with SHA-256 of the text " + std::string(64, 'a') + "; this run has none");
}

TEST(Checkpoint, EverySettingThatChangesBitsIsCompared) {
  const TestFolder folder;
  const std::string checkpoint = SmallRun<float>(1).save(folder / "run");
  const auto message = [&](auto change) {
    TrainingSettings settings = small_settings();
    change(settings);
    return load_rejection(checkpoint, completed(settings));
  };
  using S = TrainingSettings;
  EXPECT_EQ(message([](S& s) { s.steps = 101; }), ": was saved with steps 100; this run has 101");
  EXPECT_EQ(message([](S& s) { s.batch = 5; }), ": was saved with batch 4; this run has 5");
  EXPECT_EQ(message([](S& s) { s.length = 3; }), ": was saved with length 5; this run has 3");
  EXPECT_EQ(message([](S& s) { s.seed = 1; }), ": was saved with seed 18364758544493064720; this run has 1");
  EXPECT_EQ(message([](S& s) { s.optimizer = OptimizerKind::muon; }),
            ": was saved with optimizer adamw; this run has muon");
  EXPECT_EQ(message([](S& s) { s.learning_rate = 0.002; }), ": was saved with learning_rate 0.001; this run has 0.002");
  EXPECT_EQ(message([](S& s) { s.muon_learning_rate = 0.03; }),
            ": was saved with muon_learning_rate 0.02; this run has 0.03");
  EXPECT_EQ(message([](S& s) { s.min_learning_rate = 0; }), ": was saved with min_learning_rate 1e-04; this run has 0");
  EXPECT_EQ(message([](S& s) { s.warmup = 4; }), ": was saved with warmup 3; this run has 4");
  EXPECT_EQ(message([](S& s) { s.schedule = ScheduleKind::linear; }),
            ": was saved with schedule cosine; this run has linear");
  EXPECT_EQ(message([](S& s) { s.beta1 = 0.8; }), ": was saved with beta1 0.9; this run has 0.8");
  EXPECT_EQ(message([](S& s) { s.beta2 = 0.999; }), ": was saved with beta2 0.99; this run has 0.999");
  EXPECT_EQ(message([](S& s) { s.epsilon = 1e-9; }), ": was saved with epsilon 1e-08; this run has 1e-09");
  EXPECT_EQ(message([](S& s) { s.weight_decay = 0; }),
            ": was saved with weight_decay 0.3333333333333333; this run has 0");
  EXPECT_EQ(message([](S& s) { s.clip = 2; }), ": was saved with clip 1; this run has 2");
  EXPECT_EQ(message([](S& s) { s.dropout = 0.1; }), ": was saved with dropout 0; this run has 0.1");
  EXPECT_EQ(message([](S& s) { s.precision = TrainingPrecision::bf16_products; }),
            ": was saved with precision float32; this run has bf16_products");
  EXPECT_EQ(message([](S& s) { s.model.norm = NormKind::rms; }), ": was saved with norm layer; this run has rms");
  EXPECT_EQ(message([](S& s) { s.model.num_layers = 3; }), ": was saved with num_layers 2; this run has 3");
  EXPECT_EQ(message([](S& s) { s.model.tied = false; }), ": was saved with tied true; this run has false");
  EXPECT_EQ(message([](S& s) { s.model.feed_forward_kind = FeedForwardKind::relu; }),
            ": was saved with feed_forward_kind gelu; this run has relu");
  EXPECT_EQ(message([](S& s) { s.model.norm_epsilon = 0.1; }), ": was saved with norm_epsilon 1e-05; this run has 0.1");
}

TEST(Checkpoint, SettingsThatDoNotChangeBitsMayDiffer) {
  const TestFolder folder;
  TrainingSettings settings = small_settings();
  settings.schedule = ScheduleKind::constant;
  const std::string checkpoint = SmallRun<float>(1, settings).save(folder / "run");
  settings.micro_batch = 1;
  settings.recompute = true;
  settings.steps = 1000;
  EXPECT_EQ(load_rejection(checkpoint, settings), "accepted");
  settings.schedule = ScheduleKind::cosine;
  EXPECT_EQ(load_rejection(checkpoint, settings), ": was saved with steps 100; this run has 1000");
}

TEST(Checkpoint, AnotherVersionOfTheNumericsIsRejected) {
  EXPECT_EQ(changed_rejection("\"numerics\": 1", "\"numerics\": 2"),
            ": was saved with version of the numerics 2; this run has 1");
}

TEST(Checkpoint, AnotherInstructionSetGivesAWarning) {
  const TestFolder folder;
  SmallRun<float> run(2);
  const std::string checkpoint = run.save(folder / "run");
  std::string text = contents_of(checkpoint + "/training.json");
  const std::size_t at = text.find("\"fused_multiply_add\": ") + std::string("\"fused_multiply_add\": ").size();
  const bool fused = text.compare(at, 4, "true") == 0;
  text.replace(at, fused ? 4 : 5, fused ? "false" : "true");
  const std::size_t set = text.find(active_instruction_set());
  write(checkpoint + "/training.json", text.replace(set, active_instruction_set().size(), "other"));
  EXPECT_EQ(run.load(checkpoint),
            checkpoint + ": was saved with the instruction set other; this run uses " + active_instruction_set() +
                ", which rounds differently: from this step on, the results are not bit-identical "
                "to the results of an uninterrupted run");
}

TEST(Checkpoint, InvalidFieldsOfTrainingJsonAreNamed) {
  EXPECT_NE(changed_rejection("\"step\": 2", "\"step\": -1").find("step is -1; expected an integer from 0 to"),
            std::string::npos);
  EXPECT_EQ(changed_rejection("\"step\": 2", "\"step\": 3"),
            "/optimizer.safetensors: history.loss is F64 (2); expected F64 (3)");
  // Nothing is allocated for a number of steps that no file has.
  EXPECT_EQ(changed_rejection("\"step\": 2", "\"step\": 1000000000000"),
            "/optimizer.safetensors: history.loss is F64 (2); expected F64 (1000000000000)");
  EXPECT_NE(changed_rejection("\"cosine\"", "\"sine\"").find("schedule is \"sine\"; expected \"constant\", \"cosine\""),
            std::string::npos);
  EXPECT_NE(changed_rejection("\"18364758544493064720\"", "\"1e3\"").find("seed is \"1e3\"; expected the digits"),
            std::string::npos);
  EXPECT_EQ(changed_rejection("\"beta1\": 0.9", "\"beta1\": 1"),
            "/training.json: training: beta1 is 1; expected a number of at least 0 and below 1");
  EXPECT_EQ(changed_rejection("\"clip\"", "\"clap\""), "/training.json: clip is missing");
  EXPECT_NE(changed_rejection("\"vocabulary.json\"", "\"../../x\"").find("\"../../x\" is not a plain file name"),
            std::string::npos);
  EXPECT_EQ(changed_rejection("\"model.safetensors\"", "\"model\""),
            "/model: cannot be opened: No such file or directory");
}

// Truncated anywhere, and with any byte changed, every file is rejected by its path.
TEST(Checkpoint, ChangedFilesAreRejected) {
  const TestFolder folder;
  const std::string checkpoint = SmallRun<float>(3).save(folder / "run");
  for (const std::string& name : names_in(checkpoint)) {
    const std::string path = checkpoint + "/" + name;
    const std::string bytes = contents_of(path);
    const std::size_t step = bytes.size() / 23 + 1;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      write(path, std::string_view(bytes).substr(0, at));
      EXPECT_TRUE(load_rejection(checkpoint).starts_with("/" + name + ": ")) << name << " truncated to " << at;
      if (name == "training.json") continue;
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ 0x20);
      write(path, changed);
      EXPECT_TRUE(load_rejection(checkpoint).starts_with("/" + name + ": ")) << name << " changed at " << at;
    }
    fs::remove(path);
    EXPECT_EQ(load_rejection(checkpoint), "/" + name + ": cannot be opened: No such file or directory");
    write(path, bytes);
  }
  EXPECT_EQ(load_rejection(checkpoint), "accepted");
}

TEST(Checkpoint, ParametersOfAnotherTypeAreRejected) {
  const TestFolder folder;
  TrainingSettings settings = small_settings();
  const std::string checkpoint = SmallRun<double>(1, settings).save(folder / "run");
  EXPECT_EQ(load_rejection(checkpoint, settings),
            "/model.safetensors: model.embed_tokens.weight is F64 (7, 4); expected F32 (7, 4)");
}

// A child saves checkpoint after checkpoint and is killed at a random moment, again and again. Each time there is a
// complete checkpoint, from which the next child continues.
TEST(Checkpoint, ForkedProcessKilledAtAnyMomentLeavesACheckpoint) {
  const TestFolder folder(fastest_folder());
  const std::string run = folder / "run";
  SmallRun<float>(0).save(run);
  const auto time = time_in_child([&] { SmallRun<float>(1).save(run); });
  std::uint32_t random = 20251125;
  std::set<std::string> seen;
  std::size_t num_remains = 0;
  for (int kill = 0; kill < kKills / 2; ++kill) {
    kill_at_random_moment(
        [&] {
          auto step = static_cast<Index>(read_training_state(list_checkpoints(run).back()).history.size());
          while (true) SmallRun<float>(++step).save(run);
        },
        time, random);
    const std::vector<std::string> checkpoints = list_checkpoints(run);
    ASSERT_FALSE(checkpoints.empty());
    for (const std::string& checkpoint : checkpoints) {
      SmallRun<float> loaded(0);
      ASSERT_EQ(rejection<DataError>([&] { loaded.load(checkpoint); }), "accepted");
      ASSERT_EQ(loaded, SmallRun<float>(static_cast<Index>(loaded.state.history.size()))) << checkpoint;
    }
    seen.insert(checkpoints.back());
    num_remains += names_in(run).size() - checkpoints.size();
  }
  EXPECT_GT(seen.size(), 1u) << "children were killed before they saved anything";
  EXPECT_GT(num_remains, 0u) << "no child was killed while it saved";
}

}  // namespace
}  // namespace regard::checkpoint_test
