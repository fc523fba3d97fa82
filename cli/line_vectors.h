// SPDX-License-Identifier: Apache-2.0
//
// A vector for each line of a text, from a pretrained model; shared by `regard embed` and `regard similar`.
//
//     TextLines ── batch ── fitted_tokens of each line ── embed_tokens ──▶ LineVectors
//
// Read next: embed.cpp, similar.cpp, regard/model/embed.h.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "regard/explain/sentence.h"
#include "regard/io/json_writer.h"
#include "regard/model/embed.h"
#include "text_lines.h"

namespace regard::program {

struct LineVectors {
  Index first_line = 1;  // the number of the first line, starting at 1
  std::vector<std::string> texts;
  std::vector<std::vector<Index>> ids;
  Tensor<float, 2> vectors;  // (lines, E)

  std::span<const float> vector(std::size_t index) const {
    const auto width = static_cast<std::size_t>(vectors.shape()[1]);
    return {vectors.data() + index * width, width};
  }
};

enum class EmptyLines { keep, skip };

// Calls take for each batch. With skip, blank lines (only spaces and tabs) have no ids and a vector of zeros. Shows a
// progress line named label on standard error. Returns the number of lines. Throws as TextLines does, and
// std::runtime_error "file: line N: …" for a text that is too long for the model, unless truncate is set, and for a
// vector that is not finite.
Index for_each_line_vector(const SentenceModel& model, TextLines& lines, EmptyLines empty, bool truncate,
                           const std::string& label, const std::function<void(const LineVectors&)>& take);

// The vector of one text. Throws std::invalid_argument as fitted_tokens does, std::runtime_error if it is not finite.
std::vector<float> text_vector(const SentenceModel& model, const std::string& text, bool truncate);

// Member "model" of a JSON document.
void write_model(JsonWriter& json, const SentenceModel& model);

}  // namespace regard::program
