// SPDX-License-Identifier: Apache-2.0
//
// Training runs: the same bytes for any number of threads, micro-batches, evaluations, checkpoints and kills; and what
// is reported when a value is not finite. Watched runs: their record, and that watching changes nothing.
// Read next: checkpoint_test.cpp, gradient_chain_test.cpp, src/train/trainer.cpp.
#include "regard/train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "regard/io/json.h"
#include "regard/io/safetensors.h"
#include "regard/train/watched_run.h"
#include "support/data_path.h"
#include "support/killed_child.h"
#include "support/model_bytes.h"
#include "support/rejection.h"
#include "support/small_runs.h"

namespace regard::trainer_test {
namespace {

namespace fs = std::filesystem;

// The same run in one piece, and in two that a checkpoint joins, with everything that must not change a bit.
void expect_identical_bytes(TrainingSettings settings) {
  const TestFolder folder;
  settings.steps = 40;
  Trainer whole = make(settings, {.num_threads = 1});
  advance(whole, 40, {.num_threads = 1});
  EXPECT_TRUE(whole.done());
  const std::string expected = arrays_of(whole.save(folder / "whole"));
  int number = 0;
  for (int threads : {1, 2, 4}) {
    const Runtime runtime{.num_threads = threads};
    settings.micro_batch = std::array{6, 4, 1}[static_cast<std::size_t>(number)];
    settings.recompute = threads == 2;
    const std::string run = folder / std::to_string(number++);
    {
      Trainer first = make(settings, runtime);
      advance(first, 17, runtime);
      first.evaluate(TaskSplit::held_out, 5, {}, 0, runtime);
      first.save(run);
      // Steps after the last checkpoint are lost, and computed again.
      advance(first, 3, runtime);
    }
    Trainer second = make(settings, runtime);
    advance(second, 2, runtime);
    EXPECT_EQ(second.resume(run).warning, "");
    EXPECT_EQ(second.history().size(), 17u);
    advance(second, 23, runtime);
    EXPECT_EQ(second.history(), whole.history());
    EXPECT_TRUE(arrays_of(second.save(run)) == expected) << threads << " threads";
  }
}

TEST(Trainer, ResumedRunsGiveTheSameBytes) { expect_identical_bytes(small_settings()); }

TEST(Trainer, ResumedRunsOfALlamaWithDropoutAndMuonGiveTheSameBytes) {
  TrainingSettings settings = small_settings();
  settings.model.norm = NormKind::rms;
  settings.model.positions = PositionKind::rotary;
  settings.model.feed_forward_kind = FeedForwardKind::swiglu;
  settings.model.num_kv_heads = 1;
  settings.model.tied = false;
  settings.dropout = 0.1;
  settings.optimizer = OptimizerKind::muon;
  expect_identical_bytes(settings);
}

TEST(Trainer, ResumedRunsInDoubleGiveTheSameBytes) {
  TrainingSettings settings = small_settings();
  settings.precision = TrainingPrecision::float64;
  settings.model.biases = true;
  expect_identical_bytes(settings);
}

TEST(Trainer, ResumedRunsWithBfloat16ProductsGiveTheSameBytes) {
  TrainingSettings settings = small_settings();
  settings.precision = TrainingPrecision::bf16_products;
  expect_identical_bytes(settings);
}

TEST(Trainer, LearnsToCount) {
  TrainingSettings settings = small_settings();
  settings.steps = 600;
  Trainer trainer = make(settings);
  const Evaluation before = trainer.evaluate(TaskSplit::held_out, 20);
  EXPECT_NEAR(before.loss, std::log(kVocabulary), 0.2);
  advance(trainer, 600);
  const Evaluation after = trainer.evaluate(TaskSplit::held_out, 20);
  EXPECT_LT(after.loss, 0.1);
  EXPECT_EQ(after.num_targets, 20 * (kLength - 1));
  EXPECT_EQ(after.correct_targets, after.num_targets);
  EXPECT_EQ(after.correct_sequences, 20);
  EXPECT_LT(trainer.history().back().loss, 0.1);
  EXPECT_GT(trainer.history()[5].gradient_norm, 0);
  EXPECT_EQ(trainer.history()[5].step, 5);
  EXPECT_LT(trainer.history()[0].learning_rate, trainer.history()[5].learning_rate);
}

TEST(Trainer, EvaluationIsThatOfTheModelInAnyMicroBatch) {
  TrainingSettings settings = small_settings();
  Trainer trainer = make(settings);
  advance(trainer, 10);
  settings.micro_batch = 1;
  Trainer one = make(settings);
  advance(one, 10);
  for (const AblatedHead& ablated : {AblatedHead{}, AblatedHead{1, 0}}) {
    const Evaluation a = trainer.evaluate(TaskSplit::train, 8, ablated, 3);
    const Evaluation b = one.evaluate(TaskSplit::train, 8, ablated, 3);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.correct_targets, b.correct_targets);
    EXPECT_EQ(a.correct_sequences, b.correct_sequences);
    // The mean over examples that are evaluated one by one.
    double sum = 0;
    Index correct = 0;
    for (Index i = 0; i < 8; ++i) {
      const Evaluation single = trainer.evaluate(TaskSplit::train, 1, ablated, 3 + i);
      sum += single.loss;
      correct += single.correct_targets;
    }
    EXPECT_NEAR(a.loss, sum / 8, 1e-6);
    EXPECT_EQ(a.correct_targets, correct);
  }
  EXPECT_NE(trainer.evaluate(TaskSplit::train, 8).loss, trainer.evaluate(TaskSplit::train, 8, {1, 0}).loss);
}

TEST(Trainer, AStopLeavesTheRunAsItWas) {
  Trainer expected = make(small_settings());
  advance(expected, 6);
  Trainer trainer = make(small_settings());
  advance(trainer, 5);
  std::stop_source source;
  source.request_stop();
  EXPECT_THROW(trainer.step({.stop = source.get_token()}), Cancelled);
  EXPECT_EQ(trainer.history().size(), 5u);
  trainer.step();
  const TestFolder folder;
  EXPECT_TRUE(arrays_of(trainer.save(folder / "a")) == arrays_of(expected.save(folder / "b")));
}

TEST(Trainer, SavesAStepOnce) {
  const TestFolder folder;
  Trainer trainer = make(small_settings());
  advance(trainer, 1);
  const std::string checkpoint = trainer.save(folder / "run");
  fs::remove(checkpoint + "/vocabulary.json");
  EXPECT_EQ(trainer.save(folder / "run"), checkpoint);
  EXPECT_FALSE(fs::exists(checkpoint + "/vocabulary.json"));
  trainer.step();
  const std::string next = trainer.save(folder / "run", {{"notes.txt", "a note"}});
  EXPECT_EQ(contents_of(next + "/vocabulary.json"), "{}\n");
  EXPECT_EQ(contents_of(next + "/notes.txt"), "a note");
  Trainer resumed = make(small_settings());
  EXPECT_EQ(resumed.resume(folder / "run").state.files,
            (std::vector<CheckpointFile>{{"vocabulary.json", "{}\n"}, {"notes.txt", "a note"}}));
}

TEST(Trainer, OtherRunsAreRejectedByName) {
  const TestFolder folder;
  Trainer trainer = make(small_settings());
  advance(trainer, 2);
  const std::string checkpoint = trainer.save(folder / "run");
  TrainingSettings settings = small_settings();
  settings.learning_rate = 0.01;
  Trainer other = make(settings);
  EXPECT_EQ(rejection<DataError>([&] { other.resume(folder / "run"); }),
            checkpoint + ": was saved with learning_rate 0.02; this run has 0.01");
  EXPECT_TRUE(other.history().empty());
  Trainer text(small_settings(), std::make_shared<Counting>("another"));
  EXPECT_EQ(rejection<DataError>([&] { text.resume(folder / "run"); }),
            checkpoint + ": was saved with digest counting; this run has another");
  settings = small_settings();
  settings.precision = TrainingPrecision::float64;
  Trainer wide = make(settings);
  EXPECT_EQ(rejection<DataError>([&] { wide.resume(folder / "run"); }),
            checkpoint + ": was saved with precision float32; this run has float64");
}

TEST(Trainer, RejectsSettingsThatTheSourceDoesNotHave) {
  TrainingSettings settings = small_settings();
  settings.model.vocabulary = 12;
  EXPECT_EQ(rejection([&] { make(settings); }), "Trainer: vocabulary is 12; expected 11, as in the source");
  settings = small_settings();
  settings.length = 4;
  EXPECT_EQ(rejection([&] { make(settings); }), "Trainer: length is 4; expected 8, as in the source");
  EXPECT_EQ(rejection([&] { Trainer(small_settings(), nullptr); }),
            "Trainer: source is null; expected a source of examples");
  settings = small_settings();
  settings.beta2 = 1;
  EXPECT_EQ(rejection([&] { make(settings); }), "training: beta2 is 1; expected a number of at least 0 and below 1");
  Trainer trainer = make(small_settings());
  EXPECT_EQ(rejection([&] { trainer.evaluate(TaskSplit::train, 0); }),
            "Trainer::evaluate: count is 0; expected at least 1");
  EXPECT_EQ(rejection([&] { trainer.evaluate(TaskSplit::train, 1, {}, -1); }),
            "Trainer::evaluate: first is -1; expected at least 0");
  EXPECT_EQ(rejection([&] { trainer.model<double>(); }),
            "Trainer::model: the parameters are float; expected the model of that type");
}

// ---- sources

TEST(BatchSource, TasksAreIdentifiedByTheirExamples) {
  const TrainingTask& task = find_task("copy");
  const auto source = task_source(task), shuffled = task_source(task, TaskLabels::shuffled);
  EXPECT_EQ(source->vocabulary(), static_cast<Index>(task.vocabulary.size()));
  EXPECT_EQ(source->data().name, "copy");
  EXPECT_EQ(source->data().identity, task_source(task)->data().identity);
  EXPECT_NE(source->data().identity, shuffled->data().identity);
  EXPECT_NE(source->data().identity, task_source(find_task("reverse"))->data().identity);
  const auto length = static_cast<std::size_t>(source->length());
  std::vector<Index> tokens(length), targets(length);
  for (TaskLabels labels : {TaskLabels::correct, TaskLabels::shuffled}) {
    const TaskExample expected = task.example(3, TaskSplit::held_out, 5, labels);
    (labels == TaskLabels::correct ? source : shuffled)->example(3, TaskSplit::held_out, 5, tokens, targets);
    EXPECT_EQ(tokens, expected.tokens);
    EXPECT_EQ(targets, expected.targets);
  }
  const std::vector<CheckpointFile> files = source->files();
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].name, "vocabulary.json");
  EXPECT_EQ(Vocabulary::read(files[0].text, "vocabulary.json").size(), source->vocabulary());
}

