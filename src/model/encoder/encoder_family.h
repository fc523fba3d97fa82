// SPDX-License-Identifier: Apache-2.0
//
// A family of encoders as data: the names of its fields in config.json and of its tensors, and the shape of each
// tensor.
//
//     {"encoder.layer.{layer}.intermediate.dense.weight", "F E", MatrixLayout::out_in, &EncoderLayer::w_up}
//      name, {layer} from 0                                |      |                the view that it fills, here (E, F)
//                                                          shape in the file, by the symbols of the config fields
//
// To support another family that computes what encode() computes, add a table in encoder_family.cpp.
// Read next: encoder_family.cpp, encoder_load.cpp.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "regard/model/encoder.h"

namespace regard::inline v0 {

// An integer field in config.json. Shapes refer to it by its symbol.
struct ConfigField {
  char symbol;
  std::string_view name;
  Index EncoderConfig::* member;
  Index max;  // maximum; the minimum is 1
};

// A field that changes the computation, and its only supported value: text, or a boolean.
struct ConfigChoice {
  std::string_view name;
  std::variant<std::string_view, bool> value;
  bool required;
};

enum class MatrixLayout {
  as_seen,  // vectors, tables
  out_in    // a matrix (out, in), as in torch.nn.Linear; viewed as (in, out)
};

template <class Owner>
struct ParameterName {
  std::string_view name;
  std::string_view shape;  // "F E"
  MatrixLayout layout;
  std::variant<TensorView<const float, 1> Owner::*, TensorView<const float, 2> Owner::*, StoredMatrix Owner::*> view;
};

struct EncoderFamily {
  std::string_view model_type;
  std::span<const ConfigField> fields;
  std::span<const ConfigChoice> choices;
  std::string_view epsilon_field;
  std::string_view activation_field;
  std::string_view prefix;  // of all names, or of none: the file decides
  std::span<const ParameterName<Encoder>> parameters;
  std::span<const ParameterName<EncoderLayer>> layer_parameters;
  // A name ending that older files use in place of the current one.
  struct Ending {
    std::string_view now, before;
  };
  std::span<const Ending> endings;
  // Tensors that may exist but are not read, by the beginning of their names: after the prefix, and without it.
  std::span<const std::string_view> unread;
  std::span<const std::string_view> unread_heads;
};

// The family with this model_type, or nullptr. known_families() lists all of them: "bert".
const EncoderFamily* find_family(std::string_view model_type);
std::string known_families();

}  // namespace regard::inline v0
