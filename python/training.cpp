// SPDX-License-Identifier: Apache-2.0
//
// Training runs for Python: one class, whose functions run without the interpreter's lock. python/regard/training.py
// has the loop and the classes that users see.
//
//     Training(settings …) ── advance(seconds) … finish() ──▶ log(), snapshots(), events(), html() …
//                                                        ──▶ parameters(), logits(), generate()
//
// Absent if the package was built without regard::explain. Read next: regard/train/watched_run.h.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <mutex>

#include "keywords.h"
#include "module.h"
#include "regard/explain/training_report.h"
#include "regard/model/generate.h"
#include "regard/train/trained_model.h"
#include "regard/train/watched_run.h"
#include "run.h"

namespace regard::python {
namespace {

constexpr const char* kName = "train";

// ---- settings

using Store = void (*)(TrainingSettings&, const Keywords&, const char* name, nb::handle value);

template <auto Member>
void setting(TrainingSettings& settings, const Keywords& keywords, const char* name, nb::handle value) {
  settings.*Member = keywords.number<std::remove_reference_t<decltype(settings.*Member)>>(name, value);
}
template <auto Member>
void extent(TrainingSettings& settings, const Keywords& keywords, const char* name, nb::handle value) {
  settings.model.*Member = keywords.number<Index>(name, value);
}
// Sets a member to the enumerator with the given name. Names are in the order of the enumerators.
template <auto Member, const auto& Names, class Object>
void choose(Object& object, const char* name, nb::handle value) {
  const std::string text = text_of(kName, name, value);
  const auto found = std::ranges::find(Names, text);
  if (found == Names.end()) {
    std::string expected;
    for (std::size_t i = 0; i < Names.size(); ++i) {
      expected += i == 0 ? "" : i + 1 == Names.size() ? " or " : ", ";
      expected += Names[i];
    }
    reject(kName, std::string(name) + " is '" + text + "'; expected " + expected);
  }
  object.*Member = static_cast<std::remove_reference_t<decltype(object.*Member)>>(found - Names.begin());
}
template <auto Member, const auto& Names>
void choice(TrainingSettings& settings, const Keywords&, const char* name, nb::handle value) {
  choose<Member, Names>(settings, name, value);
}
template <auto Member, const auto& Names>
void model_choice(TrainingSettings& settings, const Keywords&, const char* name, nb::handle value) {
  choose<Member, Names>(settings.model, name, value);
}

struct Setting {
  const char* name;  // the name of the program's option, with underscores
  Store store;
};

constexpr Setting kSettings[] = {
    {"steps", setting<&TrainingSettings::steps>},
    {"batch", setting<&TrainingSettings::batch>},
    {"micro_batch", setting<&TrainingSettings::micro_batch>},
    {"length", setting<&TrainingSettings::length>},
    {"seed", setting<&TrainingSettings::seed>},
    {"layers", extent<&DecoderConfig::num_layers>},
    {"heads", extent<&DecoderConfig::num_heads>},
    {"kv_heads", extent<&DecoderConfig::num_kv_heads>},
    {"width", extent<&DecoderConfig::width>},
    {"head_size", extent<&DecoderConfig::head_size>},
    {"feed_forward_width", extent<&DecoderConfig::feed_forward>},
    {"feed_forward", model_choice<&DecoderConfig::feed_forward_kind, kFeedForwardNames>},
    {"norm", model_choice<&DecoderConfig::norm, kNormNames>},
    {"positions", model_choice<&DecoderConfig::positions, kPositionNames>},
    {"optimizer", choice<&TrainingSettings::optimizer, kOptimizerNames>},
    {"learning_rate", setting<&TrainingSettings::learning_rate>},
    {"muon_learning_rate", setting<&TrainingSettings::muon_learning_rate>},
    {"min_learning_rate", setting<&TrainingSettings::min_learning_rate>},
    {"warmup", setting<&TrainingSettings::warmup>},
    {"schedule", choice<&TrainingSettings::schedule, kScheduleNames>},
    {"weight_decay", setting<&TrainingSettings::weight_decay>},
    {"beta1", setting<&TrainingSettings::beta1>},
    {"beta2", setting<&TrainingSettings::beta2>},
    {"clip", setting<&TrainingSettings::clip>},
    {"dropout", setting<&TrainingSettings::dropout>},
    {"precision", choice<&TrainingSettings::precision, kPrecisionNames>},
};

void replace_settings(TrainingSettings& settings, Keywords& keywords) {
  for (const Setting& one : kSettings) {
    if (const nb::handle value = keywords.take(one.name)) one.store(settings, keywords, one.name, value);
  }
  if (keywords.take_bool("untied")) settings.model.tied = false;
  if (keywords.take_bool("biases")) settings.model.biases = true;
  if (keywords.take_bool("recompute")) settings.recompute = true;
}

// ---- arrays

template <class T, class Fill>
nb::object filled_array(const std::vector<Index>& shape, const Fill& fill) {
  NewArray array(kName, "result", nb::module_::import_("numpy").attr("empty")(0), number_type<T>(), shape);
  fill(array.array.elements<T>(kName, "result"));
  return array.hand_out();
}

template <class T, class Values>
nb::object array_of(const Values& values, const std::vector<Index>& shape) {
  return filled_array<T>(shape, [&](std::span<T> out) { std::ranges::copy(values, out.begin()); });
}

template <class T, class Items, class Value>
nb::object column(const Items& items, const Value& value) {
  return filled_array<T>({static_cast<Index>(items.size())}, [&](std::span<T> out) {
    std::ranges::transform(items, out.begin(), [&](const auto& item) { return static_cast<T>(value(item)); });
  });
}

// ---- a run

class Training {
 public:
  // Held while a thread calls functions of the run.
  std::mutex mutex;
  std::unique_ptr<WatchedRun> run;
  // The model for generate(), loaded from a checkpoint of step generator_step.
  std::optional<TrainedModel> generator;
  Index generator_step = -1;

