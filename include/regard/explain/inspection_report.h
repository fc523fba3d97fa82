// SPDX-License-Identifier: Apache-2.0
//
// What attention on long inputs looks like, head by head: the keys that receive most, in numbers that people read.
//
//     attention_columns() ── key_mass (B, H, S) ───────────┬─▶ inspect_heads() ──▶ render_inspection_text()
//     attention_with_statistics() ── means of each head (B, H) ┘                 └──▶ render_inspection_json()
//
// The share of a key is its mass divided by L: the weight that a query gives it, on average over all queries of the
// head. Read next: docs/inspect.md, src/explain/arrays/inspection_report.cpp, attention_statistics.h.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "regard/attention_statistics.h"
#include "regard/explain/steps.h"
#include "regard/export.h"
#include "regard/io/json_writer.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

struct InspectionOptions {
  Index top = 5;                        // heavy hitters of each head
  std::vector<Index> track_keys = {0};  // keys whose shares are given whatever they are
};

struct HeavyHitter {
  Index key = 0;
  double mass = 0;   // Σ over the queries of the weight on it
  double share = 0;  // mass / L
  // The share that it would have if each query gave all keys that it sees the same weight.
  double uniform = 0;
};

struct HeadInspection {
  Index batch = 0;
  Index head = 0;
  // Largest mass first, then lower key; NaN before all, and no keys without mass.
  std::vector<HeavyHitter> heavy_hitters{};
  std::vector<double> tracked_shares{};  // shares, in the order of InspectionOptions
  // Means over the queries that see a key.
  std::optional<double> entropy{}, largest_weight{}, mean_distance{};
};

struct Inspection {
  ElementType type = ElementType::float32;  // of the masses
  Index num_batches = 0, num_heads = 0, num_queries = 0, num_keys = 0;
  std::array<Index, 2> map_size{};  // rows and columns of the pooled map; for the record
  std::vector<Index> tracked_keys{};
  std::vector<HeadInspection> heads{};  // (B · H), batch by batch
};

// key_mass (B, H, S) as attention_columns wrote it for num_queries = L queries a head; of statistics the means of
// heads (B, H), where attention_with_statistics wrote them.
// uniform_mass (B|1, H|1, S): Σ over the queries that see the key of 1 / the number of keys that the query sees, which
// is the key_mass of a call with the same masks and scale 0, without bias, slopes and sinks. Where it is absent
// every query sees every key.
// Throws std::invalid_argument for a key of track_keys that is not below S, for top < 0, num_queries < 1, and means or
// uniform_mass of another shape.
template <class T>
REGARD_EXPORT Inspection inspect_heads(std::type_identity_t<TensorView<const T, 3>> key_mass, Index num_queries,
                                       const InspectionOptions& options = {},
                                       const AttentionStatistics& statistics = {},
                                       std::type_identity_t<TensorView<const T, 3>> uniform_mass = {});

struct InspectionText {
  int width = 80;
  bool unicode = true;
  bool one_line = false;  // of its heavy hitters a head shows what fits one line
};
// The finding; then a line for each head, or more where its heavy hitters do not fit the width.
REGARD_EXPORT std::string render_inspection_text(const Inspection& inspection, const InspectionText& options = {});
// An object; docs/inspect.md lists its fields. Numbers have the type of the call.
REGARD_EXPORT std::string render_inspection_json(const Inspection& inspection);
// The same object as the next value of a document.
REGARD_EXPORT void write_inspection_json(JsonWriter& json, const Inspection& inspection);

}  // namespace regard::inline v0
