// SPDX-License-Identifier: Apache-2.0
//
// `regard train`: trains a small decoder on a task or a text, and shows which head learned what, and when.
//
//     subject (task or text, settings) ─▶ WatchedRun ─▶ steps ─┬─▶ record: curve, snapshots of all heads
//                                                              └─▶ checkpoints, at regular intervals
//     record ─▶ a summary on the terminal, --watch page, --log, --plot, --json
//
// SIGINT and SIGTERM end the loop after the current step: everything is saved and written, and the exit code is 128 +
// the number of the signal. In a chain of ranks, every rank takes the steps, and rank 0 alone prints and writes.
// Read next: train_options.h, regard/train/watched_run.h, regard/train/record.h.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "program.h"
#include "progress.h"
#include "ranks/program_ranks.h"
#include "ranks/ranks_chain.h"
#include "regard/explain/training_report.h"
#include "regard/io/csv.h"
#include "regard/io/utf8.h"
#include "train_options.h"
#include "train_report.h"

namespace regard::program {
namespace {

constinit volatile sig_atomic_t received_signal = 0;
extern "C" void note_signal(int signal) { received_signal = signal; }

// During its lifetime, SIGINT and SIGTERM are recorded instead of ending the program; a second one ends it.
class DeferredSignals {
 public:
  DeferredSignals() {
    received_signal = 0;
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], nullptr, &previous_[i]);
      if (previous_[i].sa_handler == SIG_IGN) continue;
      struct sigaction action{};
      action.sa_handler = note_signal;
      action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
      ::sigaction(kSignals[i], &action, nullptr);
    }
  }
  ~DeferredSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &previous_[i], nullptr);
  }
  DeferredSignals(const DeferredSignals&) = delete;
  DeferredSignals& operator=(const DeferredSignals&) = delete;

 private:
  static constexpr std::array<int, 2> kSignals{SIGINT, SIGTERM};
  std::array<struct sigaction, 2> previous_{};
};

constexpr Index kEvaluatedAfterSignal = 32;  // examples

// Whether this rank prints and writes.
bool is_first(const GradientChain* chain) { return chain == nullptr || chain->rank() == 0; }

// The signal that this rank or another one has received, 0 if none has. All ranks call it at the same points.
int agreed_signal(GradientChain* chain) {
  return chain == nullptr ? received_signal : static_cast<int>(chain->largest(received_signal));
}

// Returns the signal that has ended the loop, or 0.
int take_steps(WatchedRun& run, const TrainArguments& arguments, Index checkpoint_every, GradientChain* chain) {
  const TrainingSettings& settings = run.subject().settings;
  std::optional<Progress> progress;
  if (is_first(chain)) progress.emplace("train");
  while (!run.done() && agreed_signal(chain) == 0) {
    const CurvePoint& point = run.step();
    if (progress) {
      progress->note(fmt::format("loss {:.3f}  {:.0f} tokens/s", point.loss, point.tokens_per_second.value_or(0)));
      progress->update(point.step + 1, settings.steps);
    }
    if (!arguments.run.empty() && (point.step + 1) % checkpoint_every == 0) run.trainer().save(arguments.run);
  }
  run.finish();
  if (!arguments.run.empty()) run.trainer().save(arguments.run);
  return agreed_signal(chain);
}

// The text of an output file by its extension.
std::string log_text(const WatchedRun& run, const std::string& path) {
  if (path.ends_with(".json")) return training_record_json(run.record(), {.heads = false});
  if (!path.ends_with(".csv")) throw UsageError("--log " + path + " does not end in .csv or .json");
  return curve_csv(run.record().curve);
}

void write_outputs(const WatchedRun& run, const TrainArguments& arguments) {
  OutputFiles files;
  const auto add = [&](const std::string& path, const auto& text) {
    if (path.empty()) return;
    const std::size_t file = files.add(path);
    const std::string contents = text();
    files.write(file, contents.data(), contents.size());
  };
  add(arguments.watch, [&] { return training_html(run.record()); });
  add(arguments.log, [&] { return log_text(run, arguments.log); });
  add(arguments.plot, [&] { return training_svg(run.record()); });
  files.commit();
}

