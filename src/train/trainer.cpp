// SPDX-License-Identifier: Apache-2.0
//
// A training run. State holds what does not depend on the element type, Run<T> the arrays.
//
//     step s:  examples s · B … s · B + B − 1 ─▶ micro-batches, whose gradients accumulate ─▶ optimizer_step
//
// The loss of a step is summed over its rows in order, in double, so that micro-batches do not change it. In a chain of
// ranks, each rank computes some pieces of the batch and then has the gradients of all; everything else is done by
// every rank, on the same values.
// Read next: divergence.cpp.
#include "regard/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>
#include <string_view>
#include <variant>

#include "divergence.h"
#include "regard/io/json_writer.h"
#include "regard/io/sha256.h"
#include "regard/random.h"
#include "regard/runtime.h"
#include "regard/train/optimizer.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/decoder/scratch_memory.h"

namespace regard::inline v0 {
namespace internal {

// Streams of random_… functions that are derived from the seed of a run; initialize() uses streams from 2^32 on.
constexpr std::uint64_t kDropoutStream = std::uint64_t{1} << 40;
constexpr std::uint64_t kEvaluationStream = kDropoutStream + 1;

std::uint64_t derived_seed(std::uint64_t seed, std::uint64_t stream, Index index) {
  const auto low = static_cast<std::uint32_t>(index), high = static_cast<std::uint32_t>(index >> 32);
  const auto bits =
      philox({low, high, static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}, seed);
  return std::uint64_t{bits[1]} << 32 | bits[0];
}

// The examples of a step, or some of an evaluation.
struct Examples {
  Examples(Index count, Index length) : tokens({count, length}), targets({count, length}) {}

  // Fills the first `count` sequences with the examples first, first + 1 …
  void draw(const BatchSource& source, std::uint64_t seed, TaskSplit split, Index first, Index count) {
    const auto length = static_cast<std::size_t>(tokens.shape()[1]);
    num_targets = 0;
    for (Index b = 0; b < count; ++b) {
      const std::span<Index> of_tokens(&tokens(b, 0), length), of_targets(&targets(b, 0), length);
      source.example(seed, split, first + b, of_tokens, of_targets);
      num_targets += std::count_if(of_targets.begin(), of_targets.end(), [](Index target) { return target >= 0; });
    }
  }
  TensorView<const Index, 2> part(const Tensor<Index, 2>& of, Index begin, Index end) const {
    return sliced(of.view(), 0, begin, end);
  }

  Tensor<Index, 2> tokens, targets;
  Index num_targets = 0;
};

template <class T>
struct Run {
  explicit Run(const TrainingSettings& settings)
      : model(settings.model, {.max_sequences = settings.micro_batch,
                               .max_length = settings.length,
                               .recompute = settings.recompute,
                               .bf16_products = settings.precision == TrainingPrecision::bf16_products}),
        first_moment(model.parameters().size()),
        second_moment(model.parameters().size()),
        scratch(static_cast<std::size_t>(optimizer_scratch_size(settings, model.description()))) {}

  std::size_t num_bytes() const {
    return model.num_bytes() + (first_moment.size() + second_moment.size() + scratch.size()) * sizeof(T);
  }
  TrainingArrays<T> arrays() { return {model.parameters(), first_moment, second_moment}; }