TEST(BatchSource, TextsAreIdentifiedByTextAndVocabulary) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "the cat sat on mat " + std::to_string(i) + ". ";
  const auto source_of = [](const std::string& of, const Vocabulary& vocabulary) {
    return text_source(TextData(of, vocabulary, 6), "tale.txt");
  };
  const Vocabulary characters = Vocabulary::characters_of(text);
  const auto source = source_of(text, characters);
  EXPECT_EQ(source->data().name, "tale.txt");
  EXPECT_EQ(source->vocabulary(), characters.size());
  EXPECT_EQ(source->length(), 6);
  EXPECT_EQ(source->data().identity, source_of(text, characters)->data().identity);
  EXPECT_NE(source->data().identity, source_of(text + "mat", characters)->data().identity);
  EXPECT_NE(source->data().identity, source_of(text, Vocabulary::learn_byte_pairs(text, 270))->data().identity);
  std::vector<Index> tokens(6), targets(6), same_tokens(6), same_targets(6);
  source->example(1, TaskSplit::train, 9, tokens, targets);
  TextData(text, characters, 6).example(1, TaskSplit::train, 9, same_tokens, same_targets);
  EXPECT_EQ(tokens, same_tokens);
  EXPECT_EQ(targets, same_targets);
  EXPECT_EQ(source->files()[0].text, characters.json());
}