void print_story(const WatchedRun& run, const Evaluation& held_out, const TrainArguments& arguments) {
  std::string text = training_text(
      run.record(), {.width = output_width(), .color = use_color(arguments.color), .unicode = terminal_is_unicode()});
  text += "\n" + result_text(held_out, run);
  if (arguments.profile) text += "\n" + profile_text(run.trainer(), run.step_seconds());
  if (!arguments.watch.empty() && arguments.watch != "-")
    text += page_line(arguments.watch, "every head at every snapshot");
  if (!arguments.run.empty())
    text += fmt::format("  model  {}: regard generate {} \"…\"\n", escape_for_terminal(arguments.run),
                        quote_for_shell(arguments.run));
  write_stdout(text);
}

Index checkpoint_interval(const TrainArguments& arguments, Index steps) {
  if (arguments.checkpoint_every.empty()) return std::max<Index>(1, steps / 10);
  const Index interval = parse_integer("--checkpoint-every", arguments.checkpoint_every);
  if (interval < 1) throw UsageError(fmt::format("--checkpoint-every is {}; expected at least 1", interval));
  return interval;
}

Index evaluated_at_end(const TrainArguments& arguments) {
  const Index sequences = arguments.evaluate.empty() ? 512 : parse_integer("--evaluate", arguments.evaluate);
  if (sequences < 1) throw UsageError(fmt::format("--evaluate is {}; expected at least 1", sequences));
  return sequences;
}

void check(const TrainArguments& arguments) {
  if (!arguments.resume && !arguments.run.empty() && !list_checkpoints(arguments.run).empty()) {
    throw UsageError("--run " + arguments.run +
                     " already has checkpoints; add --resume to continue, or name another folder");
  }
  std::vector<NamedPath> outputs;
  for (const auto& [option, path] :
       {std::pair{"--watch", &arguments.watch}, {"--log", &arguments.log}, {"--plot", &arguments.plot}}) {
    if (!path->empty()) outputs.push_back({option, *path});
  }
  if (arguments.json) outputs.push_back({"--json", "-"});
  check_paths(arguments.text.empty() ? std::vector<NamedPath>{} : std::vector<NamedPath>{{"--text", arguments.text}},
              outputs);
  if (!arguments.log.empty() && !arguments.log.ends_with(".csv") && !arguments.log.ends_with(".json"))
    throw UsageError("--log " + arguments.log + " does not end in .csv or .json");
}

// chain: the ranks of the run; nullptr means this process alone.
void train(const TrainArguments& arguments, GradientChain* chain) {
  const auto print = [chain](const std::string& text) {
    if (is_first(chain)) write_stdout(text);
  };
  if (arguments.list) return print(arguments.json ? task_list_json() : task_list_text());
  check(arguments);
  std::optional<TrainingState> stored;
  if (arguments.resume) {
    const std::vector<std::string> checkpoints = list_checkpoints(arguments.run);
    if (checkpoints.empty()) throw UsageError("--run " + arguments.run + " has no checkpoint to resume");
    stored = read_training_state(checkpoints.back());
  }
  const TrainingSubject subject = subject_of(arguments, stored ? &*stored : nullptr);
  const Index checkpoint_every = checkpoint_interval(arguments, subject.settings.steps);
  const Index evaluated = evaluated_at_end(arguments);
  if (arguments.dry_run) return print(plan_text(subject));
  const Index max_snapshots = arguments.snapshots.empty() ? 60 : parse_integer("--snapshots", arguments.snapshots);
  usage("--snapshots", [&] { return snapshot_steps(subject.settings.steps, max_snapshots); });
  WatchedRun run(subject, command_line(), max_snapshots, {}, chain);
  if (arguments.resume) {
    const LoadedCheckpoint loaded = run.resume(arguments.run);
    if (!loaded.warning.empty() && is_first(chain))
      fmt::print(stderr, "regard: {}\n", escape_for_terminal(loaded.warning));
  }
  if (!arguments.json) print(plan_text(subject));
  int signal = 0;
  {
    const DeferredSignals signals;
    signal = take_steps(run, arguments, checkpoint_every, chain);
  }
  if (!is_first(chain)) return;
  const Evaluation held_out =
      run.trainer().evaluate(TaskSplit::held_out, signal != 0 ? std::min(kEvaluatedAfterSignal, evaluated) : evaluated);
  write_outputs(run, arguments);
  if (arguments.json) {
    write_stdout(training_record_json(run.record()));
  } else {
    print_story(run, held_out, arguments);
  }
  if (signal != 0) throw StoppedBySignal(signal, stopped_text(run.trainer(), arguments.run));
}

}  // namespace