  DecoderTraining<T> model;
  std::vector<T> first_moment, second_moment, scratch;
  ScratchMemory optimizer_memory;
};

// The sum over all rows in order.
template <class T>
double added(double sum, const TensorView<const T, 2>& rows) {
  for (Index i = 0; i < rows.shape[0]; ++i) {
    for (Index j = 0; j < rows.shape[1]; ++j) sum += static_cast<double>(rows(i, j));
  }
  return sum;
}

// Throws on every rank if a value is not the same on all.
void expect_equal(GradientChain& chain, Index value, std::string_view what) {
  const Index highest = chain.largest(value), lowest = -chain.largest(-value);
  if (highest != lowest)
    throw InvalidArgument(fmt::format("Trainer: {} differ between ranks; expected the same on all", what));
}

// Almost certainly a different number for a different text.
Index digest(const std::string& text) {
  return std::stoll(sha256(std::as_bytes(std::span(text))).substr(0, 15), nullptr, 16);
}

Index run_digest(const TrainingSettings& settings, const TrainingData& data) {
  JsonWriter json;
  json.begin_object();
  write_training_settings(json, settings);
  for (const auto& [name, value] : data.identity) json.string(name, value);
  json.end_object();
  return digest(decoder_config_json(settings.model) + json.take());
}

// Instruction sets with fused multiply-add round identically, except that some multiply bfloat16 in their own way.
void expect_equal_rounding(GradientChain& chain, TrainingPrecision precision) {
  const std::string set = active_instruction_set();
  const bool own_products = precision == TrainingPrecision::bf16_products && set.ends_with("_bf16");
  expect_equal(
      chain, digest(has_fused_multiply_add() && !own_products ? "fused" : set),
      fmt::format("the roundings of the instruction sets (this rank: {}; REGARD_FORCE_ISA sets a common one)", set));
}

using AnyRun = std::variant<std::unique_ptr<Run<float>>, std::unique_ptr<Run<double>>>;

AnyRun make_run(const TrainingSettings& settings) {
  if (settings.precision == TrainingPrecision::float64) return std::make_unique<Run<double>>(settings);
  return std::make_unique<Run<float>>(settings);
}

}  // namespace internal
using namespace internal;

TrainingDiverged::TrainingDiverged(const std::string& message, Index at_step, Index in_layer, std::string in_operation)
    : DataError(message), step(at_step), layer(in_layer), operation(std::move(in_operation)) {}
TrainingDiverged::~TrainingDiverged() = default;

struct Trainer::State {
  State(const TrainingSettings& given, std::shared_ptr<const BatchSource> from, GradientChain* ranks)
      : settings(completed(given)),
        source(std::move(from)),
        chain(ranks != nullptr && ranks->num_ranks() > 1 ? ranks : nullptr),
        examples(settings.batch, settings.length),
        evaluated(settings.micro_batch, settings.length),
        run(make_run(settings)) {}

  TrainingBatch batch_of(Index begin, Index end) const {
    return {.tokens = examples.part(examples.tokens, begin, end),
            .targets = examples.part(examples.targets, begin, end),
            .num_targets = examples.num_targets,
            .first_sequence = begin,
            .dropout = settings.dropout,
            .dropout_seed = derived_seed(settings.seed, kDropoutStream, step())};
  }
  Index step() const { return static_cast<Index>(history.size()); }

  // Computes the gradients of the step, and returns the sum of the losses of all targets.
  template <class T>
  double sum_gradients(Run<T>& of, const Runtime& runtime);
  template <class T>
  double sum_gradients_in_chain(Run<T>& of, const Runtime& runtime);
  template <class T>
  TrainingStep advance(Run<T>& of, const Runtime& runtime);
  template <class T>
  Evaluation evaluate(Run<T>& of, TaskSplit split, Index count, const AblatedHead& ablated, Index first,
                      const Runtime& runtime);
  std::string save(const std::string& folder, const std::vector<CheckpointFile>& files);

