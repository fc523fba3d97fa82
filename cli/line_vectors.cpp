// SPDX-License-Identifier: Apache-2.0
//
// Computes vectors of lines, batch by batch; see line_vectors.h.
// Read next: embed.cpp, similar.cpp.
#include "line_vectors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "progress.h"

namespace regard::program {
namespace {

bool is_finite(std::span<const float> vector) {
  return std::all_of(vector.begin(), vector.end(), [](float x) { return std::isfinite(x); });
}

bool is_empty(const std::string& text) { return text.find_first_not_of(" \t") == std::string::npos; }

}  // namespace

Index for_each_line_vector(const SentenceModel& model, TextLines& lines, EmptyLines empty, bool truncate,
                           const std::string& label, const std::function<void(const LineVectors&)>& take) {
  Progress progress(label);
  while (true) {
    LineVectors batch;
    batch.first_line = lines.lines_read() + 1;
    batch.texts = lines.next_batch();
    if (batch.texts.empty()) return lines.lines_read();
    const auto place = [&](std::size_t index) {
      return fmt::format("{}: line {}", lines.name(), batch.first_line + static_cast<Index>(index));
    };
    for (std::size_t i = 0; i < batch.texts.size(); ++i) {
      batch.ids.emplace_back();
      if (empty == EmptyLines::skip && is_empty(batch.texts[i])) continue;
      try {
        batch.ids.back() = fitted_tokens(model, batch.texts[i], truncate).tokens.ids;
      } catch (const std::invalid_argument& error) {
        throw std::runtime_error(fmt::format("{}: {}", place(i), error.what()));
      }
    }
    batch.vectors = embed_tokens(model.encoder, batch.ids);
    for (std::size_t i = 0; i < batch.texts.size(); ++i) {
      if (!is_finite(batch.vector(i)))
        throw std::runtime_error(fmt::format("{}: the vector of {} is not finite", place(i), model.folder));
    }
    take(batch);
    if (lines.total_bytes() > 0)
      progress.update(std::min(lines.done_bytes(), lines.total_bytes()), lines.total_bytes());
  }
}

std::vector<float> text_vector(const SentenceModel& model, const std::string& text, bool truncate) {
  const std::vector<std::vector<Index>> ids{fitted_tokens(model, text, truncate).tokens.ids};
  const Tensor<float, 2> vectors = embed_tokens(model.encoder, ids);
  const std::span<const float> vector(vectors.data(), static_cast<std::size_t>(vectors.size()));
  if (!is_finite(vector)) throw std::runtime_error(model.folder + ": the vector of the text is not finite");
  return {vector.begin(), vector.end()};
}

void write_model(JsonWriter& json, const SentenceModel& model) {
  json.name("model");
  json.begin_object(JsonLayout::one_line);
  json.string("sha256", model.encoder.checkpoint->sha256());
  json.whole("width", model.encoder.config.width);
  json.end_object();
}

}  // namespace regard::program
