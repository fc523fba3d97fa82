// SPDX-License-Identifier: Apache-2.0
//
// read_encoder: checks a config.json and its tensors against the table of a family, and creates an Encoder.
//
//     config.json ── fields, choices ──▶ EncoderConfig ── shapes by symbol ──▶ the expected tensors
//     model.safetensors ── names ──▶ every mismatch in one error, or views of float32 memory
//
// Read next: encoder_load.h, encoder_family.h, regard/io/json_fields.h, safetensors.h.
#include "encoder_load.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "encoder_family.h"
#include "model/loading.h"
#include "regard/error.h"
#include "regard/io/json.h"
#include "regard/io/json_fields.h"

namespace regard::inline v0 {
namespace {

using internal::kConfigFile;

class ConfigReader {
 public:
  ConfigReader(const std::string& source, std::string_view text, const ModelFileOptions& options,
               const std::stop_token& stop)
      : root_(read_json(text, source, 64, stop, options.max_memory_bytes)), fields_(source, root_) {}
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

// Finds every tensor of the table, records every mismatch, and fills the views if there is none.
class ParameterReader {
 public:
  ParameterReader(const std::string& folder, const Checkpoint& checkpoint, const EncoderFamily& family,
                  const EncoderConfig& config)
      : checkpoint_(checkpoint), family_(family), config_(config), tensors_(folder, checkpoint) {
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
    tensors_.expect_no_others([this](std::string_view name) { return is_left_unread(name); },
                              fmt::format("a {} encoder with {} layers", family_.model_type, config_.num_layers));
    tensors_.throw_problems();
  }

  std::vector<const StoredTensor*> found() const { return tensors_.found(); }

  void read_all(Encoder& encoder, const ModelFileOptions& options, const Runtime& runtime) const {
    tensors_.check_memory(bytes_of_packed(), options);
    encoder.memory = tensors_.read(runtime.stop);
  }

 private:
  std::uint64_t bytes_of_packed() const {
    using internal::packed_bytes;
    const Index E = config_.width;
    const Index F = config_.feed_forward;
    return static_cast<std::uint64_t>(config_.num_layers) *
           (packed_bytes(E, 3 * E) + packed_bytes(E, E) + packed_bytes(E, F) + packed_bytes(F, E));
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
    if (const auto* matrix = std::get_if<2>(&parameter.view))
      return tensors_.expect_matrix(name, find(name), shape, fields, owner.*(*matrix));
    tensors_.expect(name, find(name), shape, fields, [&parameter, &owner, shape](const float* data) {
      if (const auto* vector = std::get_if<0>(&parameter.view)) {
        owner.*(*vector) = TensorView<const float, 1>(data, {shape[0]});
      } else if (parameter.layout == MatrixLayout::as_seen) {
        owner.*std::get<1>(parameter.view) = TensorView<const float, 2>(data, {shape[0], shape[1]});
      } else {
        owner.*std::get<1>(parameter.view) = TensorView<const float, 2>(data, {shape[1], shape[0]}, {1, shape[1]});
      }
    });
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

  const Checkpoint& checkpoint_;
  const EncoderFamily& family_;
  const EncoderConfig& config_;
  internal::ModelTensors tensors_;
  std::string prefix_;
};

void pack(EncoderLayer& layer, const Runtime& runtime) {
  const std::array<TensorView<const float, 2>, 3> projections{layer.w_query, layer.w_key, layer.w_value};
  layer.packed_projections = internal::pack_side_by_side("load_encoder", projections, runtime);
  layer.packed_output = PackedLinear<float>(layer.w_output, runtime);
  layer.packed_up = PackedLinear<float>(layer.w_up, runtime);
  layer.packed_down = PackedLinear<float>(layer.w_down, runtime);
}

// The encoder that a config.json describes, without parameters.
Encoder described(const ConfigReader& reader) {
  const EncoderFamily& family = reader.family();
  Encoder encoder;
  encoder.config = reader.config(family);
  encoder.family = std::string(family.model_type);
  encoder.layers.resize(static_cast<std::size_t>(encoder.config.num_layers));
  return encoder;
}

}  // namespace

Encoder internal::make_encoder(const std::string& name, std::string_view config_json,
                               const std::function<Checkpoint()>& read_checkpoint, const ModelFileOptions& options,
                               const Runtime& runtime) {
  const ConfigReader reader(file_in(name, kConfigFile), config_json, options, runtime.stop);
  Encoder encoder = described(reader);
  encoder.checkpoint = std::make_shared<const Checkpoint>(read_checkpoint());
  ParameterReader parameters(name, *encoder.checkpoint, reader.family(), encoder.config);
  parameters.expect_all(encoder);
  parameters.read_all(encoder, options, runtime);
  for (EncoderLayer& layer : encoder.layers) pack(layer, runtime);
  return encoder;
}

std::vector<const StoredTensor*> encoder_tensors(std::string_view config_json, const Checkpoint& checkpoint,
                                                 const std::string& name, const ModelFileOptions& options,
                                                 const std::stop_token& stop) {
  const ConfigReader reader(internal::file_in(name, kConfigFile), config_json, options, stop);
  Encoder encoder = described(reader);
  ParameterReader parameters(name, checkpoint, reader.family(), encoder.config);
  parameters.expect_all(encoder);
  return parameters.found();
}

Encoder read_encoder(std::string_view config_json, SharedBytes safetensors, const std::string& name,
                     const ModelFileOptions& options, const Runtime& runtime) {
  return internal::make_encoder(
      name, config_json,
      [&] {
        return Checkpoint::read_memory(std::move(safetensors), internal::file_in(name, internal::kTensorFile), options,
                                       runtime.stop);
      },
      options, runtime);
}

}  // namespace regard::inline v0
