// SPDX-License-Identifier: Apache-2.0
//
// load_encoder: checks the config.json and the tensors of a folder against the table of a family, and creates an
// Encoder.
//
//     config.json ── fields, choices ──▶ EncoderConfig ── shapes by symbol ──▶ the expected tensors
//     model.safetensors ── names ──▶ every mismatch in one error, or views of float32 memory
//
// Read next: encoder_family.h, regard/io/json_fields.h, safetensors.h.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>

#include "encoder_family.h"
#include "regard/error.h"
#include "regard/io/json.h"
#include "regard/io/json_fields.h"
#include "regard/io/utf8.h"

namespace regard::inline v0 {
namespace {

constexpr std::string_view kConfigFile = "config.json";
// That of MiniLM has 612 bytes; lists of labels make those of some other models longer.
constexpr std::uint64_t kMaxConfigBytes = 4 << 20;
constexpr std::size_t kMaxShownProblems = 100;

class ConfigReader {
 public:
  ConfigReader(const std::string& source, const std::string& text, const ModelFileOptions& options,
               const Runtime& runtime)
      : root_(read_json(text, source, 64, runtime.stop, options.max_memory_bytes)), fields_(source, root_) {}
  ConfigReader(const ConfigReader&) = delete;
  ConfigReader& operator=(const ConfigReader&) = delete;

  const EncoderFamily& family() const {
    const JsonValue& type = fields_.required("model_type");
    const EncoderFamily* family = type.kind() == JsonValue::Kind::string ? find_family(type.text()) : nullptr;
    if (family == nullptr)
      fail(type, fmt::format("model_type is {}; expected {}", JsonFields::shown(type), known_families()));
    return *family;
  }

  EncoderConfig config(const EncoderFamily& family) const {
    EncoderConfig config;
    for (const ConfigChoice& choice : family.choices) check(choice);
    for (const ConfigField& field : family.fields) config.*field.member = fields_.whole(field.name, 1, field.max);
    if (config.width % config.num_heads != 0) {
      const auto name = [&](char symbol) { return field_of(family, symbol).name; };
      fail(fields_.required(name('H')), fmt::format("{} is {}; expected a divisor of {}, which is {}", name('H'),
                                                    config.num_heads, name('E'), config.width));
    }
    const JsonValue& epsilon = fields_.required(family.epsilon_field);
    if (epsilon.kind() != JsonValue::Kind::number || !(epsilon.number() > 0)) {
      fail(epsilon,
           fmt::format("{} is {}; expected a positive number", family.epsilon_field, JsonFields::shown(epsilon)));
    }
    config.norm_epsilon = epsilon.number();
    config.activation = fields_.required(family.activation_field).text();
    return config;
  }

  static const ConfigField& field_of(const EncoderFamily& family, char symbol) {
    for (const ConfigField& field : family.fields) {
      if (field.symbol == symbol) return field;
    }
    throw std::logic_error("a shape names a symbol that no field has");
  }

 private:
  void check(const ConfigChoice& choice) const {
    const JsonValue* value = choice.required ? &fields_.required(choice.name) : fields_.find(choice.name);
    if (value == nullptr) return;
    if (const bool* wanted = std::get_if<bool>(&choice.value)) {
      if (value->kind() == JsonValue::Kind::boolean && value->boolean() == *wanted) return;
      fail(*value, fmt::format("{} is {}; only {} is supported", choice.name, JsonFields::shown(*value), *wanted));
    }
    const std::string_view wanted = std::get<std::string_view>(choice.value);
    if (value->kind() == JsonValue::Kind::string && value->text() == wanted) return;
    fail(*value, fmt::format("{} is {}; only \"{}\" is supported", choice.name, JsonFields::shown(*value), wanted));
  }

  [[noreturn]] void fail(const JsonValue& at, const std::string& what) const { fields_.fail(at, what); }

