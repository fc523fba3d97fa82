// SPDX-License-Identifier: Apache-2.0
//
// The data of a page of attention over arrays: arrays as base64 of little-endian values of the query's type. R is the
// number of rows kept.
//
//     query (B, H, R, D)   key (B, Hkv, S, D)   value (B, Hkv, S, Dv)   context (B, H, R, Dv)
//     scores, weights (B, H, R, S)              row_max, row_sum, sink_weights (B, H, R)
//     added (B, H, R, S)    ALiBi + bias, as the kernel adds them: its scores with scale 0
//     hidden                a bit for each weight: where those scores are −∞ without any bias
//
// Read next: web/arrays.js, html_page.h.
#include "regard/explain/attention_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

#include "explain/report/html_page.h"
#include "explain/report/json_style.h"
#include "instantiate.h"
#include "regard/error.h"
#include "regard/io/npy.h"

namespace regard::inline v0 {
namespace {

constexpr double kFrameBytes = 200e3;  // script, style and text

double product(std::initializer_list<Index> extents) {
  double all = 1;
  for (const Index extent : extents) all *= static_cast<double>(extent);
  return all;
}

// Each row once, in order.
std::vector<RowRange> distinct_rows(std::vector<RowRange> rows, Index num_queries) {
  if (rows.empty()) rows.push_back({0, num_queries});
  std::sort(rows.begin(), rows.end(), [](const RowRange& a, const RowRange& b) { return a.begin < b.begin; });
  std::vector<RowRange> distinct;
  for (const RowRange& range : rows) {
    if (range.begin >= range.end) continue;
    if (!distinct.empty() && range.begin <= distinct.back().end) {
      distinct.back().end = std::max(distinct.back().end, range.end);
    } else {
      distinct.push_back(range);
    }
  }
  return distinct;
}

Index count_of(const std::vector<RowRange>& rows) {
  Index count = 0;
  for (const RowRange& range : rows) count += range.end - range.begin;
  return count;
}

template <class T>
std::vector<T> elements_of(const InputView<1>& view) {
  std::vector<T> elements;
  for (Index i = 0; i < view.shape[0]; ++i) elements.push_back(view.at<T>(i));
  return elements;
}

// A short list, or its size.
std::string list_text(const InputView<1>& numbers) {
  constexpr Index kMaxListed = 8;
  return numbers.shape[0] > kMaxListed ? fmt::format("({} values)", numbers.shape[0])
                                       : fmt::format("{}", fmt::join(elements_of<Index>(numbers), ", "));
}

// The given options, each in a few words.
std::vector<std::string> settings_of(const AttentionOptions& options, Index head_size) {
  std::vector<std::string> texts;
  if (options.causal) texts.emplace_back("causal");
  if (const auto* alignment = std::get_if<QueryAlignment>(&options.query_offset)) {
    texts.emplace_back(*alignment == QueryAlignment::top_left ? "query 0 at key 0" : "last query at last key");
  } else if (const auto* offset = std::get_if<Index>(&options.query_offset)) {
    texts.push_back(fmt::format("query 0 at key {}", *offset));
  } else if (const auto* offsets = std::get_if<InputView<1>>(&options.query_offset)) {
    texts.push_back(fmt::format("query 0 at key {}", list_text(*offsets)));
  }
  const auto side = [](const std::optional<Index>& keys) { return keys ? fmt::format("{}", *keys) : "all"; };
  if (options.window.left || options.window.right)
    texts.push_back(fmt::format("window: {} before, {} after", side(options.window.left), side(options.window.right)));
  if (!options.key_lengths.empty()) texts.push_back(fmt::format("key lengths {}", list_text(options.key_lengths)));
  if (!options.query_starts.empty())
    texts.push_back(fmt::format("packed, queries from {}, keys from {}", list_text(options.query_starts),
                                list_text(options.key_starts)));
  if (!options.query_segments.absent()) texts.emplace_back("segments");
  if (!options.prefix.empty()) texts.push_back(fmt::format("prefix {}", list_text(options.prefix)));
  if (!options.block_mask.absent())
    texts.push_back(fmt::format("block mask {} × {}", options.block_size[0], options.block_size[1]));
  if (!options.mask.absent()) texts.emplace_back("mask");
  texts.push_back(options.scale ? fmt::format("scale {}", *options.scale) : fmt::format("scale 1/√{}", head_size));
  if (options.soft_cap) texts.push_back(fmt::format("soft cap {}", *options.soft_cap));
  if (!options.alibi_slopes.empty()) texts.emplace_back("ALiBi");
  if (!options.bias.absent()) texts.emplace_back("bias");
  if (!options.sinks.empty()) texts.emplace_back("sinks");
  return texts;
}

template <class T>
class AttendPage {
 public:
  using View = TensorView<const T, 4>;

  AttendPage(const View& query, const View& key, const View& value, const AttentionOutputs& computed,
             const AttentionOptions& options, const AttentionHtmlOptions& html, const Runtime& runtime)
      : query_(query),
        key_(key),
        value_(value),
        computed_(computed),
        options_(options),
        html_(html),
        runtime_(runtime),
        rows_(distinct_rows(html.rows, query.shape[2])),
        shape_{query.shape[0], query.shape[1], count_of(rows_), key.shape[2]} {
    check();
  }

