// SPDX-License-Identifier: Apache-2.0
//
// Records of watched runs: scores against hand-computed ones, steps of snapshots, events on series that are made for
// each clause of the rule, JSON, text, SVG and the size of the page. The records imitate a run
// (support/training_record.h); train/events.py finds their events a second time, page/training_page_test.py opens them.
// Read next: regard/train/record.h, regard/explain/training_report.h.
#include "regard/train/record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "regard/explain/training_report.h"
#include "regard/io/json.h"
#include "regard/io/utf8.h"
#include "support/rejection.h"
#include "support/test_size.h"
#include "support/training_record.h"

namespace regard::record_test {
namespace {

// ---- scores

TEST(HeadScores, AreMeansOverRows) {
  // Rows: (1), (¼, ¾), (0, ½, ½). Row 1 wants key 0, row 2 wants keys 0 and 2.
  const std::vector<float> weights = {1, 0.25F, 0.75F, 0, 0.5F, 0.5F};
  const HeadScores scores = head_scores(weights, {{}, {0}, {0, 2}});
  EXPECT_DOUBLE_EQ(scores.pattern, (0.25 + 0.5) / 2);
  EXPECT_DOUBLE_EQ(scores.previous, (0.25 + 0.5) / 2);
  EXPECT_DOUBLE_EQ(scores.sink, 0.125);
  const double second = -(0.25 * std::log(0.25) + 0.75 * std::log(0.75)) / std::log(2.0);
  EXPECT_DOUBLE_EQ(scores.entropy, (second + std::log(2.0) / std::log(3.0)) / 2);
}

TEST(HeadScores, OfUniformWeightsAreOneOverTheVisibleKeys) {
  const HeadScores scores = uniform_scores({{}, {}, {1}, {0, 1}});
  EXPECT_NEAR(scores.pattern, (1.0 / 3 + 2.0 / 4) / 2, 1e-7);
  EXPECT_NEAR(scores.previous, (1.0 / 2 + 1.0 / 3 + 1.0 / 4) / 3, 1e-7);
  EXPECT_EQ(scores.entropy, 1);
}

TEST(HeadScores, AreNanWithoutRows) {
  const std::vector<float> weights = {1};
  const HeadScores scores = head_scores(weights, {{}});
  for (const double x : {scores.pattern, scores.previous, scores.sink, scores.entropy}) EXPECT_TRUE(std::isnan(x));
}

TEST(HeadScores, RejectInvalidArguments) {
  const std::vector<float> weights = {1, 0.5F, 0.5F};
  EXPECT_EQ(rejection([&] { head_scores(weights, {{}, {}, {}}); }),
            "training record: weights has 3 entries; expected 6");
  EXPECT_EQ(rejection([&] { head_scores(weights, {{}, {2}}); }),
            "training record: wanted of row 1 has key 2; expected 0 to 1");
}

// ---- steps

TEST(SnapshotSteps, ArePowersOfTwoAndThenMultiples) {
  EXPECT_EQ(snapshot_steps(10, 8), (std::vector<Index>{0, 1, 2, 4, 6, 8, 10}));
  EXPECT_EQ(snapshot_steps(3), (std::vector<Index>{0, 1, 2, 3}));
  EXPECT_EQ(snapshot_steps(0), std::vector<Index>{0});
  EXPECT_EQ(snapshot_steps(600)[6], 22);  // 0 1 2 4 8 11 22 33 …
}

TEST(SnapshotSteps, AreAtMostMaxAndEndWithTheLastStep) {
  for (const Index steps : {1, 2, 7, 59, 60, 61, 600, 2000, 40000}) {
    for (const Index max : {2, 3, 10, 60}) {
      const std::vector<Index> chosen = snapshot_steps(steps, max);
      EXPECT_LE(static_cast<Index>(chosen.size()), max);
      EXPECT_EQ(chosen.front(), 0);
      EXPECT_EQ(chosen.back(), steps);
      EXPECT_TRUE(std::ranges::adjacent_find(chosen, std::greater_equal()) == chosen.end()) << steps << " " << max;
      // No more than half of them are wasted.
      if (max == 60 && steps >= 60) {
        EXPECT_GT(chosen.size(), 30u) << steps;
      }
    }
  }
  EXPECT_EQ(rejection([] { snapshot_steps(-1); }), "snapshot_steps: steps is -1; expected 0 or more");
  EXPECT_EQ(rejection([] { snapshot_steps(5, 1); }), "snapshot_steps: max is 1; expected 2 or more");
}

// ---- events

// One layer of one head, whose scores, losses and ablations are given for each snapshot.
struct Series {
  std::vector<double> pattern, loss, ablation;
  std::vector<double> previous{};
};
TrainingRecord record_of(const Series& series) {
  TrainingRecord record;
  record.settings.model.num_layers = record.settings.model.num_heads = 1;
  record.pattern = "the first token";
  record.probe.tokens = {"a", "b", "c"};
  record.probe.targets.resize(3);
  record.probe.wanted = {{}, {}, {0}};
  record.probe.uniform = uniform_scores(record.probe.wanted);
  for (std::size_t s = 0; s < series.pattern.size(); ++s) {
    ProbedHead head;
    head.weights = {1, 0.5F, 0.5F, 0, 0.5F, 0.5F};
    head.scores = {.pattern = series.pattern[s],
                   .previous = series.previous.empty() ? 0 : series.previous[s],
                   .sink = 0,
                   .entropy = 0};
    head.ablation = series.ablation[s];
    record.snapshots.push_back({static_cast<Index>(10 * s), series.loss[s], {head}});
  }
  return record;
}
// Steps of the events.
std::vector<Index> steps_of(const Series& series) {
  std::vector<Index> steps;
  for (const HeadEvent& event : find_events(record_of(series))) steps.push_back(event.step);
  return steps;
}
const std::vector<double> kLosses = {4, 3.9, 3, 2, 1, 1}, kAgrees = {0, 0, 1, 1, 1, 1};

TEST(Events, AreAtTheFirstOfTwoSnapshotsAboveTheThreshold) {
  EXPECT_EQ(steps_of({{0, 0.2, 0.6, 0.8, 0.9, 1}, kLosses, kAgrees}), std::vector<Index>{20});
  const HeadEvent event = find_events(record_of({{0, 0.2, 0.6, 0.8, 0.9, 1}, kLosses, kAgrees}))[0];
  EXPECT_EQ(event.score, 0.6);
  EXPECT_EQ(event.from_step, 10);
  EXPECT_EQ(event.to_step, 40);
  EXPECT_DOUBLE_EQ(event.loss_fall, 1 - 1 / 3.9);
  EXPECT_EQ(event.ablation_step, 30);
  EXPECT_EQ(event.ablation, 1);
}

TEST(Events, NeedTwoConsecutiveSnapshots) {
  EXPECT_TRUE(steps_of({{0, 0.2, 0.6, 0.4, 0.6, 0.5}, kLosses, kAgrees}).empty());
  EXPECT_EQ(steps_of({{0, 0.2, 0.6, 0.4, 0.6, 0.7}, kLosses, kAgrees}), std::vector<Index>{40});
}

TEST(Events, NeedAblationToAgreeBeforeTheScoreFalls) {
  EXPECT_TRUE(steps_of({{0, 0.2, 0.6, 0.8, 0.9, 1}, kLosses, {0, 0, 1, 0.19, 0.29, 0.29}}).empty());
  EXPECT_EQ(steps_of({{0, 0.2, 0.6, 0.8, 0.9, 1}, kLosses, {0, 0, 0, 0, 0, 0.31}}), std::vector<Index>{20});
  EXPECT_TRUE(steps_of({{0, 0.2, 0.6, 0.8, 0.4, 0.4}, kLosses, {0, 0, 1, 0, 1, 1}}).empty());
}

TEST(Events, NeedTheLossToHaveFallen) {
  EXPECT_TRUE(steps_of({{0, 0.2, 0.6, 0.8, 0.9, 1}, {4, 4, 3.9, 3.9, 3.9, 3.81}, kAgrees}).empty());
  EXPECT_TRUE(steps_of({{0, 0.2, 0.6, 0.8, 0.9, 1}, {4, 4, 5, 5, 5, 5}, kAgrees}).empty());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(steps_of({{0, nan, 0.6, 0.8, 0.9, 1}, {4, nan, nan, nan, nan, nan}, kAgrees}).empty());
}

TEST(Events, UseTheTasksThresholdIfItIsHigher) {
  TrainingRecord record = record_of({{0, 0.2, 0.6, 0.8, 0.9, 1}, kLosses, kAgrees});
  record.formed_score = 0.85;
  EXPECT_EQ(find_events(record)[0].step, 40);
  record.formed_score = 0.1;
  EXPECT_EQ(find_events(record)[0].step, 20);
}

TEST(Events, OfThePreviousTokenAreWhereTheScoreBegan) {
  const std::vector<double> none(6, 0.0);
  // Twice the uniform level is 0.83: the threshold is ½ at most.
  EXPECT_EQ(steps_of({none, kLosses, kAgrees, {0, 0.4, 0.6, 0.7, 0.8, 0.9}}), std::vector<Index>{20});
  TrainingRecord record = record_of({none, kLosses, kAgrees, {0.3, 0.1, 0.21, 0.3, 0.8, 0.7}});
  record.probe.uniform.previous = 0.05;
  const std::vector<HeadEvent> events = find_events(record);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].step, 20);
  EXPECT_EQ(events[0].score, 0.21);
  EXPECT_EQ(events[0].peak, 0.8);
  EXPECT_EQ(events[0].ablation_step, 50);
  EXPECT_EQ(
      event_text(record, events[0]),
      "step 20: layer 0, head 0 begins to attend to the previous token: score 0.21 (later 0.80), uniform 0.05; the "
      "loss fell 74 % between steps 10 and 40");
  record.probe.uniform.previous = 0.14;
  EXPECT_EQ(find_events(record)[0].step, 30);
  // Above the lower threshold alone, no head has formed.
  record.snapshots[4].heads[0].scores.previous = 0.45;
  EXPECT_TRUE(find_events(record).empty());
}

