// SPDX-License-Identifier: Apache-2.0
//
// Heavy hitters of each head, as data, text and JSON; see regard/explain/inspection_report.h.
//
//     head    key 0   entropy   largest   distance   heavy hitters: key and share of …
//        0   0.3120      5.31    0.4412      812.3   0 0.3120   17 0.0210   4091 0.0102
//
// Read next: terminal.h, json_style.h.
#include "regard/explain/inspection_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "explain/report/json_style.h"
#include "explain/report/table.h"
#include "explain/report/terminal.h"
#include "instantiate.h"
#include "regard/error.h"
#include "regard/io/npy.h"
#include "regard/io/utf8.h"

namespace regard::inline v0 {
namespace {

constexpr int kHitterGap = 3;

double element(const TensorView<const float, 3>& view, Index b, Index h, Index j) {
  float x;
  std::memcpy(&x, view.pointer(b, h, j), sizeof x);
  return static_cast<double>(x);
}
double element(const TensorView<const double, 3>& view, Index b, Index h, Index j) {
  double x;
  std::memcpy(&x, view.pointer(b, h, j), sizeof x);
  return x;
}

std::vector<HeavyHitter> heaviest(const std::vector<double>& masses, Index top, double num_queries) {
  std::vector<Index> keys(masses.size());
  std::iota(keys.begin(), keys.end(), Index{0});
  const auto mass = [&](Index j) { return masses[static_cast<std::size_t>(j)]; };
  const auto rank = [&](Index j) { return std::isnan(mass(j)) ? std::numeric_limits<double>::infinity() : mass(j); };
  const auto end = keys.begin() + std::min<Index>(top, static_cast<Index>(keys.size()));
  std::partial_sort(keys.begin(), end, keys.end(),
                    [&](Index a, Index b) { return rank(a) != rank(b) ? rank(a) > rank(b) : a < b; });
  std::vector<HeavyHitter> hitters;
  for (auto key = keys.begin(); key != end && rank(*key) > 0; ++key)
    hitters.push_back({*key, mass(*key), mass(*key) / num_queries});
  return hitters;
}

// Four decimal places, or more if the largest share needs them to show two digits.
NumberStyle style_of_shares(double largest, bool unicode) {
  constexpr int kMaxDigits = 12;
  const int digits = largest > 0 && largest < 1e-3 ? 1 - static_cast<int>(std::floor(std::log10(largest))) : 4;
  return {.digits = std::min(digits, kMaxDigits), .unicode = unicode};
}

class InspectionRenderer {
 public:
  InspectionRenderer(const Inspection& inspection, const InspectionTextOptions& options)
      : s_(inspection),
        unicode_(options.unicode),
        width_(std::max(options.width, 40)),
        has_batches_(inspection.num_batches > 1),
        one_line_(options.one_line) {}

  std::string render() {
    for (const std::string& line : wrap_words(finding(), width_, 0)) out_ += line + "\n";
    out_ += "\n";
    if (has_batches_) add_column("batch", [](const HeadInspection& head) { return std::to_string(head.batch); });
    add_column("head", [](const HeadInspection& head) { return std::to_string(head.head); });
    for (std::size_t n = 0; n < s_.tracked_keys.size(); ++n) {
      add_column(fmt::format("key {}", s_.tracked_keys[n]),
                 [this, n](const HeadInspection& head) { return share_text(head.tracked_shares[n], 1); });
    }
    const auto add_mean = [this](const char* name, std::optional<double> HeadInspection::* mean, int digits) {
      if (s_.heads.empty() || !(s_.heads[0].*mean)) return;
      add_column(name, [this, mean, digits](const HeadInspection& head) {
        return styled_number((head.*mean).value(), {.digits = digits, .unicode = unicode_});
      });
    };
    add_mean("entropy", &HeadInspection::entropy, 2);
    add_mean("largest", &HeadInspection::largest_weight, 4);
    add_mean("distance", &HeadInspection::mean_distance, 1);
    table();
    return std::move(out_);
  }

 private:
  struct Column {
    std::string name;
    std::vector<std::string> cells;
    int width;
  };