  std::string explanation() {
    JsonWriter json(json_style(type()));
    json.begin_object();
    json.source(html_.command);
    json.string("type", type_name(std::is_same_v<T, float> ? ElementType::float32 : ElementType::float64));
    json.name("shapes");
    json.begin_object();
    json.indices("query", {query_.shape.begin(), query_.shape.end()});
    json.indices("key", {key_.shape.begin(), key_.shape.end()});
    json.indices("value", {value_.shape.begin(), value_.shape.end()});
    json.end_object();
    json.strings("settings", settings_of(options_, query_.shape[3]));
    json.end_object();
    return json.take();
  }

  std::string page() {
    json_.begin_object();
    json_.string("schema", "regard/1");
    json_.string("subject", html_.only_inspection ? "inspection" : "arrays");
    if (html_.inspection != nullptr) {
      json_.indices("row_edges", html_.inspection->row_edges);
      json_.indices("column_edges", html_.inspection->column_edges);
      json_.string("maps", base64_of(std::as_bytes(std::span(html_.inspection->maps))));
    }
    if (!html_.only_inspection) arrays();
    json_.end_object();
    return json_.take();
  }

 private:
  void arrays() {
    json_.name("rows");
    json_.begin_array(JsonLayout::one_line);
    for (const RowRange& range : rows_) {
      json_.begin_array(JsonLayout::one_line);
      json_.whole(range.begin);
      json_.whole(range.end);
      json_.end_array();
    }
    json_.end_array();
    if (html_.focus) json_.whole("focus", *html_.focus);
    if (!html_.query_tokens.empty()) json_.strings("query_tokens", html_.query_tokens);
    if (!html_.key_tokens.empty()) json_.strings("key_tokens", html_.key_tokens);
    if (options_.scale) json_.number("scale", *options_.scale);
    if (options_.soft_cap) json_.number("soft_cap", *options_.soft_cap);
    json_.boolean("alibi", !options_.alibi_slopes.empty());
    json_.boolean("bias", !options_.bias.absent());
    base64("query", rows_of(query_));
    base64("key", all_of(key_));
    base64("value", all_of(value_));
    scores();
    base64("weights", computed_rows(options_, WeightsKind::weights));
    base64("row_max", rows_of(as_rank_4(computed_.row_max)));
    base64("row_sum", rows_of(as_rank_4(computed_.row_sum)));
    if (!options_.sinks.empty()) {
      base64("sinks", elements_of<T>(options_.sinks));
      base64("sink_weights", rows_of(as_rank_4(computed_.sink_weights)));
    }
    base64("context", rows_of(computed_.context));
  }

  static constexpr ElementType type() { return std::is_same_v<T, float> ? ElementType::float32 : ElementType::float64; }
  bool has_additions() const { return !options_.alibi_slopes.empty() || !options_.bias.absent(); }

  [[noreturn]] static void reject(const std::string& what) { throw InvalidArgument("render_attention_html: " + what); }
  void check() const {
    if (html_.only_inspection) {
      if (html_.inspection == nullptr) reject("only_inspection is true, but inspection is null");
      return;
    }
    const auto& [batch, heads, length, head_size] = query_.shape;
    const std::array<Index, 3> rows{batch, heads, length};
    for (const auto& [name, tokens, count] :
         {std::tuple{"query_tokens", &html_.query_tokens, length}, {"key_tokens", &html_.key_tokens, key_.shape[2]}}) {
      if (!tokens->empty() && static_cast<Index>(tokens->size()) != count)
        reject(fmt::format("{} has {} words; expected {}", name, tokens->size(), count));
    }
    if (value_.shape[0] != batch || value_.shape[1] != key_.shape[1] || value_.shape[2] != key_.shape[2])
      reject("value has shape " + npy_shape_text(value_.shape) + "; expected the batch, heads and rows of key " +
             npy_shape_text(key_.shape));
    if (computed_.context.shape != std::array<Index, 4>{batch, heads, length, value_.shape[3]} ||
        computed_.row_max.shape != rows || computed_.row_sum.shape != rows ||
        (!options_.sinks.empty() && computed_.sink_weights.shape != rows))
      reject(
          "computed lacks context, row_max, row_sum or the sinks' weights; expected the outputs of attention_forward");
    for (const RowRange& range : html_.rows)
      if (range.begin < 0 || range.end > query_.shape[2])
        reject(fmt::format("rows {}:{} go beyond the {} rows of query", range.begin, range.end, query_.shape[2]));
    for (const auto& [count, what] : {std::pair{shape_[0], "batch entry"}, std::pair{shape_[1], "head"},
                                      std::pair{shape_[2], "row of query"}, std::pair{shape_[3], "key"}})
      if (count < 1) reject(fmt::format("there is no {} to show on a page", what));
    const double bytes = attention_html_bytes<T>(query_.shape, key_.shape, value_.shape, html_.rows, has_additions());
    if (bytes > kMaxAttentionHtmlBytes)
      reject(fmt::format("the page would take {:.1f} MiB; the limit is {:.1f} MiB; choose fewer rows",
                         bytes / (1 << 20), kMaxAttentionHtmlBytes / (1 << 20)));
  }