TEST(Events, NameThePreviousTokenFirst) {
  const std::vector<HeadEvent> events =
      find_events(record_of({{0, 0, 0.6, 0.7, 0.8, 0.9}, kLosses, kAgrees, {0, 0, 0.9, 0.9, 0.9, 0.9}}));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, HeadEventKind::previous_token);
  EXPECT_EQ(events[1].kind, HeadEventKind::pattern);
}

TEST(Events, HaveOneKindIfThePatternIsThePreviousToken) {
  TrainingRecord record = record_of({{0, 0, 0.6, 0.7, 0.8, 0.9}, kLosses, kAgrees, {0, 0, 0.6, 0.7, 0.8, 0.9}});
  record.probe.wanted = {{}, {0}, {1}};
  ASSERT_EQ(find_events(record).size(), 1u);
  EXPECT_EQ(find_events(record)[0].kind, HeadEventKind::pattern);
}

TEST(Events, AreStatedInOneSentence) {
  TrainingRecord record = record_of({{0, 0.2, 0.6, 0.8, 0.9, 1}, kLosses, kAgrees});
  EXPECT_EQ(event_text(record, find_events(record)[0]),
            "step 20: layer 0, head 0 attends to the first token: score 0.60, uniform 0.33; the loss fell 74 % between "
            "steps 10 and 40");
  record = record_of({{0, 0.6, 0.6, 0.8, 0.9, 1}, {4, 4, 4, 4, 3, 2}, {0, 0, 0, 0, 1, 1}});
  EXPECT_EQ(event_text(record, find_events(record)[0]),
            "step 10: layer 0, head 0 attends to the first token: score 0.60, uniform 0.33; the loss did not fall "
            "between steps 0 and 30");
}