  Index steps_done() const { return static_cast<Index>(run->trainer().history().size()); }
};

// Calls call(run, runtime) without holding the interpreter's lock.
template <class Call>
void with_run(Training& self, const Call& call) {
  reject_in_plan(kName);
  run(kUnknownOperations, 0, [&](const Runtime& runtime) {
    const std::scoped_lock held(self.mutex);
    call(*self.run, runtime);
  });
}

Vocabulary vocabulary_of(nb::handle given, const std::string& text, const std::string& source) {
  if (PyUnicode_Check(given.ptr())) {
    const std::string kind = text_of(kName, "vocabulary", given);
    if (kind != "characters")
      reject(kName, "vocabulary is '" + kind + "'; expected 'characters' or a number of tokens");
  } else if (!PyLong_Check(given.ptr())) {
    reject_type(kName, "vocabulary", given, "'characters' or an integer");
  }
  const Index size = PyUnicode_Check(given.ptr()) ? 0 : nb::cast<Index>(given);
  std::optional<Vocabulary> vocabulary;
  run(kUnknownOperations, 0, [&](const Runtime& runtime) {
    vocabulary = size == 0 ? Vocabulary::characters_of(text, source, runtime.stop)
                           : Vocabulary::learn_byte_pairs(TextData::training_part(text), size, source, runtime.stop);
  });
  return *vocabulary;
}

void create(Training* self, const std::string& command, nb::kwargs kwargs) {
  reject_in_plan(kName);
  Keywords keywords(kName, std::move(kwargs));
  const nb::handle task = keywords.take("task"), text = keywords.take("text"), source = keywords.take("source");
  const nb::handle vocabulary = keywords.take("vocabulary");
  const bool shuffled = keywords.take_bool("shuffled");
  const nb::handle max_snapshots = keywords.take("snapshots");
  const Index snapshots = max_snapshots ? keywords.number<Index>("snapshots", max_snapshots) : 60;
  if (task.is_valid() == text.is_valid()) reject(kName, "expected either task or text");
  TrainingSubject subject;
  if (task) {
    if (vocabulary) reject(kName, "vocabulary applies only to a text; expected text");
    if (keywords.look("length")) reject(kName, "length applies only to a text; the length of a task is fixed");
    const TrainingTask& found = find_task(text_of(kName, "task", task));
    TrainingSettings settings = found.recipe;
    replace_settings(settings, keywords);
    keywords.finish();
    subject = task_subject(found, settings, shuffled ? TaskLabels::shuffled : TaskLabels::correct);
  } else {
    if (shuffled) reject(kName, "shuffled applies only to a task; expected task instead of text");
    const std::string read = text_of(kName, "text", text), name = source ? text_of(kName, "source", source) : "text";
    TrainingSettings settings = text_recipe();
    replace_settings(settings, keywords);
    keywords.finish();
    const Vocabulary tokens = vocabulary_of(vocabulary ? vocabulary : nb::str("characters"), read, name);
    run(kUnknownOperations, 0,
        [&](const Runtime& runtime) { subject = text_subject(read, tokens, settings, name, runtime.stop); });
  }
  std::unique_ptr<WatchedRun> made;
  run(kUnknownOperations, 0, [&](const Runtime& runtime) {
    made = std::make_unique<WatchedRun>(std::move(subject), command, snapshots, runtime);
  });
  new (self) Training;
  self->run = std::move(made);
}

// Performs steps for the given number of seconds, but at least one step. A signal ends the call after the current step
// is complete; the exception of the signal handler is then raised. Returns whether the run is done.
bool advance(Training& self, double seconds, int num_threads, const std::string& folder, Index checkpoint_every) {
  with_run(self, [&](WatchedRun& of, const Runtime& runtime) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                     std::chrono::duration<double>(std::min(seconds, 1e6)));
    while (!of.done()) {
      of.step({.num_threads = num_threads});
      if (!folder.empty() && self.steps_done() % checkpoint_every == 0) of.trainer().save(folder);
      if (Clock::now() >= end || runtime.stop.stop_requested()) break;
    }
  });
  return self.run->done();
}