  std::string name_of(const HeadInspection& head) const {
    return has_batches_ ? fmt::format("Batch {}, head {}", head.batch, head.head) : fmt::format("Head {}", head.head);
  }

  // With the decimal places that the largest share needs.
  std::string share_text(double share, double largest) const {
    return styled_number(share, style_of_shares(largest, unicode_));
  }

  std::string finding() const {
    const HeadInspection* most = nullptr;
    for (const HeadInspection& head : s_.heads) {
      if (head.heavy_hitters.empty()) continue;
      const double share = head.heavy_hitters[0].share;
      if (std::isnan(share)) return name_of(head) + " has weights that are nan.";
      if (most == nullptr || share > most->heavy_hitters[0].share) most = &head;
    }
    if (most == nullptr) return "No query has a visible key, or no heavy hitters were requested.";
    const HeavyHitter& hitter = most->heavy_hitters[0];
    return fmt::format(
        "{} gives {} of its attention to key {}, the largest share of any key{}; uniform over the visible keys of each "
        "query: {}.",
        name_of(*most), share_text(hitter.share, hitter.share), hitter.key, s_.heads.size() > 1 ? " in any head" : "",
        share_text(hitter.uniform, hitter.uniform));
  }

  template <class Text>
  void add_column(std::string name, Text text) {
    Column column{std::move(name), {}, 0};
    column.width = display_width(column.name);
    for (const HeadInspection& head : s_.heads) {
      column.cells.push_back(text(head));
      column.width = std::max(column.width, display_width(column.cells.back()));
    }
    columns_.push_back(std::move(column));
  }

  void table() {
    std::string head_line;
    for (const Column& column : columns_) {
      head_line.append(head_line.empty() ? 0 : kHitterGap, ' ').append(pad_left(column.name, column.width));
    }
    const int left = display_width(head_line);
    const std::string what = "heavy hitters: key and share of the attention";
    const bool fits = left + kHitterGap + display_width(what) <= width_;
    out_ += head_line + std::string(kHitterGap, ' ') + (fits ? what : "heavy hitters") + "\n";
    for (std::size_t n = 0; n < s_.heads.size(); ++n) {
      std::string line;
      for (const Column& column : columns_)
        line.append(line.empty() ? 0 : kHitterGap, ' ').append(pad_left(column.cells[n], column.width));
      const std::vector<HeavyHitter>& hitters = s_.heads[n].heavy_hitters;
      if (hitters.empty()) line.append(kHitterGap, ' ').append("none");
      const double largest = hitters.empty() ? 0 : hitters[0].share;
      bool first = true;
      for (const HeavyHitter& hitter : hitters) {
        const std::string text = fmt::format("{} {}", hitter.key, share_text(hitter.share, largest));
        if (!first && display_width(line) + kHitterGap + display_width(text) > width_) {
          if (one_line_) break;
          out_ += line + "\n";
          line = std::string(static_cast<std::size_t>(left), ' ');
        }
        line.append(kHitterGap, ' ').append(text);
        first = false;
      }
      out_ += line + "\n";
    }
  }

