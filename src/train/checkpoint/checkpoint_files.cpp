// SPDX-License-Identifier: Apache-2.0
//
// The files of a checkpoint, written and read.
//
//     training.json    {"schema": "regard/1", "version", "instruction_set", "fused_multiply_add", "numerics", "step",
//                       "loss", "data": {"name", "identity": {…}}, "settings": {…}, "sha256": {file: digits, …}}
//
// It is written last, with the SHA-256 of every other file as read back from the disk cache, and is read first.
// Read next: settings_json.cpp.
#include "checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "instantiate.h"
#include "regard/error.h"
#include "regard/io/safetensors_writer.h"
#include "regard/io/sha256.h"
#include "regard/io/utf8.h"

namespace regard::inline v0 {
namespace internal {

bool has_fused_multiply_add() {
  const std::vector<InstructionSet> sets = instruction_sets();
  return std::any_of(sets.begin(), sets.end(),
                     [](const InstructionSet& set) { return set.active && set.fused_multiply_add; });
}

namespace {

constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 30;
constexpr std::size_t kMaxFiles = 64;
constexpr std::array<std::string_view, 2> kMoments{"first_moment", "second_moment"};
constexpr std::array<std::string_view, 3> kHistory{"history.loss", "history.gradient_norm", "history.learning_rate"};

[[noreturn]] void reject_checkpoint(const std::string& path, const std::string& what) {
  throw DataError(fmt::format("{}: {}", escape_for_terminal(path), what));
}

// ---- names of files

bool is_file_name(std::string_view name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 100 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [&](char c) { return is_letter(c) || c == '.'; });
}

bool is_own_name(std::string_view name) {
  return name == kConfigName || name == kModelName || name == kOptimizerName || name == kTrainingName;
}

// ---- arrays as tensors of a file

template <class T>
void add_tensors(std::vector<StoredTensor>& to, const DecoderConfig& model, std::string_view prefix,
                 std::span<const T> elements) {
  for (DecoderParameter& parameter : decoder_parameters(model)) {
    const auto size = static_cast<std::size_t>(parameter.size());
    to.push_back({fmt::format("{}{}", prefix, parameter.name), kElementType<T>, std::move(parameter.shape),
                  std::as_bytes(elements.first(size))});
    elements = elements.subspan(size);
  }
}

// Loss, norm and rate of each step, one after the other.
std::vector<double> history_columns(const std::vector<TrainingStep>& history) {
  std::vector<double> columns;
  columns.reserve(kHistory.size() * history.size());
  for (const auto member : {&TrainingStep::loss, &TrainingStep::gradient_norm, &TrainingStep::learning_rate}) {
    for (const TrainingStep& step : history) columns.push_back(step.*member);
  }
  return columns;
}

Checkpoint read_tensors(const std::string& folder, std::string_view file, const std::stop_token& stop,
                        bool map = false) {
  return Checkpoint::read_file(path_in(folder, file), {.map = map, .allow_nonfinite = true}, stop);
}

// ---- training.json

using Digests = std::vector<std::pair<std::string, std::string>>;

std::string training_json(const TrainingState& state, const Digests& digests) {
  JsonWriter json;
  json.begin_object();
  json.string("schema", "regard/1");
  json.string("version", version());
  json.string("instruction_set", active_instruction_set());
  json.boolean("fused_multiply_add", has_fused_multiply_add());
  json.whole("numerics", kTrainingNumerics);
  json.whole("step", static_cast<Index>(state.history.size()));
  if (!state.history.empty()) json.number("loss", state.history.back().loss);
  json.name("data");
  json.begin_object();
  json.string("name", state.data.name);
  json.name("identity");
  json.begin_object();
  for (const auto& [name, value] : state.data.identity) json.string(name, value);
  json.end_object();
  json.end_object();
  json.name("settings");
  json.begin_object();
  write_training_settings(json, state.settings);
  json.end_object();
  json.name("sha256");
  json.begin_object();
  for (const auto& [file, digits] : digests) json.string(file, digits);
  json.end_object();
  json.end_object();
  return json.take();
}

struct SavedTraining {
  TrainingState state;
  Index step = 0;
  Index numerics = 0;
  std::string instruction_set;
  bool fused_multiply_add = false;
  Digests digests;
};

std::vector<std::pair<std::string, std::string>> text_members(const JsonFields& fields, std::string_view name) {
  const JsonFields object = fields.object(name);
  std::vector<std::pair<std::string, std::string>> members;
  for (const auto& member : fields.required(name).members()) {
    members.emplace_back(member.first, object.text(member.first));
  }
  return members;
}

// The text of a file, whose SHA-256 must be the given one.
std::string read_checked(const std::string& folder, std::string_view file, const std::string& digits) {
  std::string text = read_model_text(folder, file, kMaxTextBytes);
  if (const std::string found = sha256(std::as_bytes(std::span(text))); found != digits) {
    reject_checkpoint(path_in(folder, file), fmt::format("has been changed: its SHA-256 is {}; {} has {}", found,
                                                         kTrainingName, text_in_message(digits)));
  }
  return text;
}

const std::string& digits_of(const std::string& folder, const Digests& digests, std::string_view file) {
  for (const auto& [name, digits] : digests) {
    if (name == file) return digits;
  }
  reject_checkpoint(path_in(folder, kTrainingName), fmt::format("sha256 of {} is missing", file));
}

SavedTraining read_saved(const std::string& folder) {
  const std::string path = path_in(folder, kTrainingName);
  const JsonValue root = read_json(read_model_text(folder, kTrainingName, kMaxTextBytes), path);
  const JsonFields fields(path, root);
  SavedTraining saved;
  saved.numerics = fields.whole("numerics", 0, Index{1} << 53);
  saved.step = fields.whole("step", 0, Index{1} << 40);
  saved.instruction_set = fields.text("instruction_set");
  saved.fused_multiply_add = fields.boolean("fused_multiply_add");
  const JsonFields data = fields.object("data");
  saved.state.data = {data.text("name"), text_members(data, "identity")};
  saved.digests = text_members(fields, "sha256");
  if (saved.digests.size() > kMaxFiles) {
    fields.fail(fields.required("sha256"),
                fmt::format("sha256 has {} files; expected at most {}", saved.digests.size(), kMaxFiles));
  }
  const std::string config = read_checked(folder, kConfigName, digits_of(folder, saved.digests, kConfigName));
  const DecoderConfig model = parse_decoder_config(config, path_in(folder, kConfigName));
  try {
    saved.state.settings = completed(read_training_settings(fields.object("settings"), model));
  } catch (const InvalidArgument& error) {
    reject_checkpoint(path, error.what());
  }
  for (const auto& [file, digits] : saved.digests) {
    if (is_own_name(file)) continue;
    if (!is_file_name(file)) {
      fields.fail(fields.required("sha256"), fmt::format("\"{}\" is not a plain file name", text_in_message(file)));
    }
    saved.state.files.push_back({file, read_checked(folder, file, digits)});
  }
  return saved;
}

// ---- what must be equal

void expect_equal(const std::string& folder, std::string_view name, std::string_view saved, std::string_view given) {
  if (saved == given) return;
  reject_checkpoint(folder, fmt::format("was saved with {} {}; this run has {}", name, text_in_message(saved),
                                        text_in_message(given)));
}

void check_same_run(const std::string& folder, const SavedTraining& saved, const TrainingSettings& settings,
                    const TrainingData& data) {
  expect_equal(folder, "version of the numerics", std::to_string(saved.numerics), std::to_string(kTrainingNumerics));
  const auto value_of = [](const TrainingData& of, const std::string& name) {
    for (const auto& [other, value] : of.identity) {
      if (other == name) return value;
    }
    return std::string("none");
  };
  for (const auto& [name, value] : saved.state.data.identity) {
    expect_equal(folder, text_in_message(name), value, value_of(data, name));
  }
  for (const auto& [name, value] : data.identity) expect_equal(folder, name, value_of(saved.state.data, name), value);
  if (const auto difference = first_difference(saved.state.settings, settings)) {
    expect_equal(folder, difference->name, difference->first, difference->second);
  }
}

std::string warning_of(const std::string& folder, const SavedTraining& saved) {
  const bool native_bf16 = saved.state.settings.precision == TrainingPrecision::bf16_products;
  const std::string here = active_instruction_set();
  const bool same = native_bf16 ? saved.instruction_set == here : saved.fused_multiply_add == has_fused_multiply_add();
  if (same) return "";
  return fmt::format(
      "{}: was saved with the instruction set {}; this run uses {}, which rounds differently: from this step on, "
      "the results are not bit-identical to the results of an uninterrupted run",
      escape_for_terminal(folder), text_in_message(saved.instruction_set), here);
}

// ---- arrays

void check_digest(const std::string& folder, std::string_view file, const Checkpoint& tensors, const Digests& digests,
                  const std::stop_token& stop) {
  const std::string& digits = digits_of(folder, digests, file);
  if (const std::string found = tensors.sha256(stop); found != digits) {
    reject_checkpoint(tensors.name(), fmt::format("has been changed: its SHA-256 is {}; {} has {}", found,
                                                  kTrainingName, text_in_message(digits)));
  }
}

// Where the bytes of tensors go once all of them have been found.
class TensorReader {
 public:
  explicit TensorReader(const Checkpoint& tensors) : tensors_(tensors) {}