nb::dict log_of(Training& self) {
  const std::vector<CurvePoint>& curve = self.run->record().curve;
  const auto optional = [](const std::optional<double>& value) {
    return value.value_or(std::numeric_limits<double>::quiet_NaN());
  };
  nb::dict log;
  log["step"] = column<Index>(curve, [](const CurvePoint& point) { return point.step; });
  log["loss"] = column<double>(curve, [](const CurvePoint& point) { return point.loss; });
  log["held_out_loss"] = column<double>(curve, [&](const CurvePoint& point) { return optional(point.held_out_loss); });
  log["gradient_norm"] = column<double>(curve, [](const CurvePoint& point) { return point.gradient_norm; });
  log["learning_rate"] = column<double>(curve, [](const CurvePoint& point) { return point.learning_rate; });
  log["tokens_per_second"] =
      column<double>(curve, [&](const CurvePoint& point) { return optional(point.tokens_per_second); });
  return log;
}

// An array of shape (snapshots, layers, heads, …), where `further` contains the remaining extents. fill(head, elements)
// writes the elements of one head.
template <class T, class Fill>
nb::object of_heads(const TrainingRecord& record, std::vector<Index> further, const Fill& fill) {
  const DecoderConfig& model = record.settings.model;
  std::vector<Index> shape{static_cast<Index>(record.snapshots.size()), model.num_layers, model.num_heads};
  std::size_t size = 1;
  for (const Index one : further) size *= static_cast<std::size_t>(one);
  shape.insert(shape.end(), further.begin(), further.end());
  return filled_array<T>(shape, [&](std::span<T> out) {
    for (const TrainingSnapshot& snapshot : record.snapshots) {
      for (const ProbedHead& head : snapshot.heads) {
        fill(head, out.first(size));
        out = out.subspan(size);
      }
    }
  });
}

nb::dict snapshots_of(Training& self) {
  const TrainingRecord& record = self.run->record();
  const auto length = static_cast<Index>(record.probe.tokens.size());
  nb::dict found;
  found["step"] = column<Index>(record.snapshots, [](const TrainingSnapshot& one) { return one.step; });
  found["loss"] = column<double>(record.snapshots, [](const TrainingSnapshot& one) { return one.loss; });
  found["weights"] = of_heads<float>(record, {length, length}, [&](const ProbedHead& head, std::span<float> out) {
    std::ranges::fill(out, 0.0F);
    const float* row = head.weights.data();
    for (Index i = 0; i < length; row += ++i) std::copy_n(row, i + 1, out.begin() + i * length);
  });
  const auto scores = [&](const char* name, const auto& value) {
    found[name] =
        of_heads<double>(record, {}, [&](const ProbedHead& head, std::span<double> out) { out[0] = value(head); });
  };
  scores("pattern", [](const ProbedHead& head) { return head.scores.pattern; });
  scores("previous", [](const ProbedHead& head) { return head.scores.previous; });
  scores("sink", [](const ProbedHead& head) { return head.scores.sink; });
  scores("entropy", [](const ProbedHead& head) { return head.scores.entropy; });
  scores("ablation", [](const ProbedHead& head) { return head.ablation; });
  const Index visible = record.probe.query + 1;
  found["grad_weights"] = of_heads<float>(record, {visible}, [](const ProbedHead& head, std::span<float> out) {
    std::ranges::copy(head.grad_weights, out.begin());
  });
  found["grad_scores"] = of_heads<float>(record, {visible}, [](const ProbedHead& head, std::span<float> out) {
    std::ranges::copy(head.grad_scores, out.begin());
  });
  return found;
}