  const Inspection& s_;
  const bool unicode_;
  const int width_;
  const bool has_batches_;
  const bool one_line_;
  std::vector<Column> columns_;
  std::string out_;
};

}  // namespace

template <class T>
Inspection inspect_heads(std::type_identity_t<TensorView<const T, 3>> key_mass, Index num_queries,
                         const InspectionOptions& options, const AttentionStatistics& statistics,
                         std::type_identity_t<TensorView<const T, 3>> uniform_mass) {
  const auto& [batch, heads, keys] = key_mass.shape;
  if (num_queries < 1)
    throw InvalidArgument(fmt::format("inspect_heads: num_queries is {}; expected 1 or more", num_queries));
  if (options.top < 0) throw InvalidArgument(fmt::format("inspect_heads: top is {}; expected 0 or more", options.top));
  for (const Index key : options.track_keys) {
    if (key < 0 || key >= keys)
      throw InvalidArgument(
          fmt::format("inspect_heads: track_keys names key {}; expected keys from 0 to {}", key, keys - 1));
  }
  const auto& even = uniform_mass.shape;
  if (!uniform_mass.absent() &&
      ((even[0] != 1 && even[0] != batch) || (even[1] != 1 && even[1] != heads) || even[2] != keys))
    throw InvalidArgument(
        fmt::format("inspect_heads: uniform_mass has shape {}; expected ({}, {}, {}), or 1 for "
                    "batch or heads",
                    npy_shape_text(even), batch, heads, keys));
  const auto mean_of = [&](const InputView<2>& means) {
    if (!means.absent() && means.shape != std::array<Index, 2>{batch, heads})
      throw InvalidArgument(fmt::format("inspect_heads: statistics have shape {}; expected ({}, {})",
                                        npy_shape_text(means.shape), batch, heads));
    return [means](Index b, Index h) { return means.absent() ? std::nullopt : std::optional(means.at<double>(b, h)); };
  };
  const auto entropy = mean_of(statistics.head_entropy), largest = mean_of(statistics.head_largest_weight),
             distance = mean_of(statistics.head_mean_distance);
  Inspection inspection{.type = std::is_same_v<T, float> ? ElementType::float32 : ElementType::float64,
                        .num_batches = batch,
                        .num_heads = heads,
                        .num_queries = num_queries,
                        .num_keys = keys,
                        .tracked_keys = options.track_keys};
  const auto rows = static_cast<double>(num_queries);
  std::vector<double> masses(static_cast<std::size_t>(keys));
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index j = 0; j < keys; ++j) masses[static_cast<std::size_t>(j)] = element(key_mass, b, h, j);
      HeadInspection head{.batch = b,
                          .head = h,
                          .heavy_hitters = heaviest(masses, options.top, rows),
                          .entropy = entropy(b, h),
                          .largest_weight = largest(b, h),
                          .mean_distance = distance(b, h)};
      for (HeavyHitter& hitter : head.heavy_hitters) {
        hitter.uniform = uniform_mass.absent()
                             ? 1 / static_cast<double>(keys)
                             : element(uniform_mass, even[0] == 1 ? 0 : b, even[1] == 1 ? 0 : h, hitter.key) / rows;
      }
      for (const Index key : options.track_keys)
        head.tracked_shares.push_back(masses[static_cast<std::size_t>(key)] / rows);
      inspection.heads.push_back(std::move(head));
    }
  }
  return inspection;
}

std::string render_inspection_text(const Inspection& inspection, const InspectionTextOptions& options) {
  return InspectionRenderer(inspection, options).render();
}

void write_inspection_json(JsonWriter& json, const Inspection& inspection) {
  const JsonStyle style = json.style();
  json.set_style(json_style(inspection.type));
  json.begin_object();
  json.whole("queries", inspection.num_queries);
  json.whole("keys", inspection.num_keys);
  json.indices("map_size", {inspection.map_size.begin(), inspection.map_size.end()});
  json.indices("tracked_keys", inspection.tracked_keys);
  json.objects("heads", inspection.heads, [&](const HeadInspection& head) {
    json.whole("batch", head.batch);
    json.whole("head", head.head);
    const auto list = [&](std::string_view name, const auto& of) {
      json.name(name);
      json.begin_array(JsonLayout::one_line);
      for (const HeavyHitter& hitter : head.heavy_hitters) of(hitter);
      json.end_array();
    };
    list("heavy_hitters", [&](const HeavyHitter& hitter) { json.whole(hitter.key); });
    list("mass", [&](const HeavyHitter& hitter) { json.number(hitter.mass); });
    list("share", [&](const HeavyHitter& hitter) { json.number(hitter.share); });
    list("uniform", [&](const HeavyHitter& hitter) { json.number(hitter.uniform); });
    json.numbers("tracked_shares", head.tracked_shares);
    if (head.entropy) json.number("entropy", *head.entropy);
    if (head.largest_weight) json.number("largest_weight", *head.largest_weight);
    if (head.mean_distance) json.number("mean_distance", *head.mean_distance);
  });
  json.end_object();
  json.set_style(style);
}

std::string render_inspection_json(const Inspection& inspection) {
  JsonWriter json;
  write_inspection_json(json, inspection);
  return json.take();
}

REGARD_INSTANTIATE_COMPUTE(inspect_heads);

}  // namespace regard::inline v0