// ---- values that are not finite

TEST(TrainerDivergence, NamesStepLayerAndOperation) {
  struct Case {
    std::vector<std::pair<std::string, float>> parameters;
    Index layer;
    std::string operation;
  };
  const std::vector<Case> cases{
      {{{"model.embed_positions.weight", 3e38f}, {"model.embed_tokens.weight", 3e38f}}, -1, "embedding"},
      {{{"model.layers.1.self_attn.q_proj.weight", 3e38f}}, 1, "query, key and value"},
      {{{"model.layers.0.self_attn.v_proj.weight", 1e30f}, {"model.layers.0.self_attn.o_proj.weight", 1e30f}},
       0,
       "attention output"},
      {{{"model.layers.1.mlp.up_proj.weight", 3e38f}}, 1, "feed-forward up"},
      {{{"model.norm.weight", 3e38f}}, -1, "output norm"}};
  for (bool recompute : {false, true}) {
    for (const Case& c : cases) {
      TrainingSettings settings = small_settings();
      settings.recompute = recompute;
      settings.micro_batch = 4;
      Trainer trainer = make(settings);
      advance(trainer, 3);
      for (const auto& [name, value] : c.parameters) set(trainer, name, value);
      const Divergence found = divergence(trainer);
      EXPECT_EQ(found.step, 3);
      EXPECT_EQ(found.layer, c.layer) << found.message;
      EXPECT_EQ(found.operation, c.operation) << found.message;
      EXPECT_EQ(trainer.history().size(), 3u);
    }
  }
}