TEST(Events, OfImitatedRunsNameThePreviousTokenHeadBeforeTheInductionHead) {
  for (std::uint64_t seed = 0; seed < test_size<std::uint64_t>(20, 5); ++seed) {
    const std::vector<HeadEvent> events = find_events(imitated_record({.seed = seed}));
    ASSERT_EQ(events.size(), 2u) << seed;
    EXPECT_EQ(events[0].layer * 10 + events[0].head, 1);
    EXPECT_EQ(events[1].layer * 10 + events[1].head, 10);
    EXPECT_LT(events[0].step, events[1].step);
    EXPECT_TRUE(find_events(imitated_record({.seed = seed, .learns = false})).empty()) << seed;
  }
}

// ---- checks

TEST(Record, RejectsWrongExtents) {
  const TrainingRecord good = imitated_record({.half = 4, .steps = 20});
  const auto message = [&](auto change) {
    TrainingRecord record = good;
    change(record);
    return rejection([&] { check_record(record); });
  };
  EXPECT_EQ(message([](TrainingRecord&) {}), "accepted");
  EXPECT_EQ(message([](TrainingRecord& r) { r.probe.tokens.clear(); }),
            "training record: the probe has no tokens; expected at least 1");
  EXPECT_EQ(message([](TrainingRecord& r) { r.probe.targets.pop_back(); }),
            "training record: targets of the probe has 8 entries; expected 9");
  EXPECT_EQ(message([](TrainingRecord& r) { r.probe.wanted[2] = {3}; }),
            "training record: wanted of row 2 has key 3; expected 0 to 2");
  EXPECT_EQ(message([](TrainingRecord& r) { r.probe.query = 9; }), "training record: query is 9; expected -1 to 8");
  EXPECT_EQ(message([](TrainingRecord& r) { r.settings.model.num_heads = 0; }),
            "training record: the model has 2 layers and 0 heads; expected at least 1");
  EXPECT_EQ(message([](TrainingRecord& r) { r.snapshots.clear(); }),
            "training record: there is no snapshot; expected at least 1");
  EXPECT_EQ(message([](TrainingRecord& r) { std::swap(r.snapshots[0], r.snapshots[1]); }),
            "training record: the steps of the snapshots are not ascending");
  EXPECT_EQ(message([](TrainingRecord& r) { r.curve[1].step = 0; }),
            "training record: the steps of the curve are not ascending");
  EXPECT_EQ(message([](TrainingRecord& r) { r.snapshots[1].heads.pop_back(); }),
            "training record: the snapshot at step 1 has 3 entries; expected 4");
  EXPECT_EQ(message([](TrainingRecord& r) { r.snapshots[1].heads[0].weights.pop_back(); }),
            "training record: weights of a head of the snapshot at step 1 has 44 entries; expected 45");
  EXPECT_EQ(message([](TrainingRecord& r) { r.snapshots[1].heads[0].grad_scores.pop_back(); }),
            "training record: grad_scores of a head of the snapshot at step 1 has 6 entries; expected 7");
}