nb::dict probe_of(Training& self) {
  const TrainingProbe& probe = self.run->record().probe;
  nb::dict found;
  found["tokens"] = nb::cast(probe.tokens);
  found["targets"] = nb::cast(probe.targets);
  found["wanted"] = nb::cast(probe.wanted);
  found["query"] = probe.query;
  found["uniform_pattern"] = probe.uniform.pattern;
  found["uniform_previous"] = probe.uniform.previous;
  found["uniform_sink"] = probe.uniform.sink;
  return found;
}

nb::list events_of(Training& self) {
  const TrainingRecord& record = self.run->record();
  nb::list events;
  for (const HeadEvent& event : find_events(record)) {
    nb::dict one;
    one["text"] = event_text(record, event);
    one["kind"] = event.kind == HeadEventKind::pattern ? "pattern" : "previous_token";
    one["layer"] = event.layer;
    one["head"] = event.head;
    one["step"] = event.step;
    one["score"] = event.score;
    one["uniform"] = event.uniform;
    one["loss_fall"] = event.loss_fall;
    one["ablation"] = event.ablation;
    events.append(one);
  }
  return events;
}

AblatedHead ablated_head(std::optional<std::pair<Index, Index>> ablate) {
  return ablate ? AblatedHead{ablate->first, ablate->second} : AblatedHead{};
}

nb::dict evaluate_of(Training& self, Index count, const std::string& split,
                     std::optional<std::pair<Index, Index>> ablate) {
  if (split != "held_out" && split != "train")
    reject("evaluate", "split is '" + split + "'; expected held_out or train");
  if (ablate && ablate->first < 0)
    reject("evaluate", "ablate[0] is " + std::to_string(ablate->first) + "; expected a layer");
  Evaluation evaluation;
  with_run(self, [&](WatchedRun& of, const Runtime& runtime) {
    evaluation = of.trainer().evaluate(split == "train" ? TaskSplit::train : TaskSplit::held_out, count,
                                       ablated_head(ablate), 0, runtime);
  });
  nb::dict found;
  found["loss"] = evaluation.loss;
  found["num_targets"] = evaluation.num_targets;
  found["correct_targets"] = evaluation.correct_targets;
  found["num_sequences"] = evaluation.num_sequences;
  found["correct_sequences"] = evaluation.correct_sequences;
  return found;
}

// ---- the model

nb::dict parameters_of(Training& self) {
  nb::dict found;
  self.run->trainer().visit_model([&]<class T>(DecoderTraining<T>& model) {
    std::span<const T> elements = model.parameters();
    for (const DecoderParameter& parameter : model.description()) {
      const auto size = static_cast<std::size_t>(parameter.size());
      found[parameter.name.c_str()] = array_of<T>(elements.first(size), parameter.shape);
      elements = elements.subspan(size);
    }
  });
  return found;
}