  void base64(std::string_view name, const std::vector<T>& numbers) {
    json_.string(name, base64_of(std::as_bytes(std::span(numbers))));
  }

  static InputView<4> as_rank_4(const OutputView<3>& view) {
    const auto& [batch, heads, rows] = view.shape;
    return {view.data, view.type, {batch, heads, rows, 1}, {view.strides[0], view.strides[1], view.strides[2], 1}};
  }
  static void append(std::vector<T>& all, const InputView<4>& view, Index b, Index h, Index row) {
    for (Index c = 0; c < view.shape[3]; ++c) all.push_back(view.at<T>(b, h, row, c));
  }
  static std::vector<T> all_of(const InputView<4>& view) {
    std::vector<T> all;
    for (Index b = 0; b < view.shape[0]; ++b)
      for (Index h = 0; h < view.shape[1]; ++h)
        for (Index row = 0; row < view.shape[2]; ++row) append(all, view, b, h, row);
    return all;
  }
  std::vector<T> rows_of(const InputView<4>& view) const {
    std::vector<T> all;
    for (Index b = 0; b < view.shape[0]; ++b)
      for (Index h = 0; h < view.shape[1]; ++h)
        for (const RowRange& range : rows_)
          for (Index row = range.begin; row < range.end; ++row) append(all, view, b, h, row);
    return all;
  }

  std::vector<T> computed_rows(const AttentionOptions& options, WeightsKind kind) const {
    std::vector<T> numbers(static_cast<std::size_t>(TensorView<T, 4>(nullptr, shape_).size()));
    WeightsRequest request;
    if (kind == WeightsKind::weights) {
      request.row_max = computed_.row_max;
      request.row_sum = computed_.row_sum;
    }
    request.rows = rows_;
    request.kind = kind;
    attention_weights(query_, key_, request, TensorView<T, 4>(numbers.data(), shape_), options, runtime_);
    return numbers;
  }

  // Scores, the terms added to them, and which keys are hidden. With scale 0 a score is the sum of the added terms;
  // without bias, it is then −∞ only where the key is hidden.
  void scores() {
    base64("scores", computed_rows(options_, WeightsKind::scores));
    AttentionOptions without = options_;
    without.scale = 0;
    without.soft_cap.reset();
    if (has_additions()) base64("added", computed_rows(without, WeightsKind::scores));
    without.bias = {};
    without.alibi_slopes = {};
    const std::vector<T> visible = computed_rows(without, WeightsKind::scores);
    std::vector<std::byte> bits((visible.size() + 7) / 8);
    bool any = false;
    for (std::size_t i = 0; i < visible.size(); ++i) {
      if (visible[i] != -std::numeric_limits<T>::infinity()) continue;
      bits[i / 8] |= std::byte{1} << (i % 8);
      any = true;
    }
    if (any) json_.string("hidden", base64_of(bits));
  }

  const View query_, key_, value_;
  const AttentionOutputs& computed_;
  const AttentionOptions& options_;
  const AttentionHtmlOptions& html_;
  const Runtime& runtime_;
  const std::vector<RowRange> rows_;
  const std::array<Index, 4> shape_;  // of the weights that are kept
  JsonWriter json_{json_style(ElementType::float64)};
};

}  // namespace

template <class T>
double attention_html_bytes(const std::array<Index, 4>& query, const std::array<Index, 4>& key,
                            const std::array<Index, 4>& value, const std::vector<RowRange>& rows, bool has_additions) {
  const Index num_rows = count_of(distinct_rows(rows, query[2]));
  const double weights = product({query[0], query[1], num_rows, key[2]});
  const double per_row = product({query[0], query[1], num_rows}) * static_cast<double>(query[3] + value[3] + 3);
  const double per_key = product({key[0], key[1], key[2]}) * static_cast<double>(key[3] + value[3]);
  const double numbers = weights * (has_additions ? 3 : 2) + per_row + per_key;
  return kFrameBytes + (numbers * static_cast<double>(sizeof(T)) + weights / 8) * 4 / 3;
}

template <class T>
std::string render_attention_html(std::type_identity_t<TensorView<const T, 4>> query,
                                  std::type_identity_t<TensorView<const T, 4>> key,
                                  std::type_identity_t<TensorView<const T, 4>> value, const AttentionOutputs& computed,
                                  const AttentionOptions& options, const AttentionHtmlOptions& html,
                                  const Runtime& runtime) {
  AttendPage<T> page(query, key, value, computed, options, html, runtime);
  std::vector<NamedText> parts = {{"explanation", page.explanation()}, {"page", page.page()}};
  if (html.inspection != nullptr) parts.push_back({"inspection", render_inspection_json(html.inspection->heads)});
  return page_html("Attention", parts);
}

REGARD_INSTANTIATE_COMPUTE(attention_html_bytes);
REGARD_INSTANTIATE_COMPUTE(render_attention_html);

}  // namespace regard::inline v0