// ---- JSON

TEST(RecordJson, HoldsEveryNumberExactly) {
  const TrainingRecord record = imitated_record({.half = 4, .steps = 40});
  const JsonValue json = read_json(training_record_json(record), "record");
  EXPECT_EQ(json.find("schema")->text(), "regard/1");
  EXPECT_EQ(json.find("task")->text(), "induction");
  EXPECT_EQ(json.find("text"), nullptr);
  EXPECT_EQ(json.find("settings")->items().size(), 4u);
  const JsonValue& curve = *json.find("curve");
  ASSERT_EQ(curve.find("loss")->numbers().size(), record.curve.size());
  for (std::size_t i = 0; i < record.curve.size(); ++i) {
    EXPECT_EQ(curve.find("loss")->numbers()[i], record.curve[i].loss);
    EXPECT_EQ(curve.find("gradient_norm")->numbers()[i], record.curve[i].gradient_norm);
  }
  EXPECT_EQ(curve.find("held_out_loss")->items()[1].kind(), JsonValue::Kind::null);
  EXPECT_EQ(curve.find("held_out_loss")->items()[25].number(), *record.curve[25].held_out_loss);
  ASSERT_EQ(json.find("snapshots")->items().size(), record.snapshots.size());
  for (std::size_t s = 0; s < record.snapshots.size(); ++s) {
    const JsonValue& snapshot = json.find("snapshots")->items()[s];
    EXPECT_EQ(snapshot.find("step")->number(), static_cast<double>(record.snapshots[s].step));
    EXPECT_EQ(snapshot.find("loss")->number(), record.snapshots[s].loss);
    for (std::size_t h = 0; h < 4; ++h) {
      const JsonValue& head = snapshot.find("heads")->items()[h];
      const ProbedHead& own = record.snapshots[s].heads[h];
      EXPECT_EQ(head.find("layer")->number(), static_cast<double>(h / 2));
      EXPECT_EQ(head.find("pattern")->number(), own.scores.pattern);
      EXPECT_EQ(head.find("entropy")->number(), own.scores.entropy);
      EXPECT_EQ(head.find("ablation")->number(), own.ablation);
      const auto expect_floats = [&](const char* name, const std::vector<float>& numbers) {
        const std::vector<double>& written = head.find(name)->numbers();
        EXPECT_TRUE(std::ranges::equal(written, numbers, {}, [](double x) { return static_cast<float>(x); })) << name;
      };
      expect_floats("weights", own.weights);
      expect_floats("grad_weights", own.grad_weights);
      expect_floats("grad_scores", own.grad_scores);
    }
  }
}