// The logits of sequences, (B, L, V), computed for micro_batch sequences at a time.
nb::object logits_of(Training& self, nb::handle tokens_object, std::optional<std::pair<Index, Index>> ablate) {
  constexpr const char* kLogits = "model";
  const Array tokens(kLogits, "tokens", tokens_object);
  const auto ids = tokens.view<const Index, 2>(kLogits, "tokens");
  if (ablate && ablate->first < 0)
    reject(kLogits, "ablate[0] is " + std::to_string(ablate->first) + "; expected a layer");
  const TrainingSettings& settings = self.run->subject().settings;
  const auto [batch, length] = ids.shape;
  return self.run->trainer().visit_model([&]<class T>(DecoderTraining<T>& model) {
    return filled_array<T>({batch, length, settings.model.vocabulary}, [&](std::span<T> out) {
      const std::vector<Index> none(static_cast<std::size_t>(batch * length), -1);
      const TensorView<const Index, 2> targets(none.data(), {batch, length});
      with_run(self, [&](WatchedRun&, const Runtime& runtime) {
        for (Index first = 0; first < batch; first += settings.micro_batch) {
          const Index last = std::min(batch, first + settings.micro_batch);
          model.evaluate({.tokens = sliced(ids, 0, first, last), .targets = sliced(targets, 0, first, last)},
                         ablated_head(ablate), {}, nullptr, runtime);
          const TensorView<const T, 2> logits = model.logits();
          for (Index row = 0; row < logits.shape[0]; ++row) {
            for (Index v = 0; v < logits.shape[1]; ++v) out[static_cast<std::size_t>(v)] = logits(row, v);
            out = out.subspan(static_cast<std::size_t>(logits.shape[1]));
          }
        }
      });
    });
  });
}

// A folder that the destructor removes.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "regard-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error(path_ + ": cannot be created");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The model after saving and loading a checkpoint, so that a run and its checkpoint generate the same text.
const TrainedModel& generator_of(Training& self, const Runtime& runtime) {
  if (self.generator_step != self.steps_done()) {
    const TemporaryFolder folder;
    self.generator = load_trained_model(self.run->trainer().save(folder.path()), {}, runtime);
    self.generator_step = self.steps_done();
  }
  return *self.generator;
}

std::vector<Index> generate_of(Training& self, const std::vector<Index>& prompt, Index tokens, double temperature,
                               Index top_k, double top_p, std::uint64_t seed) {
  if (tokens < 1) reject("generate", "tokens is " + std::to_string(tokens) + "; expected at least 1");
  std::vector<Index> ids;
  with_run(self, [&](WatchedRun&, const Runtime& runtime) {
    const GenerateOptions options{
        .max_tokens = tokens, .sampling = {.temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = seed}};
    ids = generate(generator_of(self, runtime).decoder, prompt, options, runtime).ids;
  });
  return ids;
}

Vocabulary vocabulary_of(const Training& self) {
  const TrainingSubject& subject = self.run->subject();
  return subject.task != nullptr ? Vocabulary::of_words(subject.task->vocabulary) : subject.text->vocabulary();
}

// A byte-pair token may end within a character. Such an incomplete character is replaced by U+FFFD.
nb::object text_object(const std::string& text) {
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

std::string path_of(nb::handle folder) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(folder.ptr(), &bytes) == 0) throw nb::python_error();
  const nb::object held = nb::steal(bytes);
  return {PyBytes_AS_STRING(bytes), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes))};
}

template <class Render>
std::string rendered(Training& self, const Render& render) {
  std::string text;
  with_run(self, [&](const WatchedRun& of, const Runtime&) { text = render(of.record()); });
  return text;
}

}  // namespace

