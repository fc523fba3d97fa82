// SPDX-License-Identifier: Apache-2.0
//
// Training runs for bench/training.py, which trains the same model with PyTorch on the same batches.
//
//     a text, or random tokens ─▶ BatchSource ─▶ Trainer ─▶ loss of each step
//
// Each function returns −1 or null after an error, whose message training_error() returns.
// Read next: regard/train/trainer.h.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "random_tokens.h"
#include "regard/io/text_file.h"
#include "regard/train/trainer.h"

namespace {

using namespace regard;

thread_local std::string last_error;

struct Run {
  std::unique_ptr<Trainer> trainer;
  Runtime runtime;
};

template <class Result, class Call>
Result guarded(Result failed, Call&& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    last_error = error.what();
    return failed;
  }
}

}  // namespace

extern "C" {

struct TrainingShape {
  const char* text;         // path of a text whose characters are the tokens; nullptr means random tokens
  std::int64_t vocabulary;  // of random tokens
  std::int64_t layers, heads, width, biases, batch, length, steps, seed;
  std::int64_t precision;  // of TrainingPrecision
  std::int64_t threads;
};

const char* training_error() { return last_error.c_str(); }

// The recipe of nanoGPT for laptops, for any shape: AdamW, cosine schedule, 100 steps of warm-up.
void* training_open(const TrainingShape* shape) {
  return guarded<void*>(nullptr, [&] {
    TrainingSettings settings;
    settings.batch = shape->batch;
    settings.length = shape->length;
    settings.steps = shape->steps;
    settings.seed = static_cast<std::uint64_t>(shape->seed);
    settings.warmup = std::min<Index>(100, shape->steps);
    settings.precision = static_cast<TrainingPrecision>(shape->precision);
    settings.model = {.num_layers = shape->layers, .num_heads = shape->heads, .width = shape->width};
    settings.model.max_positions = shape->length;
    settings.model.biases = shape->biases != 0;
    std::shared_ptr<const BatchSource> source;
    if (shape->text != nullptr) {
      const std::string text = read_text_file(shape->text);
      source = text_source(TextData(text, Vocabulary::characters_of(text), shape->length, shape->text), shape->text);
    } else {
      source = std::make_shared<bench::RandomTokens>(shape->vocabulary, shape->length);
    }
    settings.model.vocabulary = source->vocabulary();
    auto run = std::make_unique<Run>();
    run->runtime.num_threads = static_cast<int>(shape->threads);
    run->trainer = std::make_unique<Trainer>(settings, source, run->runtime);
    return static_cast<void*>(run.release());
  });
}
void training_close(void* run) { delete static_cast<Run*>(run); }

std::int64_t training_vocabulary(const void* run) {
  return static_cast<const Run*>(run)->trainer->source().vocabulary();
}

// The loss of the step.
double training_step(void* run) {
  Run& of = *static_cast<Run*>(run);
  return guarded(-1.0, [&] { return of.trainer->step(of.runtime).loss; });
}

// tokens and targets: (batch, length), those of a step.
int training_batch(const void* run, std::int64_t step, std::int64_t* tokens, std::int64_t* targets) {
  const Trainer& trainer = *static_cast<const Run*>(run)->trainer;
  return guarded(-1, [&] {
    const TrainingSettings& settings = trainer.settings();
    std::vector<Index> inputs(static_cast<std::size_t>(settings.length)), wanted(inputs.size());
    for (Index b = 0; b < settings.batch; ++b) {
      trainer.source().example(settings.seed, TaskSplit::train, step * settings.batch + b, inputs, wanted);
      std::copy(inputs.begin(), inputs.end(), tokens + b * settings.length);
      std::copy(wanted.begin(), wanted.end(), targets + b * settings.length);
    }
    return 0;
  });
}

// seconds: those of TrainingProfile but messages, in its order, since the run began.
void training_profile(void* run, double* seconds) {
  const TrainingProfile profile =
      static_cast<Run*>(run)->trainer->visit_model([](auto& model) { return model.profile(); });
  const double all[] = {profile.products, profile.attention, profile.norms, profile.activations,
                        profile.rotation, profile.embedding, profile.loss,  profile.residual};
  std::copy(std::begin(all), std::end(all), seconds);
}

}  // extern "C"