TEST(RecordJson, LeavesOutWhatIsNotWanted) {
  const TrainingRecord record = imitated_record({.half = 4, .steps = 20, .has_pattern = false});
  const JsonValue json = read_json(training_record_json(record, {.curve = false, .heads = false}), "record");
  EXPECT_EQ(json.find("text")->text(), "jargon.txt");
  EXPECT_EQ(json.find("curve"), nullptr);
  EXPECT_EQ(json.find("snapshots")->items()[0].find("heads"), nullptr);
  EXPECT_EQ(json.find("probe")->find("uniform")->find("pattern"), nullptr);
}

TEST(RecordJson, WritesDivergedLossesAsStrings) {
  TrainingRecord record = imitated_record({.half = 4, .steps = 20});
  record.curve[5].loss = std::numeric_limits<double>::infinity();
  record.snapshots[1].loss = std::numeric_limits<double>::quiet_NaN();
  const JsonValue json = read_json(training_record_json(record), "record");
  EXPECT_EQ(json.find("curve")->find("loss")->items()[5].text(), "inf");
  EXPECT_EQ(json.find("snapshots")->items()[1].find("loss")->text(), "nan");
}

TEST(SettingsSummary, DescribesModelBatchesAndOptimizer) {
  TrainingSettings settings;
  settings.model = {.vocabulary = 65, .num_layers = 1, .num_heads = 4, .width = 128, .feed_forward = 344};
  settings.model.feed_forward_kind = FeedForwardKind::swiglu;
  settings.model.positions = PositionKind::rotary;
  settings.length = 64;
  settings.optimizer = OptimizerKind::muon;
  settings.warmup = 100;
  settings.dropout = 0.1;
  settings.precision = TrainingPrecision::bf16_products;
  EXPECT_EQ(
      settings_summary(settings),
      (std::vector<std::string>{
          "1 layer × 4 heads, width 128, layer norm, rotary position embeddings, SwiGLU feed-forward of width 344",
          "1000 steps of 16 sequences × 64 tokens",
          "Muon, learning rate 0.02, and AdamW, 0.001, cosine to 0.0001, 100 steps of warm-up, weight decay 0.1, "
          "gradient norm at most 1, dropout 0.1",
          "seed 0, float32 with bfloat16 products"}));
}

// ---- text

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

TEST(TrainingText, BeginsWithTheFinding) {
  const std::vector<std::string> lines = lines_of(training_text(imitated_record()));
  EXPECT_EQ(lines[0], "induction: 2 layers × 2 heads, 600 steps");
  EXPECT_EQ(lines[2], "From step 187 on, layer 1, head 0 attends to the token after the earlier copy:");
  EXPECT_EQ(lines[3], "100 % of its attention at the end (uniform: 4 %).");
  EXPECT_EQ(lines[4], "Before that, at step 110, layer 0, head 1 began to attend to the previous token.");
  EXPECT_EQ(lines.back(), "  0.67, uniform 0.04; the loss fell 74 % between steps 176 and 209");
}

TEST(TrainingText, HasThirtyLinesAtAnyWidth) {
  for (const auto& run : {ImitatedRun{}, ImitatedRun{.layers = 4, .heads = 8}, ImitatedRun{.learns = false},
                          ImitatedRun{.has_pattern = false}, ImitatedRun{.steps = 1}}) {
    const TrainingRecord record = imitated_record(run);
    for (const int width : {60, 80, 120, 200}) {
      const std::vector<std::string> lines = lines_of(training_text(record, {.width = width}));
      EXPECT_LE(lines.size(), 30u) << width;
      for (const std::string& line : lines) {
        EXPECT_LE(display_width(line), std::min(width, 100)) << line;
        EXPECT_FALSE(line.starts_with("%") || line.starts_with("  %")) << line;
      }
    }
  }
}