void bind_training(nb::module_& module) {
  nb::class_<Training>(module, "Training", "A training run with its record.")
      .def("__init__", &create, nb::arg("command"), nb::arg("kwargs"),
           nb::sig("def __init__(self, command: str, **kwargs: object) -> None"))
      .def_prop_ro("step", &Training::steps_done, "The number of optimizer steps so far.")
      .def_prop_ro("steps", [](const Training& self) { return self.run->subject().settings.steps; })
      .def(
          "last",
          [](const Training& self) {
            const std::vector<CurvePoint>& curve = self.run->record().curve;
            return curve.empty() ? std::pair(0.0, 0.0)
                                 : std::pair(curve.back().loss, curve.back().tokens_per_second.value_or(0));
          },
          "The loss and the tokens per second of the last step.")
      .def_prop_ro("seconds", [](const Training& self) { return self.run->step_seconds(); })
      .def("advance", &advance, nb::arg("seconds"), nb::arg("num_threads"), nb::arg("folder"),
           nb::arg("checkpoint_every"),
           "Performs steps for the given number of seconds. A signal ends the call after a complete step. Returns\n"
           "whether the run is done.")
      .def(
          "finish",
          [](Training& self) { with_run(self, [](WatchedRun& of, const Runtime& runtime) { of.finish(runtime); }); },
          "Takes the last snapshot.")
      .def(
          "resume",
          [](Training& self, const std::string& folder) {
            std::string warning;
            with_run(self, [&](WatchedRun& of, const Runtime& runtime) {
              warning = of.resume(folder, runtime.stop).warning;
            });
            return warning;
          },
          nb::arg("folder"), "Resumes the newest checkpoint in a folder. Returns a warning or an empty string.")
      .def(
          "save",
          [](Training& self, nb::handle folder) {
            const std::string path = path_of(folder);
            std::string saved;
            with_run(self, [&](WatchedRun& of, const Runtime&) { saved = of.trainer().save(path); });
            return nb::steal<nb::str>(
                PyUnicode_DecodeFSDefaultAndSize(saved.data(), static_cast<Py_ssize_t>(saved.size())));
          },
          nb::arg("folder"), nb::sig("def save(self, folder: str | os.PathLike[str]) -> str"),
          "Saves a checkpoint and returns its path.")
      .def("log", &log_of, nb::sig("def log(self) -> dict[str, typing.Any]"), "The columns of the training curve.")
      .def("snapshots", &snapshots_of, nb::sig("def snapshots(self) -> dict[str, typing.Any]"),
           "Steps, losses, weights and scores of all snapshots.")
      .def("probe", &probe_of, nb::sig("def probe(self) -> dict[str, typing.Any]"),
           "The sequence on which heads are observed.")
      .def("events", &events_of, nb::sig("def events(self) -> list[dict[str, typing.Any]]"),
           "The moments at which heads formed.")
      .def(
          "findings", [](const Training& self) { return training_findings(self.run->record()); },
          "The findings of the run, in sentences.")
      .def(
          "summary", [](const Training& self) { return settings_summary(self.run->subject().settings); },
          "The settings in a few lines.")
      .def("evaluate", &evaluate_of, nb::arg("count"), nb::arg("split"), nb::arg("ablate").none(),
           nb::sig("def evaluate(self, count: int, split: str, ablate: tuple[int, int] | None) -> "
                   "dict[str, typing.Any]"))
      .def("parameters", &parameters_of, nb::sig("def parameters(self) -> dict[str, typing.Any]"),
           "Copies of all parameters, by name.")
      .def("logits", &logits_of, nb::arg("tokens"), nb::arg("ablate").none(),
           nb::sig("def logits(self, tokens: object, ablate: tuple[int, int] | None) -> typing.Any"),
           "The logits, (B, L, V), of int64 token ids, (B, L).")
      .def("generate", &generate_of, nb::arg("prompt"), nb::arg("tokens"), nb::arg("temperature"), nb::arg("top_k"),
           nb::arg("top_p"), nb::arg("seed"), "The token ids that continue a prompt.")
      .def(
          "encode", [](const Training& self, const std::string& text) { return vocabulary_of(self).encode(text); },
          nb::arg("text"))
      .def(
          "decode",
          [](const Training& self, const std::vector<Index>& ids) {
            return text_object(vocabulary_of(self).decode(ids));
          },
          nb::arg("ids"), nb::sig("def decode(self, ids: collections.abc.Sequence[int]) -> str"))
      .def(
          "text",
          [](Training& self, int width, bool color) {
            return rendered(self, [&](const TrainingRecord& record) {
              return training_text(record, {.width = width, .color = color});
            });
          },
          nb::arg("width"), nb::arg("color"), "A summary of the run as text.")
      .def("json",
           [](Training& self) { return rendered(self, [](const auto& of) { return training_record_json(of); }); })
      .def("html", [](Training& self) { return rendered(self, [](const auto& of) { return training_html(of); }); })
      .def("svg", [](Training& self) { return rendered(self, [](const auto& of) { return training_svg(of); }); });
  module.def(
      "training_tasks",
      [] {
        nb::list tasks;
        for (const TrainingTask& task : training_tasks()) {
          nb::dict one;
          one["name"] = nb::str(task.name.data(), task.name.size());
          one["shows"] = nb::str(task.shows.data(), task.shows.size());
          one["pattern"] = nb::str(task.pattern.data(), task.pattern.size());
          one["expected"] = nb::str(task.expected.data(), task.expected.size());
          one["parameters"] = decoder_size(task.recipe.model);
          tasks.append(one);
        }
        return tasks;
      },
      nb::sig("def training_tasks() -> list[dict[str, typing.Any]]"), "Returns the tasks that train() accepts.");
}

}  // namespace regard::python