  template <class T>
  void expect(const std::string& name, const std::vector<Index>& shape, std::span<T> to) {
    copies_.emplace_back(checked(name, kElementType<T>, shape).bytes, std::as_writable_bytes(to));
  }
  // A vector, which is only allocated once its size has been checked.
  std::vector<double> column(std::string_view name, Index size) {
    const StoredTensor& tensor = checked(std::string(name), ElementType::float64, {size});
    std::vector<double> column(static_cast<std::size_t>(size));
    if (size > 0) std::memcpy(column.data(), tensor.bytes.data(), tensor.bytes.size());
    ++num_columns_;
    return column;
  }
  template <class T>
  void expect_all(const DecoderConfig& model, std::string_view prefix, std::span<T> to) {
    for (const DecoderParameter& parameter : decoder_parameters(model)) {
      const auto size = static_cast<std::size_t>(parameter.size());
      expect(fmt::format("{}{}", prefix, parameter.name), parameter.shape, to.first(size));
      to = to.subspan(size);
    }
  }
  void finish() const {
    const std::size_t expected = copies_.size() + num_columns_;
    if (expected == tensors_.tensors().size()) return;
    reject_checkpoint(tensors_.name(), fmt::format("has {} tensors; expected {}", tensors_.tensors().size(), expected));
  }
  void copy() const {
    for (const auto& [from, to] : copies_) {
      if (!to.empty()) std::memcpy(to.data(), from.data(), to.size());
    }
  }