TEST(TrainingText, HasThirtyLinesWithManyEventsAndALongPattern) {
  TrainingRecord record = imitated_record({.layers = 2, .heads = 8});
  for (TrainingSnapshot& snapshot : record.snapshots) {
    for (ProbedHead& head : snapshot.heads) {
      head.scores.pattern = snapshot.step > 100 ? 0.9 : 0.1;
      head.ablation = 1;
    }
  }
  for (int i = 0; i < 5; ++i) record.pattern += ", and the token after that";
  EXPECT_EQ(find_events(record).size(), 17u);
  const std::vector<std::string> lines = lines_of(training_text(record, {.width = 60}));
  EXPECT_LE(lines.size(), 30u);
  EXPECT_EQ(lines.back(), "  and 16 more");
}

TEST(TrainingText, TellsMemorizedExamplesFromTheRule) {
  TrainingRecord record = imitated_record();
  const auto measure = [&](std::size_t point, double accuracy, double held_out_accuracy) {
    record.curve[point].accuracy = accuracy;
    record.curve[point].held_out_accuracy = held_out_accuracy;
  };
  const auto says = [&](const std::string& sentence) {
    return std::ranges::count(training_findings(record), sentence) == 1;
  };
  measure(100, 0.9, 0.1);
  measure(200, 1, 0.14);
  EXPECT_TRUE(says("At step 200, 100 % of the training examples were correct, and 14 % of the held-out examples"));
  measure(500, 1, 0.99);
  EXPECT_TRUE(
      says("At step 200, 100 % of the training examples were correct, and 14 % of the held-out examples; at step 500, "
           "99 % of the held-out examples were correct"));
  EXPECT_LE(lines_of(training_text(record, {.width = 60})).size(), 30u);
  // Both were found together.
  measure(200, 1, 0.6);
  EXPECT_EQ(training_findings(record), training_findings(imitated_record()));
}

TEST(TrainingText, ClaimsNothingWithoutEvents) {
  const std::string text = training_text(imitated_record({.learns = false}));
  EXPECT_NE(text.find("no head is known to attend to"), std::string::npos);
  EXPECT_EQ(text.find("▲"), std::string::npos);
  EXPECT_EQ(text.find("From step"), std::string::npos);
}

TEST(TrainingText, DrawsTheLossFromItsLargestValueToZero) {
  const std::vector<std::string> lines = lines_of(training_text(imitated_record(), {.unicode = false}));
  const auto begin = std::ranges::find(lines, "loss");
  ASSERT_NE(begin, lines.end());
  // The loss is above half of its maximum for three quarters of the axis, and then close to 0.
  EXPECT_TRUE(begin[1].starts_with("   3.4")) << begin[1];
  EXPECT_GT(std::ranges::count(begin[3], '#'), 45);
  EXPECT_LT(std::ranges::count(begin[3], '#'), 60);
  EXPECT_EQ(std::ranges::count(begin[6], '^'), 2);
  for (const std::string& line : lines) {
    for (const char c : line) EXPECT_GE(c, ' ') << line;
  }
}

TEST(TrainingText, UsesTheProbesLossWithoutACurve) {
  TrainingRecord record = imitated_record();
  record.curve.clear();
  EXPECT_NE(training_text(record).find("loss of the probe\n"), std::string::npos);
}

TEST(TrainingText, EscapesUntrustedText) {
  TrainingRecord record = imitated_record();
  record.name = "\x1b]0;title\x07";
  record.pattern =
      "\xE2\x80\xAE"
      "evil";
  for (const bool color : {false, true}) {
    const std::string text = training_text(record, {.color = color});
    EXPECT_EQ(text.find("\x1b]"), std::string::npos);
    EXPECT_EQ(text.find('\x07'), std::string::npos);
    EXPECT_EQ(text.find("\xE2\x80\xAE"), std::string::npos);
    EXPECT_NE(text.find("\\u{1b}]0;title\\u{7}"), std::string::npos);
    EXPECT_NE(text.find("\\u{202e}evil"), std::string::npos);
  }
}

// ---- SVG and page

// Whether every element is closed by one of its name, and every & begins an entity.
bool is_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t i = 0; i < xml.size(); ++i) {
    if (xml[i] == '&' && xml.compare(i, 4, "&lt;") != 0 && xml.compare(i, 4, "&gt;") != 0 &&
        xml.compare(i, 5, "&amp;") != 0)
      return false;
    if (xml[i] != '<') continue;
    const std::size_t end = xml.find('>', i);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(i + 1, end - i - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    i = end;
  }
  return open.empty();
}