TEST(TrainerDivergence, NamesAParameterThatIsNotFinite) {
  const TestFolder folder;
  Trainer trainer = make(small_settings());
  advance(trainer, 2);
  trainer.save(folder / "run");
  trainer.step();
  set(trainer, "model.layers.1.mlp.down_proj.weight", -HUGE_VALF);
  const std::string expected =
      "step 3: layer 1, mlp.down_proj.weight: element 0 of the parameter is -inf; a smaller learning rate or a longer "
      "warm-up may help";
  EXPECT_EQ(divergence(trainer).message, expected);
  // Such a state is not saved: the last good checkpoint stays.
  EXPECT_EQ(rejection<TrainingDiverged>([&] { trainer.save(folder / "run"); }), expected);
  EXPECT_EQ(list_checkpoints(folder / "run").size(), 1u);
  trainer.resume(folder / "run");
  EXPECT_EQ(trainer.history().size(), 2u);
  trainer.step();
}

TEST(TrainerDivergence, NamesAGradientThatIsNotFinite) {
  TrainingSettings settings = small_settings();
  settings.model.feed_forward_kind = FeedForwardKind::relu;
  Trainer trainer = make(settings);
  advance(trainer, 1);
  // The activations are huge and the loss is not, because the output of the layer is scaled down again.
  set(trainer, "model.layers.1.post_attention_layernorm.weight", 1e25f);
  set(trainer, "model.layers.1.mlp.down_proj.weight", 1e-28f);
  set(trainer, "model.norm.weight", 1e20f);
  const std::vector<float> before(trainer.model<float>().parameters().begin(),
                                  trainer.model<float>().parameters().end());
  const Divergence found = divergence(trainer);
  EXPECT_EQ(found.step, 1);
  EXPECT_TRUE(found.operation.starts_with("gradient of ")) << found.message;
  // The step was not taken.
  EXPECT_TRUE(std::equal(before.begin(), before.end(), trainer.model<float>().parameters().begin()));
}

// ---- a model of transformers

TEST(Trainer, LogitsOfAFolderAreThoseOfTransformers) {
  const std::string folder = data_path("decoder/tiny_llama");
  const JsonValue json = read_json(contents_of(folder + "/logits.json"), "logits.json");
  const std::vector<double>& ids = json.find("tokens")->numbers();
  const Index length = static_cast<Index>(ids.size());
  DecoderTraining<double> model(parse_decoder_config(contents_of(folder + "/config.json"), "config.json"));
  const Checkpoint file = Checkpoint::read_folder(folder);
  double* next = model.parameters().data();
  for (const DecoderParameter& parameter : model.description()) {
    ASSERT_NE(file.find(parameter.name), nullptr) << parameter.name;
    for (float x : file.read_float32(*file.find(parameter.name))) *next++ = x;
  }
  Tensor<Index, 2> tokens({1, length}), targets({1, length});
  for (Index j = 0; j < length; ++j) tokens(0, j) = static_cast<Index>(ids[static_cast<std::size_t>(j)]);
  model.evaluate({.tokens = tokens.view(), .targets = targets.view()});
  const std::vector<JsonValue>& rows = json.find("logits")->items();
  for (Index j = 0; j < length; ++j) {
    const std::vector<double>& expected = rows[static_cast<std::size_t>(j)].numbers();
    for (Index v = 0; v < model.config().vocabulary; ++v) {
      EXPECT_NEAR(model.logits()(j, v), expected[static_cast<std::size_t>(v)],
                  1e-6);  // its norms are computed in float
    }
  }
}

// ---- kills