 private:
  const StoredTensor& checked(const std::string& name, ElementType type, const std::vector<Index>& shape) const {
    const StoredTensor* tensor = tensors_.find(name);
    if (tensor == nullptr) reject_checkpoint(tensors_.name(), fmt::format("{} is missing", name));
    if (tensor->type != type || tensor->shape != shape) {
      reject_checkpoint(
          tensors_.name(),
          fmt::format("{} is {} ({}); expected {} ({})", name, safetensors_type_name(tensor->type),
                      fmt::join(tensor->shape, ", "), safetensors_type_name(type), fmt::join(shape, ", ")));
    }
    return *tensor;
  }

  const Checkpoint& tensors_;
  std::size_t num_columns_ = 0;
  std::vector<std::pair<std::span<const std::byte>, std::span<std::byte>>> copies_;
};

std::vector<TrainingStep> read_history(TensorReader& tensors, Index num_steps) {
  const std::vector<double> loss = tensors.column(kHistory[0], num_steps);
  const std::vector<double> gradient_norm = tensors.column(kHistory[1], num_steps);
  const std::vector<double> learning_rate = tensors.column(kHistory[2], num_steps);
  std::vector<TrainingStep> history;
  for (std::size_t i = 0; i < loss.size(); ++i) {
    history.push_back({static_cast<Index>(i), loss[i], gradient_norm[i], learning_rate[i]});
  }
  return history;
}

template <class T>
void check_sizes(const TrainingSettings& settings, const TrainingArrays<T>& arrays, const char* function) {
  const auto size = static_cast<std::size_t>(decoder_size(settings.model));
  const auto check = [&](const char* name, std::size_t found) {
    if (found == size) return;
    throw InvalidArgument(fmt::format("{}: {} has {} elements; expected {}", function, name, found, size));
  };
  check("parameters", arrays.parameters.size());
  check("first_moment", arrays.first_moment.size());
  check("second_moment", arrays.second_moment.size());
}

}  // namespace

template <class T>
void check_to_save(const TrainingState& state, const TrainingArrays<const T>& arrays) {
  check_sizes(state.settings, arrays, "save_checkpoint");
  for (std::size_t i = 0; i < state.files.size(); ++i) {
    const std::string& name = state.files[i].name;
    const auto is_same = [&](const CheckpointFile& other) { return other.name == name; };
    if (!is_file_name(name) || is_own_name(name) ||
        std::any_of(state.files.begin(), state.files.begin() + static_cast<std::ptrdiff_t>(i), is_same)) {
      throw InvalidArgument(
          fmt::format("save_checkpoint: file {} is \"{}\"; expected a plain name that no other file has", i,
                      text_in_message(name)));
    }
  }
  if (state.files.size() + 3 > kMaxFiles) {
    throw InvalidArgument(
        fmt::format("save_checkpoint: {} files; expected at most {}", state.files.size(), kMaxFiles - 3));
  }
}

template <class T>
void write_checkpoint(const std::string& folder, const TrainingState& state, const TrainingArrays<const T>& arrays) {
  const DecoderConfig& model = state.settings.model;
  Digests digests;
  const auto create = [&](std::string_view name) {
    std::optional<NewFile> file = NewFile::create(path_in(folder, name));
    if (!file) reject_checkpoint(path_in(folder, name), "cannot be written: File exists");
    return std::move(*file);
  };
  const auto write_text = [&](std::string_view name, std::string_view text) {
    NewFile file = create(name);
    file.write(text);
    file.close();
    digests.emplace_back(name, sha256(std::as_bytes(std::span(text))));
  };
  const auto write_tensors = [&](std::string_view name, std::span<const StoredTensor> tensors) {
    const std::vector<SafetensorsMetadata> metadata{{"format", "pt"}};
    NewFile file = create(name);
    write_safetensors(file, tensors, metadata);
    file.close();
    digests.emplace_back(name, read_tensors(folder, name, {}, true).sha256());
  };
  write_text(kConfigName, decoder_config_json(model));
  for (const CheckpointFile& file : state.files) write_text(file.name, file.text);
  std::vector<StoredTensor> tensors;
  add_tensors(tensors, model, "", arrays.parameters);
  write_tensors(kModelName, tensors);
  tensors.clear();
  add_tensors(tensors, model, fmt::format("{}.", kMoments[0]), arrays.first_moment);
  add_tensors(tensors, model, fmt::format("{}.", kMoments[1]), arrays.second_moment);
  const std::vector<double> columns = history_columns(state.history);
  for (std::size_t i = 0; i < kHistory.size(); ++i) {
    const std::size_t steps = state.history.size();
    tensors.push_back({std::string(kHistory[i]),
                       ElementType::float64,
                       {static_cast<Index>(steps)},
                       std::as_bytes(std::span(columns).subspan(i * steps, steps))});
  }
  write_tensors(kOptimizerName, tensors);
  write_text(kTrainingName, training_json(state, digests));
}

REGARD_INSTANTIATE_COMPUTE(check_to_save);
REGARD_INSTANTIATE_COMPUTE(write_checkpoint);

}  // namespace internal

