// SPDX-License-Identifier: Apache-2.0
//
// How explanations are written as JSON: one space for each level, numbers in the shortest form of their type.
// Read next: regard/io/json_writer.h, steps_json.cpp.
#pragma once

#include "regard/explain/steps.h"
#include "regard/io/json_writer.h"

namespace regard::inline v0 {

inline JsonStyle json_style(ElementType type) { return {.indent = 1, .float32 = type == ElementType::float32}; }

}  // namespace regard::inline v0