// A child trains, saves after every second step and is killed at a random moment, again and again. What the last one
// saves is what an uninterrupted run saves.
TEST(Trainer, ForkedRunKilledAtRandomMomentsGivesTheSameBytes) {
  const TestFolder folder(fastest_folder());
  const std::string run = folder / "run";
  TrainingSettings settings = small_settings();
  settings.schedule = ScheduleKind::constant;
  const auto time = time_in_child([&] {
    Trainer first = make(settings, {.num_threads = 1});
    advance(first, 2, {.num_threads = 1});
    first.save(run);
  });
  std::uint32_t random = 7;
  for (int kill = 0; kill < kKills; ++kill) {
    kill_at_random_moment(
        [&] {
          const Runtime runtime{.num_threads = 1 + kill % 2};
          Trainer trainer = make(settings, runtime);
          trainer.resume(run);
          while (true) {
            advance(trainer, 2, runtime);
            trainer.save(run);
          }
        },
        time, random);
  }
  Trainer last = make(settings);
  ASSERT_EQ(last.resume(run).warning, "");
  const auto reached = static_cast<Index>(last.history().size());
  EXPECT_GT(reached, 10);
  advance(last, 1);
  Trainer whole = make(settings);
  advance(whole, reached + 1);
  EXPECT_EQ(last.history(), whole.history());
  EXPECT_TRUE(arrays_of(last.save(folder / "last")) == arrays_of(whole.save(folder / "whole")));
}

// ---- watched runs

TEST(WatchedRun, HasTheStepsOfARunThatIsNotWatched) {
  const TrainingSubject subject = small_task(12);
  Trainer plain(subject.settings, subject.source);
  while (!plain.done()) plain.step();
  WatchedRun watched(subject, "a command", 5);
  while (!watched.done()) watched.step();
  watched.finish();
  watched.finish();
  EXPECT_EQ(watched.trainer().history(), plain.history());

  const TrainingRecord& record = watched.record();
  check_record(record);
  EXPECT_EQ(record.command, "a command");
  EXPECT_EQ(record.name, "copy");
  EXPECT_FALSE(record.is_text);
  EXPECT_EQ(record.pattern, find_task("copy").pattern);
  ASSERT_EQ(record.curve.size(), 12U);
  std::vector<Index> observed;
  for (const TrainingSnapshot& snapshot : record.snapshots) observed.push_back(snapshot.step);
  EXPECT_EQ(observed, snapshot_steps(12, 5));
  for (const CurvePoint& point : record.curve) {
    const bool is_snapshot = std::find(observed.begin(), observed.end(), point.step) != observed.end();
    EXPECT_EQ(point.held_out_loss.has_value(), is_snapshot) << point.step;
    EXPECT_GT(point.tokens_per_second.value(), 0);
  }
  EXPECT_GT(watched.step_seconds(), 0);
}

TEST(WatchedRun, ContinuesACheckpoint) {
  const TestFolder folder;
  WatchedRun first(small_task(12));
  for (int step = 0; step < 7; ++step) first.step();
  first.trainer().save(folder / "run");
  WatchedRun second(small_task(12));
  second.resume(folder / "run");
  EXPECT_TRUE(second.record().snapshots.empty());
  ASSERT_EQ(second.record().curve.size(), 7U);
  while (!second.done()) second.step();
  while (!first.done()) first.step();
  EXPECT_EQ(second.trainer().history(), first.trainer().history());
  EXPECT_EQ(second.record().curve.back().loss, first.record().curve.back().loss);
}

TEST(WatchedRun, OfATextHasItsVocabularyAndLength) {
  TrainingSettings settings = text_recipe();
  settings.model.num_layers = 1;
  settings.model.width = 16;
  settings.length = 8;
  settings.steps = 2;
  std::string text;
  for (int i = 0; i < 40; ++i) text += "a small text ";
  const TrainingSubject subject = text_subject(text, Vocabulary::characters_of(text), settings, "folder/book.txt");
  EXPECT_EQ(subject.settings.model.vocabulary, 8);
  EXPECT_EQ(subject.settings.model.max_positions, 8);
  WatchedRun run(subject);
  while (!run.done()) run.step();
  run.finish();
  check_record(run.record());
  EXPECT_EQ(run.record().name, "book.txt");
  EXPECT_TRUE(run.record().is_text);
}

}  // namespace
}  // namespace regard::trainer_test