void add_train(CLI::App& app) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "Train a small decoder and watch its attention heads form");
  const auto add = [&](const char* name, std::string& value, const char* type, const char* help) {
    command->add_option(name, value, help)->type_name(type);
  };
  const auto flag = [&](const char* name, bool& value, const char* help) { command->add_flag(name, value, help); };
  flag("--list", arguments->list,
       "list the built-in tasks, with their model sizes,\nexpected times and attention patterns");
  add("--task", arguments->task, "NAME", "train on a built-in task, with tested settings");
  add("--text", arguments->text, "FILE", "train on a UTF-8 text file, or - for standard input");
  add("--vocabulary", arguments->vocabulary, "characters|N",
      "tokens: characters (default), or at most N byte-pair\ntokens learned from the text");
  flag("--shuffled", arguments->shuffled,
       "control run: replace the tokens to predict with\nrandom tokens, so that there is nothing to learn");
  add("--run", arguments->run, "FOLDER", "save checkpoints and the model in this folder");
  flag("--resume", arguments->resume,
       "continue the run in --run, with results\nbit-identical to those of an uninterrupted run");
  add("--checkpoint-every", arguments->checkpoint_every, "N", "steps between checkpoints (default: 1/10 of --steps)");
  add("--watch", arguments->watch, "FILE", "write an HTML page that shows every head at every\nsnapshot");
  add("--snapshots", arguments->snapshots, "N", "maximum number of snapshots (default: 60)");
  add("--evaluate", arguments->evaluate, "N",
      "number of held-out sequences on which to evaluate at\nthe end (default: 512)");
  add("--log", arguments->log, "FILE", "write the loss curve as .csv or .json");
  add("--plot", arguments->plot, "FILE", "write a plot of the loss and the scores as SVG");
  flag("--json", arguments->json, "print the record of the run, or the list of tasks,\nas JSON");
  flag("--profile", arguments->profile, "print the time spent in each part of a step");
  flag("--dry-run", arguments->dry_run, "print the model and the amount of computation,\nwithout training");
  flag("--ranks", arguments->ranks,
       "distribute the sequences of each step over the\nprocesses started by mpirun; results are\n"
       "bit-identical to those of a single process");
  add("--timeout", arguments->timeout, "SECONDS",
      "with --ranks: time to wait for an unresponsive\nprocess (default: 60)");
  for (const std::string name : {"--resume", "--checkpoint-every"})
    needs(command->get_option(name), command->get_option("--run"), name + " needs --run FOLDER");
  needs(command->get_option("--timeout"), command->get_option("--ranks"), "--timeout needs --ranks");
  add_train_settings(*command, *arguments);
  add_color_option(*command, arguments->color);
  command->footer(
      "EXAMPLES\n"
      "  regard train --task induction --watch head.html\n"
      "  regard train --text book.txt --run book --steps 5000\n"
      "  regard train --text book.txt --run book --resume\n"
      "\n"
      "A run is fully determined by its settings, its seed and its task or text.\n"
      "Results are bit-identical for any number of threads, with or without\n"
      "--micro-batch and --recompute. docs/guide/training.md explains the tasks and\n"
      "the page.");
  command->callback([arguments] {
    if (!arguments->ranks) return train(*arguments, nullptr);
    if (arguments->text == "-") throw UsageError("--text - would be read by every process; with --ranks, name a file");
    run_on_ranks(parse_timeout(arguments->timeout), [&](Ranks& ranks) {
      RanksChain chain(ranks);
      train(*arguments, &chain);
    });
  });
}

}  // namespace regard::program