  TrainingSettings settings;
  std::shared_ptr<const BatchSource> source;
  GradientChain* chain;  // nullptr means one rank
  double chain_loss = 0;
  Examples examples;
  Examples evaluated;
  AnyRun run;
  std::vector<TrainingStep> history;
  // An optimizer step failed and may have updated part of the arrays.
  bool is_broken = false;
  // Where the run was last saved, and at which step.
  std::string saved_run, saved_path;
  Index saved_step = -1;
};

template <class T>
double Trainer::State::sum_gradients(Run<T>& of, const Runtime& runtime) {
  double sum = 0;
  for (Index begin = 0; begin < settings.batch; begin += settings.micro_batch) {
    const TrainingBatch batch = batch_of(begin, std::min(begin + settings.micro_batch, settings.batch));
    of.model.forward_backward(batch, begin > 0, {}, runtime);
    sum = added(sum, of.model.row_losses());
    if (!std::isfinite(sum)) internal::throw_diverged(of.model, settings, batch, step(), runtime);
  }
  return sum;
}

template <class T>
double Trainer::State::sum_gradients_in_chain(Run<T>& of, const Runtime& runtime) {
  const Index ranks = chain->num_ranks(), rank = chain->rank();
  const BatchPieces pieces = batch_pieces(settings.batch, settings.micro_batch, ranks);
  const Index rank_of_last = (pieces.count - 1) % ranks;
  const bool next_has_total = (rank + 1) % ranks == rank_of_last;
  const std::span<double> loss(&chain_loss, 1);
  for (Index piece = rank; piece < pieces.count; piece += ranks) {
    const ChainedPiece place{.chain = chain, .is_first = piece == 0, .is_last = piece + 1 == pieces.count};
    of.model.forward_backward_in_chain(batch_of(pieces.first(piece), pieces.first(piece + 1)), place, runtime);
    if (!place.is_first) chain->receive(std::as_writable_bytes(loss));
    chain_loss = added(place.is_first ? 0 : chain_loss, of.model.row_losses());
    chain->send(std::as_bytes(loss));
  }
  if (rank != rank_of_last) {
    of.model.receive_gradients(*chain, !next_has_total);
    chain->receive(std::as_writable_bytes(loss));
    if (!next_has_total) chain->send(std::as_bytes(loss));
  }
  chain->finish();
  if (!std::isfinite(chain_loss))
    internal::throw_diverged(of.model, settings, batch_of(0, settings.batch), step(), runtime);
  return chain_loss;
}

template <class T>
TrainingStep Trainer::State::advance(Run<T>& of, const Runtime& runtime) {
  TrainingStep result{.step = step()};
  examples.draw(*source, settings.seed, TaskSplit::train, step() * settings.batch, settings.batch);
  // A stop would leave some parameters updated and others not, or other ranks waiting.
  Runtime unstopped = runtime;
  unstopped.stop = {};
  double sum = 0;
  if (chain != nullptr) {
    if (chain->largest(runtime.stop.stop_requested() ? 1 : 0) != 0) throw Cancelled("Trainer::step was stopped");
    sum = sum_gradients_in_chain(of, unstopped);
  } else {
    sum = sum_gradients(of, runtime);
    throw_if_stopped(runtime.stop, "Trainer::step");
  }
  result.loss = examples.num_targets > 0 ? sum / static_cast<double>(examples.num_targets) : 0;
  is_broken = true;
  const OptimizerStep done =
      optimizer_step<T>(settings, of.model.description(), of.model.parameters(), of.model.gradients(), of.first_moment,
                        of.second_moment, step(), of.scratch, with_scratch(unstopped, of.optimizer_memory));
  is_broken = false;
  if (!std::isfinite(done.gradient_norm)) internal::throw_diverged_gradient(of.model, step());
  result.gradient_norm = done.gradient_norm;
  result.learning_rate = done.learning_rate;
  history.push_back(result);
  return result;
}

template <class T>
Evaluation Trainer::State::evaluate(Run<T>& of, TaskSplit split, Index count, const AblatedHead& ablated, Index first,
                                    const Runtime& runtime) {
  const std::uint64_t seed = derived_seed(settings.seed, kEvaluationStream, 0);
  Evaluation result{.num_sequences = count};
  double sum = 0;
  for (Index begin = 0; begin < count; begin += settings.micro_batch) {
    const Index size = std::min(settings.micro_batch, count - begin);
    evaluated.draw(*source, seed, split, first + begin, size);
    of.model.evaluate(
        {.tokens = evaluated.part(evaluated.tokens, 0, size), .targets = evaluated.part(evaluated.targets, 0, size)},
        ablated, {}, nullptr, runtime);
    sum = added(sum, of.model.row_losses());
    result.num_targets += evaluated.num_targets;
    const TensorView<const T, 2> logits = of.model.logits();
    for (Index b = 0; b < size; ++b) {
      bool all_correct = true;
      for (Index j = 0; j < settings.length; ++j) {
        const Index target = evaluated.targets(b, j);
        if (target < 0) continue;
        const T* const row = logits.pointer(b * settings.length + j, 0);
        const bool correct = std::max_element(row, row + logits.shape[1]) == row + target;
        result.correct_targets += correct;
        all_correct = all_correct && correct;
      }
      result.correct_sequences += all_correct;
    }
  }
  result.loss = result.num_targets > 0 ? sum / static_cast<double>(result.num_targets) : 0;
  return result;
}

Trainer::Trainer(const TrainingSettings& settings, std::shared_ptr<const BatchSource> source, const Runtime& runtime,
                 GradientChain* chain) {
  const auto check = [](const char* name, Index value, Index expected) {
    if (value == expected) return;
    throw InvalidArgument(fmt::format("Trainer: {} is {}; expected {}, as in the source", name, value, expected));
  };
  if (source == nullptr) throw InvalidArgument("Trainer: source is null; expected a source of examples");
  const TrainingSettings all = completed(settings);
  check("vocabulary", all.model.vocabulary, source->vocabulary());
  check("length", all.length, source->length());
  state_ = std::make_unique<State>(all, std::move(source), chain);
  if (state_->chain != nullptr) {
    expect_equal(*chain, run_digest(all, state_->source->data()), "the settings or the examples");
    expect_equal_rounding(*chain, all.precision);
  }
  std::visit(
      [&](auto& run) { initialize(run->model.description(), run->model.parameters(), state_->settings.seed, runtime); },
      state_->run);
}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

const TrainingSettings& Trainer::settings() const { return state_->settings; }
const BatchSource& Trainer::source() const { return *state_->source; }
const std::vector<TrainingStep>& Trainer::history() const { return state_->history; }
bool Trainer::done() const { return state_->step() >= state_->settings.steps; }
std::size_t Trainer::num_bytes() const {
  return std::visit([](const auto& run) { return run->num_bytes(); }, state_->run);
}

TrainingStep Trainer::step(const Runtime& runtime) {
  if (state_->is_broken) throw InvalidArgument("Trainer::step: an earlier step failed; expected resume() first");
  try {
    return std::visit([&](auto& run) { return state_->advance(*run, runtime); }, state_->run);
  } catch (const TrainingDiverged&) {
    throw;  // on every rank
  } catch (const Cancelled&) {
    throw;  // likewise
  } catch (...) {
    if (state_->chain != nullptr) state_->chain->abandon();
    throw;
  }
}

Evaluation Trainer::evaluate(TaskSplit split, Index count, const AblatedHead& ablated, Index first,
                             const Runtime& runtime) {
  if (count < 1) throw InvalidArgument(fmt::format("Trainer::evaluate: count is {}; expected at least 1", count));
  if (first < 0) throw InvalidArgument(fmt::format("Trainer::evaluate: first is {}; expected at least 0", first));
  return std::visit([&](auto& run) { return state_->evaluate(*run, split, count, ablated, first, runtime); },
                    state_->run);
}

std::string Trainer::State::save(const std::string& folder, const std::vector<CheckpointFile>& files) {
  if (saved_run == folder && saved_step == step()) return saved_path;
  TrainingState state{settings, source->data(), history, source->files()};
  state.files.insert(state.files.end(), files.begin(), files.end());
  saved_path = std::visit(
      [&]<class T>(const std::unique_ptr<Run<T>>& of) {
        internal::check_parameters(of->model, step());
        return save_checkpoint<T>(folder, state, {of->model.parameters(), of->first_moment, of->second_moment});
      },
      run);
  saved_run = folder;
  saved_step = step();
  return saved_path;
}

std::string Trainer::save(const std::string& run, const std::vector<CheckpointFile>& files) {
  State& s = *state_;
  if (s.is_broken) throw InvalidArgument("Trainer::save: an earlier step failed; expected resume() first");
  if (s.chain == nullptr) return s.save(run, files);
  std::exception_ptr error;
  std::string path;
  try {
    if (s.chain->rank() == 0) path = s.save(run, files);
  } catch (...) {
    error = std::current_exception();
  }
  const bool failed = s.chain->largest(error != nullptr ? 1 : 0) != 0;
  if (error != nullptr) std::rethrow_exception(error);
  if (failed) throw DataError(run + ": rank 0 could not save a checkpoint");
  return path;
}

LoadedCheckpoint Trainer::resume(const std::string& path, const std::stop_token& stop) {
  State& s = *state_;
  LoadedCheckpoint loaded = std::visit(
      [&]<class T>(std::unique_ptr<Run<T>>& of) {
        return load_checkpoint<T>(trained_model_folder(path), s.settings, s.source->data(), of->arrays(), stop);
      },
      s.run);
  s.history = loaded.state.history;
  s.is_broken = s.chain != nullptr;
  if (s.chain != nullptr) expect_equal(*s.chain, s.step(), "the steps of the checkpoints");
  s.is_broken = false;
  s.saved_step = -1;
  return loaded;
}

bool Trainer::is_float64() const { return state_->run.index() == 1; }

template <class T>
DecoderTraining<T>& Trainer::model() {
  auto* const run = std::get_if<std::unique_ptr<Run<T>>>(&state_->run);
  if (run == nullptr) {
    throw InvalidArgument(fmt::format("Trainer::model: the parameters are {}; expected the model of that type",
                                      is_float64() ? "double" : "float"));
  }
  return (*run)->model;
}

template REGARD_EXPORT DecoderTraining<float>& Trainer::model<float>();
template REGARD_EXPORT DecoderTraining<double>& Trainer::model<double>();

}  // namespace regard::inline v0