TrainingState read_training_state(const std::string& checkpoint) {
  using namespace internal;
  SavedTraining saved = read_saved(checkpoint);
  const Checkpoint optimizer = read_tensors(checkpoint, kOptimizerName, {}, true);
  TensorReader tensors(optimizer);
  saved.state.history = read_history(tensors, saved.step);
  return saved.state;
}

template <class T>
LoadedCheckpoint load_checkpoint(const std::string& checkpoint, const TrainingSettings& settings,
                                 const TrainingData& data, const TrainingArrays<T>& arrays,
                                 const std::stop_token& stop) {
  using namespace internal;
  check_sizes(settings, arrays, "load_checkpoint");
  SavedTraining saved = read_saved(checkpoint);
  check_same_run(checkpoint, saved, settings, data);
  const Checkpoint model = read_tensors(checkpoint, kModelName, stop);
  check_digest(checkpoint, kModelName, model, saved.digests, stop);
  const Checkpoint optimizer = read_tensors(checkpoint, kOptimizerName, stop);
  check_digest(checkpoint, kOptimizerName, optimizer, saved.digests, stop);

  TensorReader parameters(model);
  parameters.expect_all(settings.model, "", arrays.parameters);
  parameters.finish();
  TensorReader moments(optimizer);
  moments.expect_all(settings.model, fmt::format("{}.", kMoments[0]), arrays.first_moment);
  moments.expect_all(settings.model, fmt::format("{}.", kMoments[1]), arrays.second_moment);
  saved.state.history = read_history(moments, saved.step);
  moments.finish();
  parameters.copy();
  moments.copy();
  const std::string warning = warning_of(checkpoint, saved);
  return {std::move(saved.state), warning};
}

REGARD_INSTANTIATE_COMPUTE(load_checkpoint);

}  // namespace regard::inline v0
