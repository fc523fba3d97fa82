// SPDX-License-Identifier: Apache-2.0
/// @file
/// Summarizes attention on long inputs, head by head: the keys that receive the most attention, and their shares.
///
/// @verbatim
///     attention_columns() ── key_mass (B, H, S) ───────────┬─▶ inspect_heads() ──▶ render_inspection_text()
///     attention_with_statistics() ── means of each head (B, H) ┘                 └──▶ render_inspection_json()
/// @endverbatim
///
/// The share of a key is its mass divided by L: the mean weight on the key over all queries of the head.
/// Extents: B batch entries, H query heads, L queries, S keys.
///
/// Read next: docs/guide/inspection.md, src/explain/arrays/inspection_report.cpp, attention_statistics.h.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "regard/attention_statistics.h"
#include "regard/export.h"
#include "regard/io/json_writer.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// Options for inspect_heads().
struct InspectionOptions {
  Index top = 5;                        ///< Maximum number of heavy hitters per head.
  std::vector<Index> track_keys = {0};  ///< Keys whose shares are always reported.
};

/// A key that receives a large share of a head's attention.
struct HeavyHitter {
  Index key = 0;     ///< Index of the key.
  double mass = 0;   ///< Mass of the key: the sum over all queries of the weight on the key.
  double share = 0;  ///< Share of the key: mass / L.
  /// The share of the key if the weights of each query were uniform over the keys that the query can attend to.
  double uniform = 0;
};

/// The report on one head.
struct HeadInspection {
  Index batch = 0;  ///< Batch entry.
  Index head = 0;   ///< Query head.
  /// The heavy hitters, sorted by descending mass and, for equal masses, by ascending key. Keys with mass NaN come
  /// first; keys with mass 0 are omitted.
  std::vector<HeavyHitter> heavy_hitters{};
  std::vector<double> tracked_shares{};  ///< Shares of InspectionOptions::track_keys, in that order.
  /// Mean entropy in nats, over the queries that can attend to at least one key; absent if it was not given.
  std::optional<double> entropy{};
  /// Mean of the largest weight, over the same queries; absent if it was not given.
  std::optional<double> largest_weight{};
  /// Mean distance in keys, over the same queries; absent if it was not given.
  std::optional<double> mean_distance{};
};

/// The report on all heads.
struct Inspection {
  ElementType type = ElementType::float32;  ///< Type of the masses.
  Index num_batches = 0;                    ///< B, number of batch entries.
  Index num_heads = 0;                      ///< H, number of query heads.
  Index num_queries = 0;                    ///< L, number of queries.
  Index num_keys = 0;                       ///< S, number of keys.
  /// Numbers of rows and columns of the pooled map, for reporting only. inspect_heads() does not set them.
  std::array<Index, 2> map_size{};
  std::vector<Index> tracked_keys{};    ///< InspectionOptions::track_keys, as given.
  std::vector<HeadInspection> heads{};  ///< Reports on the heads, (B · H), batch by batch.
};

/// Finds the heavy hitters of each head.
///
/// @tparam T            float or double, the type of the masses.
/// @param key_mass      Masses, (B, H, S), as written by attention_columns().
/// @param num_queries   L, the number of queries per head.
/// @param options       Number of heavy hitters, and keys to track.
/// @param statistics    The means of each head, (B, H), as written by attention_with_statistics(): head_entropy,
///                      head_largest_weight and head_mean_distance are read. Each may be absent.
/// @param uniform_mass  Masses for uniform weights, (B or 1, H or 1, S): the sum of 1 / K over the queries that can
///                      attend to the key, where K is the number of keys that the query can attend to. This is the
///                      key_mass of a call with the same masks and scale 0, without bias, slopes or sinks. If absent,
///                      every query can attend to every key.
/// @return The report.
/// @throws InvalidArgument  if a tracked key is outside 0 … S − 1, if top < 0 or num_queries < 1, or if the means or
///                          uniform_mass have the wrong shape.
///
/// @par Example
/// @code{.cpp}
/// const Inspection inspection = inspect_heads<float>(key_mass, L, {.top = 3});
/// std::fputs(render_inspection_text(inspection).c_str(), stdout);
/// @endcode
template <class T>
REGARD_EXPORT Inspection inspect_heads(std::type_identity_t<TensorView<const T, 3>> key_mass, Index num_queries,
                                       const InspectionOptions& options = {},
                                       const AttentionStatistics& statistics = {},
                                       std::type_identity_t<TensorView<const T, 3>> uniform_mass = {});

/// Options for render_inspection_text().
struct InspectionTextOptions {
  int width = 80;         ///< Width of the terminal in columns; values below 40 are treated as 40.
  bool unicode = true;    ///< Whether to use non-ASCII characters.
  bool one_line = false;  ///< Whether to show, for each head, only the heavy hitters that fit on one line.
};
/// Renders the report as text: the main result, then one line for each head, or several if its heavy hitters do not
/// fit on one line.
///
/// @param inspection  The report.
/// @param options     Formatting options.
/// @return The text.
REGARD_EXPORT std::string render_inspection_text(const Inspection& inspection,
                                                 const InspectionTextOptions& options = {});
/// Renders the report as a JSON object; docs/guide/inspection.md lists its fields.
///
/// @param inspection  The report.
/// @return The JSON text. Each number is written with the fewest digits that read back as the same value in the type of
///         the masses.
REGARD_EXPORT std::string render_inspection_json(const Inspection& inspection);
/// Writes the object of render_inspection_json() as the next value of a JSON document.
///
/// @param json        The writer of the document. Its style is restored afterwards.
/// @param inspection  The report.
REGARD_EXPORT void write_inspection_json(JsonWriter& json, const Inspection& inspection);

}  // namespace regard::inline v0