  JsonValue root_;
  JsonFields fields_;
};

// "(1536, 384)".
std::string shape_text(std::span<const Index> shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

// The name of a tensor, which has at most 512 bytes.
std::string shown_name(std::string_view name) { return escape_for_terminal(name); }

// Finds every tensor of the table, records every mismatch, and fills the views if there is none.
class ParameterReader {
 public:
  ParameterReader(const std::string& folder, const Checkpoint& checkpoint, const EncoderFamily& family,
                  const EncoderConfig& config)
      : folder_(folder), checkpoint_(checkpoint), family_(family), config_(config) {
    for (const StoredTensor& tensor : checkpoint.tensors()) {
      if (tensor.name.starts_with(family.prefix)) prefix_ = family.prefix;
    }
  }

  void expect_all(Encoder& encoder) {
    for (const auto& parameter : family_.parameters) expect(parameter, parameter.name, encoder);
    for (std::size_t layer = 0; layer < encoder.layers.size(); ++layer) {
      for (const auto& parameter : family_.layer_parameters) {
        expect(parameter, name_in_layer(parameter.name, layer), encoder.layers[layer]);
      }
    }
    for (const StoredTensor& tensor : checkpoint_.tensors()) {
      if (!used_.contains(&tensor) && !is_left_unread(tensor.name)) {
        problem(fmt::format("{} is not a tensor of a {} encoder with {} layers", shown_name(tensor.name),
                            family_.model_type, config_.num_layers));
      }
    }
    if (num_problems_ > 0) {
      throw DataError(fmt::format("{}: {} {} as {} describes the model: {}{}", escape_for_terminal(folder_),
                                  num_problems_, num_problems_ == 1 ? "tensor is not" : "tensors are not", kConfigFile,
                                  problems_, more_problems()));
    }
  }

  void read_all(Encoder& encoder, const ModelFileOptions& options, const Runtime& runtime) const {
    check_memory(options);
    for (const Read& read : reads_) {
      encoder.memory.push_back(checkpoint_.share_float32(*read.tensor, runtime.stop));
      read.fill(encoder.memory.back().get());
    }
  }

 private:
  struct Read {
    const StoredTensor* tensor;
    std::function<void(const float*)> fill;
  };

  // F32 tensors are viewed in the file's bytes; other types need converted copies in addition, and so do packed
  // matrices.
  void check_memory(const ModelFileOptions& options) const {
    std::uint64_t held = 0;
    for (const StoredTensor& tensor : checkpoint_.tensors()) held += tensor.bytes.size();
    std::uint64_t needed = 0;
    for (const Read& read : reads_) {
      if (read.tensor->type == ElementType::float32) continue;
      needed += read.tensor->bytes.size() / static_cast<std::uint64_t>(type_bytes(read.tensor->type)) * sizeof(float);
    }
    needed += packed_bytes();
    const std::uint64_t available = options.max_memory_bytes
                                        ? *options.max_memory_bytes - std::min(*options.max_memory_bytes, held)
                                        : available_memory_bytes();
    if (needed <= available) return;
    throw DataError(fmt::format("{}: needs {} more bytes of memory for computing; {} are available",
                                escape_for_terminal(folder_), needed, available));
  }

  // The size of the packed copies: columns are rounded up to panels of 32.
  std::uint64_t packed_bytes() const {
    const auto matrix = [](Index inputs, Index outputs) {
      return static_cast<std::uint64_t>(inputs) * static_cast<std::uint64_t>((outputs + 31) / 32 * 32) * sizeof(float);
    };
    const Index E = config_.width;
    const Index F = config_.feed_forward;
    return static_cast<std::uint64_t>(config_.num_layers) *
           (matrix(E, 3 * E) + matrix(E, E) + matrix(E, F) + matrix(F, E));
  }

  static std::string name_in_layer(std::string_view pattern, std::size_t layer) {
    constexpr std::string_view kPlace = "{layer}";
    const std::size_t at = pattern.find(kPlace);
    return fmt::format("{}{}{}", pattern.substr(0, at), layer, pattern.substr(at + kPlace.size()));
  }

  template <class Owner>
  void expect(const ParameterName<Owner>& parameter, std::string_view plain_name, Owner& owner) {
    const std::string name = prefix_ + std::string(plain_name);
    std::vector<Index> shape;
    std::string fields;
    for (char symbol : parameter.shape) {
      if (symbol == ' ') continue;
      const ConfigField& field = ConfigReader::field_of(family_, symbol);
      shape.push_back(config_.*field.member);
      fields += fmt::format("{}{}", fields.empty() ? "" : ", ", field.name);
    }
    const std::string expected = fmt::format("expected {} = ({})", shape_text(shape), fields);
    const StoredTensor* tensor = find(name);
    if (tensor == nullptr) return problem(fmt::format("{} is missing, {}", name, expected));
    used_.insert(tensor);
    if (tensor->shape != shape) {
      return problem(fmt::format("{} has shape {}, {}", shown_name(tensor->name), shape_text(tensor->shape), expected));
    }
    if (!is_floating(tensor->type)) {
      return problem(fmt::format("{} has type {}, expected F32, F64, F16 or BF16", shown_name(tensor->name),
                                 safetensors_type_name(tensor->type)));
    }
    reads_.push_back({tensor, [&parameter, &owner, shape](const float* data) {
                        if (const auto* vector = std::get_if<0>(&parameter.view)) {
                          owner.*(*vector) = TensorView<const float, 1>(data, {shape[0]});
                        } else if (parameter.stored == Stored::as_seen) {
                          owner.*std::get<1>(parameter.view) = TensorView<const float, 2>(data, {shape[0], shape[1]});
                        } else {
                          owner.*std::get<1>(parameter.view) =
                              TensorView<const float, 2>(data, {shape[1], shape[0]}, {1, shape[1]});
                        }
                      }});
  }

  const StoredTensor* find(const std::string& name) const {
    if (const StoredTensor* tensor = checkpoint_.find(name)) return tensor;
    for (const auto& [now, before] : family_.endings) {
      if (!name.ends_with(now)) continue;
      const std::string older = name.substr(0, name.size() - now.size()) + std::string(before);
      if (const StoredTensor* tensor = checkpoint_.find(older)) return tensor;
    }
    return nullptr;
  }

  bool is_left_unread(std::string_view name) const {
    for (std::string_view beginning : family_.unread) {
      if (name.starts_with(prefix_) && name.substr(prefix_.size()).starts_with(beginning)) return true;
    }
    for (std::string_view beginning : family_.unread_heads) {
      if (name.starts_with(beginning)) return true;
    }
    return false;
  }

  void problem(const std::string& text) {
    if (++num_problems_ <= kMaxShownProblems) problems_ += (problems_.empty() ? "" : "; ") + text;
  }
  std::string more_problems() const {
    if (num_problems_ <= kMaxShownProblems) return "";
    return fmt::format("; and {} more", num_problems_ - kMaxShownProblems);
  }

  const std::string& folder_;
  const Checkpoint& checkpoint_;
  const EncoderFamily& family_;
  const EncoderConfig& config_;
  std::string prefix_;
  std::set<const StoredTensor*> used_;
  std::vector<Read> reads_;
  std::string problems_;
  std::size_t num_problems_ = 0;
};

// Packs matrices with the same number of rows as one matrix, with their columns concatenated.
PackedLinear<float> pack_side_by_side(std::span<const TensorView<const float, 2>> matrices, const Runtime& runtime) {
  Index columns = 0;
  for (const auto& matrix : matrices) columns += matrix.shape[1];
  Tensor<float, 2> joined({matrices.front().shape[0], columns});
  Index first = 0;
  for (const auto& matrix : matrices) {
    for (Index i = 0; i < matrix.shape[0]; ++i) {
      throw_if_stopped(runtime.stop, "load_encoder");
      for (Index o = 0; o < matrix.shape[1]; ++o) joined(i, first + o) = matrix(i, o);
    }
    first += matrix.shape[1];
  }
  return PackedLinear<float>(joined.view(), runtime);
}

void pack(EncoderLayer& layer, const Runtime& runtime) {
  const std::array<TensorView<const float, 2>, 3> projections{layer.w_query, layer.w_key, layer.w_value};
  layer.packed_projections = pack_side_by_side(projections, runtime);
  layer.packed_output = PackedLinear<float>(layer.w_output, runtime);
  layer.packed_up = PackedLinear<float>(layer.w_up, runtime);
  layer.packed_down = PackedLinear<float>(layer.w_down, runtime);
}

}  // namespace

Encoder load_encoder(const std::string& folder, const ModelFileOptions& options, const Runtime& runtime) {
  const ConfigReader reader(fmt::format("{}/{}", folder, kConfigFile),
                            read_model_text(folder, kConfigFile, kMaxConfigBytes, runtime.stop), options, runtime);
  const EncoderFamily& family = reader.family();
  Encoder encoder;
  encoder.config = reader.config(family);
  encoder.family = std::string(family.model_type);
  encoder.layers.resize(static_cast<std::size_t>(encoder.config.num_layers));

  encoder.checkpoint = std::make_shared<const Checkpoint>(Checkpoint::read_folder(folder, options, runtime.stop));
  ParameterReader parameters(folder, *encoder.checkpoint, family, encoder.config);
  parameters.expect_all(encoder);
  parameters.read_all(encoder, options, runtime);
  for (EncoderLayer& layer : encoder.layers) pack(layer, runtime);
  return encoder;
}

}  // namespace regard::inline v0