TEST(TrainingSvg, IsWellFormedWithUntrustedText) {
  TrainingRecord record = imitated_record();
  EXPECT_TRUE(is_well_formed(training_svg(record)));
  record.name = record.pattern = "</svg><script>alert(1)</script>&\"'\x1b\xE2\x80\xAE";
  const std::string svg = training_svg(record);
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_EQ(svg.find('\x1b'), std::string::npos);
  EXPECT_EQ(svg.find("\xE2\x80\xAE"), std::string::npos);
}

TEST(TrainingSvg, HasAxesAndBothCurves) {
  const std::string svg = training_svg(imitated_record());
  for (const char* label : {">training</text>", ">held out</text>", ">probe</text>", ">L1H0</text>",
                            ">L0H1 previous</text>", ">uniform</text>", ">loss (nats per target)</text>",
                            ">step (logarithmic)</text>", ">600</text>", ">0.8</text>"})
    EXPECT_NE(svg.find(label), std::string::npos) << label;
}

TEST(TrainingSvg, InterruptsLinesWhereTheLossIsNotFinite) {
  TrainingRecord record = imitated_record();
  for (std::size_t i = 300; i < 320; ++i) record.curve[i].loss = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = training_svg(record);
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

JsonValue page_data(const std::string& html) {
  const std::string before = "id=\"page\">";
  const std::size_t from = html.find(before) + before.size();
  return read_json(html.substr(from, html.find("</script>", from) - from), "page");
}

TEST(TrainingHtml, KeepsAllSnapshotsOfSmallRuns) {
  const TrainingRecord record = imitated_record({.layers = 4, .heads = 4, .half = 31});
  const std::string html = training_html(record);
  EXPECT_LE(html.size(), kMaxTrainingHtmlBytes);
  EXPECT_EQ(page_data(html).find("kept")->numbers().size(), record.snapshots.size());
}

TEST(TrainingHtml, LeavesOutSnapshotsOfLargeRuns) {
  const TrainingRecord record = imitated_record({.layers = 8, .heads = 8, .half = 31});
  const std::string html = training_html(record);
  EXPECT_LE(html.size(), kMaxTrainingHtmlBytes);
  const JsonValue page = page_data(html);
  const std::vector<double>& indices = page.find("kept")->numbers();
  const std::set<double> kept(indices.begin(), indices.end());
  EXPECT_GT(kept.size(), 8u);
  EXPECT_LT(kept.size(), record.snapshots.size());
  EXPECT_TRUE(kept.contains(0) && kept.contains(static_cast<double>(record.snapshots.size() - 1)));
  for (const HeadEvent& event : find_events(record)) EXPECT_TRUE(kept.contains(static_cast<double>(event.snapshot)));
}

TEST(TrainingHtml, HasScoresOnlyIfNotEvenTwoSnapshotsFit) {
  const std::string html = training_html(imitated_record({.layers = 2, .heads = 8, .half = 250, .steps = 8}));
  EXPECT_LE(html.size(), kMaxTrainingHtmlBytes);
  EXPECT_EQ(page_data(html).find("weights"), nullptr);
}

TEST(TrainingHtml, HasCurvesOfFewPoints) {
  TrainingRecord record = imitated_record({.half = 4, .steps = 5000});
  const std::string html = training_html(record);
  const JsonValue page = page_data(html);
  EXPECT_LE(page.find("curve")->find("loss")->numbers().size(), 600u);
  EXPECT_GT(page.find("curve")->find("loss")->numbers().size(), 200u);
  EXPECT_TRUE(page.find("curve")->find("thinned")->boolean());
}

TEST(TrainingHtml, RejectsARunWhoseScoresAloneAreTooMany) {
  TrainingRecord record = imitated_record({.layers = 1, .heads = 1, .half = 1, .steps = 10});
  record.settings.model.num_heads = 16000;
  for (TrainingSnapshot& snapshot : record.snapshots) snapshot.heads.resize(16000, snapshot.heads[0]);
  EXPECT_EQ(rejection([&] { training_html(record); }),
            "training_html: the page would take 13.5 MB without weights; expected at most 4.0 MB; watch a run with "
            "fewer heads or snapshots");
}

}  // namespace
}  // namespace regard::record_test
