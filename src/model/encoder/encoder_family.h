// SPDX-License-Identifier: Apache-2.0
//
// A family of encoders as data: how its config.json and its tensors are called, and which shape each has.
//
//     {"encoder.layer.{layer}.intermediate.dense.weight", "F E", Stored::out_in, &EncoderLayer::w_up}
//      name, {layer} from 0                                |      |               the view that it fills, here (E, F)
//                                                          shape in the file, by the symbols of the config fields
//
// Another family joins by another table in encoder_family.cpp, as long as it computes what encode() computes.
// Read next: encoder_family.cpp, encoder_load.cpp.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "regard/model/encoder.h"

namespace regard::inline v0 {

// A whole number in config.json. Shapes name it by its symbol.
struct ConfigField {
  char symbol;
  std::string_view name;
  Index EncoderConfig::* member;
  Index most;  // the least is 1
};

// A field that changes what is computed, and the one value of it that is built: text, or a boolean.
struct ConfigChoice {
  std::string_view name;
  std::variant<std::string_view, bool> value;
  bool required;
};

enum class Stored {
  as_seen,  // vectors, tables
  out_in    // a matrix (out, in), as torch.nn.Linear keeps it; seen as (in, out)
};

template <class Owner>
struct ParameterName {
  std::string_view name;
  std::string_view shape;  // "F E"
  Stored stored;
  std::variant<TensorView<const float, 1> Owner::*, TensorView<const float, 2> Owner::*> view;
};

struct EncoderFamily {
  std::string_view model_type;
  std::span<const ConfigField> fields;
  std::span<const ConfigChoice> choices;
  std::string_view epsilon_field;
  std::string_view activation_field;
  std::string_view prefix;  // of every name, or of none: which one the file decides
  std::span<const ParameterName<Encoder>> parameters;
  std::span<const ParameterName<EncoderLayer>> layer_parameters;
  // An ending that older files have in place of another.
  struct Ending {
    std::string_view now, before;
  };
  std::span<const Ending> endings;
  // Tensors that may be there and are not read, by the beginning of their names: after the prefix, and without it.
  std::span<const std::string_view> unread;
  std::span<const std::string_view> unread_heads;
};

// The family of that model_type; nullptr if there is none. known_families() lists them: "bert".
const EncoderFamily* find_family(std::string_view model_type);
std::string known_families();

}  // namespace regard::inline v0
