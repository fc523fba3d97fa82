// SPDX-License-Identifier: Apache-2.0
//
// Training on several ranks, which are threads here: the bytes of one machine for any number of ranks, micro-batches
// and resumed checkpoints; the bytes that are sent; and that all ranks stop, fail and reject together.
// Read next: trainer_test.cpp, docs/derivations/ranks.md.
#include "regard/train/gradient_chain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/model_bytes.h"
#include "support/rejection.h"
#include "support/small_runs.h"
#include "support/test_size.h"
#include "support/thread_ring.h"

namespace regard::gradient_chain_test {
namespace {

const Runtime kOneThread{.num_threads = 1};

// Settings that differ in what is summed, and in how.
std::vector<std::pair<std::string, TrainingSettings>> recipes() {
  TrainingSettings gpt = small_settings();
  TrainingSettings llama = small_settings();
  llama.model.norm = NormKind::rms;
  llama.model.positions = PositionKind::rotary;
  llama.model.feed_forward_kind = FeedForwardKind::swiglu;
  llama.model.num_kv_heads = 1;
  llama.model.tied = false;
  llama.dropout = 0.1;
  llama.optimizer = OptimizerKind::muon;
  TrainingSettings wide = small_settings();
  wide.precision = TrainingPrecision::float64;
  wide.model.biases = true;
  wide.model.tied = false;
  wide.dropout = 0.2;
  TrainingSettings rounded = llama;
  rounded.model.tied = true;
  rounded.precision = TrainingPrecision::bf16_products;
  rounded.recompute = true;
  TrainingSettings attention_only = small_settings();
  attention_only.model.feed_forward_kind = FeedForwardKind::none;
  attention_only.model.feed_forward = 0;
  attention_only.precision = TrainingPrecision::bf16_products;
  return {{"gpt", gpt}, {"llama", llama}, {"wide", wide}, {"rounded", rounded}, {"attention only", attention_only}};
}

TEST(TrainerRanks, GiveTheBytesOfOneMachine) {
  const Index steps = test_size(5, 3);
  const TestFolder folder;
  for (auto [name, settings] : recipes()) {
    settings.micro_batch = 0;
    Trainer whole = make(settings, kOneThread);
    advance(whole, steps, kOneThread);
    const std::string expected = arrays_of(whole.save(folder / name));
    std::size_t number = 0;
    for (const Index ranks : {1, 2, 3, 4, 5, 8}) {
      ++number;
      for (const Index micro_batch : {6, 2, 1}) {
        if (!runs_case(number++, 3)) continue;
        SCOPED_TRACE(name + ", " + std::to_string(ranks) + " ranks, micro-batch " + std::to_string(micro_batch));
        settings.micro_batch = micro_batch;
        const std::string run = folder / (name + std::to_string(ranks) + std::to_string(micro_batch));
        ThreadRing ring(ranks);
        on_ranks(ring, [&](GradientChain& chain) {
          Trainer trainer = make(settings, kOneThread, &chain);
          advance(trainer, steps, kOneThread);
          EXPECT_EQ(trainer.history(), whole.history());
          trainer.visit_model([&]<class T>(DecoderTraining<T>& model) {
            EXPECT_TRUE(
                std::ranges::equal(std::as_bytes(model.parameters()), std::as_bytes(whole.model<T>().parameters())));
            EXPECT_TRUE(
                std::ranges::equal(std::as_bytes(model.gradients()), std::as_bytes(whole.model<T>().gradients())));
          });
          const std::string saved = trainer.save(run);
          EXPECT_EQ(saved.empty(), chain.rank() != 0);
          EXPECT_TRUE(saved.empty() || arrays_of(saved) == expected);
        });
      }
    }
  }
}

TEST(TrainerRanks, ResumeWithAnotherNumberOfRanks) {
  const TestFolder folder;
  for (const auto& [name, settings] : recipes()) {
    Trainer whole = make(settings, kOneThread);
    advance(whole, 12, kOneThread);
    const std::string run = folder / name;
    for (const Index ranks : {3, 1, 5, 2}) {
      ThreadRing ring(ranks);
      on_ranks(ring, [&, &of = settings](GradientChain& chain) {
        Trainer trainer = make(of, kOneThread, &chain);
        if (ranks != 3) {
          EXPECT_EQ(trainer.resume(run).warning, "");
        }
        advance(trainer, 3, kOneThread);
        trainer.save(run);
      });
    }
    EXPECT_TRUE(arrays_of(list_checkpoints(run).back()) == arrays_of(whole.save(folder / (name + " whole")))) << name;
  }
}

TEST(TrainerRanks, EachSendsSumsAndTotalsOnce) {
  for (const bool tied : {false, true}) {
    TrainingSettings settings = small_settings();
    settings.model.tied = tied;
    const Trainer plain = make(settings);
    const auto size = static_cast<std::size_t>(decoder_size(plain.settings().model));
    const std::size_t table = kVocabulary * 16;
    const std::size_t totals = sizeof(float) * size + sizeof(double);
    // The two sums of a tied table are only added at the end.
    const std::size_t sums = totals + (tied ? sizeof(float) * table + kVocabulary : 0);
    for (const auto& [ranks, pieces, micro_batch] :
         std::vector<std::array<std::size_t, 3>>{{1, 1, 6}, {2, 2, 6}, {4, 4, 6}, {8, 6, 6}, {2, 4, 2}, {4, 6, 1}}) {
      settings.micro_batch = static_cast<Index>(micro_batch);
      ThreadRing ring(static_cast<Index>(ranks));
      on_ranks(ring, [&](GradientChain& chain) { make(settings, kOneThread, &chain).step(kOneThread); });
      EXPECT_EQ(ring.bytes_sent(), ranks == 1 ? 0 : (pieces - 1) * sums + (ranks - 1) * totals) << ranks;
    }
  }
}

TEST(TrainerRanks, AStopOfOneStopsAllBeforeTheSameStep) {
  Trainer whole = make(small_settings(), kOneThread);
  advance(whole, 6, kOneThread);
  ThreadRing ring(3);
  on_ranks(ring, [&](GradientChain& chain) {
    Trainer trainer = make(small_settings(), kOneThread, &chain);
    advance(trainer, 5, kOneThread);
    std::stop_source source;
    if (chain.rank() == 1) source.request_stop();
    EXPECT_THROW(trainer.step({.num_threads = 1, .stop = source.get_token()}), Cancelled);
    EXPECT_EQ(trainer.history().size(), 5U);
    trainer.step(kOneThread);
    EXPECT_EQ(trainer.history(), whole.history());
  });
}

TEST(TrainerRanks, AllReportAValueThatIsNotFinite) {
  const auto break_model = [](Trainer& trainer) { set(trainer, "model.layers.1.self_attn.q_proj.weight", 3e38F); };
  Trainer whole = make(small_settings(), kOneThread);
  advance(whole, 2, kOneThread);
  break_model(whole);
  const Divergence expected = divergence(whole);
  EXPECT_EQ(expected.operation, "query, key and value");
  ThreadRing ring(4);
  on_ranks(ring, [&](GradientChain& chain) {
    Trainer trainer = make(small_settings(), kOneThread, &chain);
    advance(trainer, 2, kOneThread);
    break_model(trainer);
    EXPECT_EQ(divergence(trainer).message, expected.message);
    EXPECT_EQ(trainer.history().size(), 2U);
  });
}

// A source that fails at one example.
class Failing final : public Counting {
 public:
  explicit Failing(Index at) : at_(at) {}
  void example(std::uint64_t seed, TaskSplit split, Index index, std::span<Index> tokens,
               std::span<Index> targets) const override {
    if (index == at_) throw std::bad_alloc();
    Counting::example(seed, split, index, tokens, targets);
  }

