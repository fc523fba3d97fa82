// SPDX-License-Identifier: Apache-2.0
//
// The settings of a run as data: one list of fields, with which they are written, read and compared.
// Read next: checkpoint.cpp.
#include <string>

#include "regard/train/checkpoint.h"

namespace regard::inline v0 {
namespace {

constexpr const auto& names_of(NormKind) { return kNormNames; }
constexpr const auto& names_of(PositionKind) { return kPositionNames; }
constexpr const auto& names_of(FeedForwardKind) { return kFeedForwardNames; }
constexpr const auto& names_of(OptimizerKind) { return kOptimizerNames; }
constexpr const auto& names_of(ScheduleKind) { return kScheduleNames; }
constexpr const auto& names_of(TrainingPrecision) { return kPrecisionNames; }

// Calls visit(name, member) for each field of the model.
template <class Visit>
void for_each_model_field(Visit visit) {
  using C = DecoderConfig;
  visit("vocabulary", &C::vocabulary);
  visit("num_layers", &C::num_layers);
  visit("num_heads", &C::num_heads);
  visit("num_kv_heads", &C::num_kv_heads);
  visit("width", &C::width);
  visit("head_size", &C::head_size);
  visit("feed_forward", &C::feed_forward);
  visit("max_positions", &C::max_positions);
  visit("norm", &C::norm);
  visit("norm_epsilon", &C::norm_epsilon);
  visit("positions", &C::positions);
  visit("rotary_base", &C::rotary_base);
  visit("feed_forward_kind", &C::feed_forward_kind);
  visit("tied", &C::tied);
  visit("biases", &C::biases);
}

// Likewise for each setting except the model.
template <class Visit>
void for_each_setting(Visit visit) {
  using S = TrainingSettings;
  visit("steps", &S::steps);
  visit("batch", &S::batch);
  visit("micro_batch", &S::micro_batch);
  visit("length", &S::length);
  visit("seed", &S::seed);
  visit("optimizer", &S::optimizer);
  visit("learning_rate", &S::learning_rate);
  visit("muon_learning_rate", &S::muon_learning_rate);
  visit("min_learning_rate", &S::min_learning_rate);
  visit("warmup", &S::warmup);
  visit("schedule", &S::schedule);
  visit("beta1", &S::beta1);
  visit("beta2", &S::beta2);
  visit("epsilon", &S::epsilon);
  visit("weight_decay", &S::weight_decay);
  visit("clip", &S::clip);
  visit("dropout", &S::dropout);
  visit("precision", &S::precision);
  visit("recompute", &S::recompute);
}

template <class T>
std::string value_text(T value) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(names_of(value)[static_cast<std::size_t>(value)]);
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, double>) {
    return shortest_number(value);
  } else {
    return std::to_string(value);
  }
}

}  // namespace

void write_training_settings(JsonWriter& json, const TrainingSettings& settings) {
  for_each_setting([&]<class T>(std::string_view name, T TrainingSettings::* member) {
    const T value = settings.*member;
    if constexpr (std::is_same_v<T, Index>) {
      json.whole(name, value);
    } else if constexpr (std::is_same_v<T, double>) {
      json.number(name, value);
    } else if constexpr (std::is_same_v<T, bool>) {
      json.boolean(name, value);
    } else {
      json.string(name, value_text(value));  // a seed has more bits than a number of JSON
    }
  });
}

TrainingSettings read_training_settings(const JsonFields& fields, const DecoderConfig& model) {
  TrainingSettings settings;
  settings.model = model;
  for_each_setting([&]<class T>(std::string_view name, T TrainingSettings::* member) {
    if constexpr (std::is_same_v<T, Index>) {
      settings.*member = fields.whole(name, 0, Index{1} << 53);
    } else if constexpr (std::is_same_v<T, double>) {
      settings.*member = fields.number(name);
    } else if constexpr (std::is_same_v<T, bool>) {
      settings.*member = fields.boolean(name);
    } else if constexpr (std::is_enum_v<T>) {
      settings.*member = fields.enumerator<T>(name, names_of(T{}));
    } else {
      settings.*member = fields.whole_in_text(name);
    }
  });
  return settings;
}

std::optional<SettingDifference> first_difference(const TrainingSettings& first, const TrainingSettings& second) {
  std::optional<SettingDifference> found;
  for_each_model_field([&]<class T>(std::string_view name, T DecoderConfig::* member) {
    const T a = first.model.*member, b = second.model.*member;
    if (!found && a != b) found = {std::string(name), value_text(a), value_text(b)};
  });
  const bool is_constant = first.schedule == ScheduleKind::constant && second.schedule == ScheduleKind::constant;
  for_each_setting([&]<class T>(std::string_view name, T TrainingSettings::* member) {
    if (name == "micro_batch" || name == "recompute" || (name == "steps" && is_constant)) return;
    const T a = first.*member, b = second.*member;
    if (!found && a != b) found = {std::string(name), value_text(a), value_text(b)};
  });
  return found;
}

}  // namespace regard::inline v0