 private:
  Index at_;
};

TEST(TrainerRanks, AFailingRankFailsAll) {
  for (const Index failing : {0, 1, 2}) {
    ThreadRing ring(3);
    const auto errors = on_each_rank(ring, [&](GradientChain& chain) {
      const std::shared_ptr<const BatchSource> source =
          std::make_shared<Failing>(chain.rank() == failing ? 2 * 6 + 3 : -1);
      Trainer trainer(small_settings(), source, kOneThread, &chain);
      advance(trainer, 4, kOneThread);
    });
    for (Index rank = 0; rank < 3; ++rank) {
      const std::exception_ptr& error = errors[static_cast<std::size_t>(rank)];
      ASSERT_NE(error, nullptr);
      const auto rethrow = [&] { std::rethrow_exception(error); };
      if (rank == failing) {
        EXPECT_THROW(rethrow(), std::bad_alloc);
      } else {
        EXPECT_EQ(rejection<std::runtime_error>(rethrow), "another rank failed");
      }
    }
  }
}

TEST(TrainerRanks, OtherSettingsExamplesAndCheckpointsAreRejectedByAll) {
  const TestFolder folder;
  for (const Index step : {1, 2}) {
    Trainer trainer = make(small_settings());
    advance(trainer, step);
    trainer.save(folder / std::to_string(step));
  }
  ThreadRing ring(3);
  on_ranks(ring, [&](GradientChain& chain) {
    const bool differs = chain.rank() == 2;
    const std::string expected = "Trainer: the settings or the examples differ between ranks; expected the same on all";
    TrainingSettings settings = small_settings();
    if (differs) settings.learning_rate = 0.01;
    EXPECT_EQ(rejection([&] { make(settings, {}, &chain); }), expected);
    settings = small_settings();
    if (differs) settings.model.norm_epsilon = 1e-4;
    EXPECT_EQ(rejection([&] { make(settings, {}, &chain); }), expected);
    const std::shared_ptr<const BatchSource> source = std::make_shared<Counting>(differs ? "another" : "counting");
    EXPECT_EQ(rejection([&] { Trainer(small_settings(), source, {}, &chain); }), expected);

    Trainer trainer = make(small_settings(), {}, &chain);
    EXPECT_EQ(rejection([&] { trainer.resume(folder / (differs ? "2" : "1")); }),
              "Trainer: the steps of the checkpoints differ between ranks; expected the same on all");
    EXPECT_EQ(rejection([&] { trainer.step(); }), "Trainer::step: an earlier step failed; expected resume() first");
    trainer.resume(folder / "1");
    EXPECT_EQ(trainer.history().size(), 1U);
    // A file where the run's folder should be.
    std::ofstream(folder / "file") << "text";
    const std::string message = rejection<DataError>([&] { trainer.save(folder / "file"); });
    if (chain.rank() == 0) {
      EXPECT_NE(message, "accepted");
    } else {
      EXPECT_EQ(message, folder / "file" + ": rank 0 could not save a checkpoint");
    }
  });
}

TEST(TrainerRanks, PiecesAreEvenAndFew) {
  const auto count = [](Index batch, Index micro_batch, Index ranks) {
    return batch_pieces(batch, micro_batch, ranks).count;
  };
  EXPECT_EQ(count(6, 6, 1), 1);
  EXPECT_EQ(count(6, 6, 4), 4);
  EXPECT_EQ(count(6, 100, 4), 4);
  EXPECT_EQ(count(6, 6, 8), 6);
  EXPECT_EQ(count(6, 1, 4), 6);
  EXPECT_EQ(count(9, 4, 2), 4);
  EXPECT_EQ(count(100, 8, 3), 15);
  for (Index batch = 1; batch <= 20; ++batch) {
    for (Index micro_batch = 1; micro_batch <= batch; ++micro_batch) {
      for (Index ranks = 1; ranks <= 9; ++ranks) {
        const BatchPieces pieces = batch_pieces(batch, micro_batch, ranks);
        EXPECT_EQ(pieces.first(0), 0);
        EXPECT_EQ(pieces.first(pieces.count), batch);
        for (Index piece = 0; piece < pieces.count; ++piece) {
          const Index size = pieces.first(piece + 1) - pieces.first(piece);
          EXPECT_GE(size, batch / pieces.count);
          EXPECT_LE(size, std::min((batch + pieces.count - 1) / pieces.count, micro_batch));
        }
      }
    }
  }
}

TEST(WatchedChain, OfSeveralRanksIsRecordedByTheFirst) {
  WatchedRun plain(small_task(12), "", 5);
  while (!plain.done()) plain.step();
  plain.finish();
  ThreadRing ring(3);
  on_ranks(ring, [&](GradientChain& chain) {
    WatchedRun run(small_task(12), "", 5, kOneThread, &chain);
    while (!run.done()) run.step(kOneThread);
    run.finish(kOneThread);
    EXPECT_EQ(run.trainer().history(), plain.trainer().history());
    const TrainingRecord& record = run.record();
    ASSERT_EQ(record.curve.size(), 12U);
    ASSERT_EQ(record.snapshots.size(), chain.rank() == 0 ? plain.record().snapshots.size() : 0);
    for (std::size_t i = 0; i < record.snapshots.size(); ++i) {
      const TrainingSnapshot &here = record.snapshots[i], &there = plain.record().snapshots[i];
      EXPECT_EQ(here.step, there.step);
      EXPECT_EQ(here.loss, there.loss);
      for (std::size_t h = 0; h < here.heads.size(); ++h) {
        EXPECT_EQ(here.heads[h].weights, there.heads[h].weights);
        EXPECT_EQ(here.heads[h].ablation, there.heads[h].ablation);
      }
    }
    for (std::size_t i = 0; i < record.curve.size() && chain.rank() == 0; ++i) {
      EXPECT_EQ(record.curve[i].held_out_loss, plain.record().curve[i].held_out_loss);
      EXPECT_EQ(record.curve[i].accuracy, plain.record().curve[i].accuracy);
    }
  });
}

}  // namespace
}  // namespace regard::gradient_chain_test
