// SPDX-License-Identifier: Apache-2.0
//
// The data of a sentence's page: arrays as base64 of little-endian values, axes (layer, head, token, dimension).
//
//     query key value row_max row_sum    float32, of every layer and head: the page computes any row from them
//     gram                               float32 (layer, head, D (D + 1) / 2): W_output(head) · its transpose, on and
//                                        below the diagonal; a mixture b of values contributes √(b · gram · b)
//     thumbnails                         bytes, only for more than 64 tokens: largest weight of each block of cells
//     focus                              for the word and head that the analysis chose: the products behind q, and
//                                        behind k and v of the key shown; the word's vectors through every layer
//
// Read next: web/sentence.js, html_page.h.
#include "regard/explain/sentence_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "explain/report/html_page.h"
#include "explain/report/json_style.h"
#include "sentence_model.h"

namespace regard::inline v0 {
namespace {

constexpr Index kThumbnail = 64;  // cells a side; the page computes maps of up to that many tokens itself
constexpr std::size_t kLargestTerms = 6;

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& numbers) {
  return std::as_bytes(std::span(numbers));
}

class SentencePage {
 public:
  SentencePage(const SentenceModel& model, const SentenceAnalysis& analysis,
               std::vector<std::vector<std::byte>>* arrays, const Runtime& runtime)
      : model_(model),
        analysis_(analysis),
        arrays_(arrays),
        runtime_(runtime),
        extents_(model.extents()),
        json_(json_style(ElementType::float32), runtime.stop) {}

  std::string write(bool with_gram, bool with_sums) {
    json_.begin_object();
    json_.string("schema", "regard/1");
    json_.string("subject", "sentence");
    json_.whole("layers", extents_.num_layers);
    json_.whole("heads", extents_.num_heads);
    json_.whole("depth", extents_.head_size);
    json_.whole("width", extents_.width);
    if (extents_.causal) json_.boolean("causal", true);
    if (rotates(model_)) json_.boolean("rotated", true);
    json_.name("hidden_tokens");
    json_.begin_array(JsonLayout::one_line);
    for (const Index token : trace().hidden_keys) json_.whole(token);
    json_.end_array();
    array("query", &LayerTrace::query);
    array("key", &LayerTrace::key);
    array("value", &LayerTrace::value);
    array("row_max", &LayerTrace::row_max);
    array("row_sum", &LayerTrace::row_sum);
    if (with_gram) gram();
    if (num_tokens() > kThumbnail) thumbnails();
    focus(with_sums);
    json_.end_object();
    return json_.take();
  }

 private:
  const ModelTrace& trace() const { return analysis_.sentence.trace; }
  Index num_tokens() const { return static_cast<Index>(trace().ids.size()); }
  template <class T>
  void array(std::string_view name, const std::vector<T>& numbers) {
    const std::span<const std::byte> bytes = bytes_of(numbers);
    if (arrays_ == nullptr) {
      json_.string(name, base64_of(bytes));
    } else {
      json_.string(name, fmt::format("@{}", arrays_->size()));
      arrays_->emplace_back(bytes.begin(), bytes.end());
    }
  }

  template <int Rank>
  void array(std::string_view name, Tensor<float, Rank> LayerTrace::* member) {
    std::vector<float> all;
    all.reserve(trace().layers.size() * static_cast<std::size_t>((trace().layers.front().*member).size()));
    for (const LayerTrace& layer : trace().layers) {
      const Tensor<float, Rank>& tensor = layer.*member;
      all.insert(all.end(), tensor.data(), tensor.data() + tensor.size());
    }
    array(name, all);
  }

  void gram() {
    std::vector<float> all;
    for (Index layer = 0; layer < extents_.num_layers; ++layer)
      for (Index h = 0; h < extents_.num_heads; ++h) {
        json_.poll();
        const TensorView<const float, 2> output = head_projections(model_, layer, h).output;
        for (Index a = 0; a < extents_.head_size; ++a)
          for (Index b = 0; b <= a; ++b) {
            double sum = 0;
            for (Index e = 0; e < extents_.width; ++e)
              sum += static_cast<double>(output(a, e)) * static_cast<double>(output(b, e));
            all.push_back(static_cast<float>(sum));
          }
      }
    array("gram", all);
  }

  // The bytes of each head are relative to its largest weight, which the page receives as well.
  void thumbnails() {
    const Index length = num_tokens();
    std::vector<std::uint8_t> all;
    std::vector<float> maxima;
    for (Index l = 0; l < extents_.num_layers; ++l) {
      const Tensor<float, 3> weights = trace_weights(trace(), l, WeightsKind::weights, runtime_);
      for (Index h = 0; h < extents_.num_heads; ++h) {
        json_.poll();
        std::vector<float> blocks(static_cast<std::size_t>(kThumbnail * kThumbnail), 0.0F);
        float most = 0;
        for (Index q = 0; q < length; ++q)
          for (Index k = 0; k < length; ++k) {
            float& block =
                blocks[static_cast<std::size_t>(q * kThumbnail / length * kThumbnail + k * kThumbnail / length)];
            block = std::max(block, weights(h, q, k));
            most = std::max(most, weights(h, q, k));
          }
        for (const float block : blocks)
          all.push_back(static_cast<std::uint8_t>(most > 0 ? std::lround(block / most * 255.0F) : 0));
        maxima.push_back(most);
      }
    }
    array("thumbnails", all);
    array("thumbnail_maxima", maxima);
  }

  void focus(bool with_sums) {
    const SentenceRow& row = analysis_.row;
    const Index token = row.queries.empty() ? 0 : row.queries.front();
    json_.name("focus");
    json_.begin_object();
    json_.whole("layer", row.layer);
    json_.whole("head", row.head);
    json_.whole("word", row.word);
    json_.whole("token", token);
    const HeadProjections from = head_projections(model_, row.layer, row.head);
    const SentenceWord& key = analysis_.sentence.words[static_cast<std::size_t>(analysis_.attended)];
    const bool rotated = rotates(model_);  // the sums are then not the elements of q and k
    if (with_sums && !rotated) projections("query_from", row, token, from.query);
    json_.whole("key_word", analysis_.attended);
    if (with_sums && !rotated) projections("key_from", row, key.tokens.front(), from.key);
    if (with_sums) projections("value_from", row, key.tokens.front(), from.value);
    input("query_input", row.layer, token);
    input("key_input", row.layer, key.tokens.front());
    states("input", &LayerTrace::input);
    states("attention_output", &LayerTrace::attention_output);
    if (extents_.causal) states("residual", &LayerTrace::residual);
    if (trace().layers.front().feed_forward.size() > 0) {
      states("attention_normed", &LayerTrace::attention_normed);
      states("feed_forward", &LayerTrace::feed_forward);
    }
    states("output", &LayerTrace::output);
    const Tensor<float, 2> share = head_output_of(model_, trace(), row.layer, row.head, runtime_);
    array("head_output", mean_rows(share, row.queries));
    json_.end_object();
  }

  // The word's vector in every layer: (layer, E).
  void states(std::string_view name, Tensor<float, 2> LayerTrace::* member) {
    std::vector<float> all;
    for (const LayerTrace& layer : trace().layers) {
      const std::vector<float> mean = mean_rows(layer.*member, analysis_.row.queries);
      all.insert(all.end(), mean.begin(), mean.end());
    }
    array(name, all);
  }

  // A token's vector that a layer projects: (E).
  void input(std::string_view name, Index layer, Index token) {
    const Tensor<float, 2>& input = projected_input(trace().layers[static_cast<std::size_t>(layer)]);
    const float* const first = &input(token, 0);
    array(name, std::vector<float>(first, first + extents_.width));
  }

  // The sum behind each element of a token's q, k or v:
  // {"largest": [[dimension of x, parameter] …], "others", "bias"}.
  void projections(std::string_view name, const SentenceRow& row, Index token, const HeadProjection& from) {
    const Tensor<float, 2>& input = projected_input(trace().layers[static_cast<std::size_t>(row.layer)]);
    json_.name(name);
    json_.begin_array();
    for (Index d = 0; d < extents_.head_size; ++d) {
      std::vector<std::pair<double, Index>> products;
      double sum = 0;
      for (Index i = 0; i < extents_.width; ++i) {
        const double product = static_cast<double>(input(token, i)) * static_cast<double>(from.weight(i, d));
        products.emplace_back(-std::fabs(product), i);
        sum += product;
      }
      const std::size_t most = std::min(kLargestTerms, products.size());
      std::partial_sort(products.begin(), products.begin() + static_cast<std::ptrdiff_t>(most), products.end());
      json_.begin_object();
      json_.name("largest");
      json_.begin_array(JsonLayout::one_line);
      for (std::size_t n = 0; n < most; ++n) {
        const Index i = products[n].second;
        const double x = static_cast<double>(input(token, i));
        const double w = static_cast<double>(from.weight(i, d));
        sum -= x * w;
        json_.begin_array(JsonLayout::one_line);
        json_.whole(i);
        json_.number(w);
        json_.end_array();
      }
      json_.end_array();
      json_.number("others", sum);
      json_.number("bias", from.bias_at(d));
      json_.end_object();
    }
    json_.end_array();
  }

  const SentenceModel& model_;
  const SentenceAnalysis& analysis_;
  std::vector<std::vector<std::byte>>* arrays_;
  const Runtime& runtime_;
  ModelExtents extents_;
  JsonWriter json_;
};

}  // namespace

std::vector<NamedText> sentence_page_data(const SentenceModel& model, const SentenceAnalysis& analysis,
                                          const SentencePageOptions& options, const Runtime& runtime) {
  return {
      {"explanation", render_sentence_json(analysis, SentenceJsonOptions{.command = options.command}, runtime.stop)},
      {"page", SentencePage(model, analysis, options.arrays, runtime).write(options.gram, options.sums)}};
}

std::string render_sentence_html(const SentenceModel& model, const SentenceAnalysis& analysis,
                                 const SentenceHtmlOptions& options, const Runtime& runtime) {
  std::vector<NamedText> data = sentence_page_data(model, analysis, {.command = options.command}, runtime);
  if (options.comparison != nullptr)
    data.push_back({"comparison", render_compare_json(*options.comparison, options.command, runtime.stop)});
  return page_html(analysis.sentence.text, data);
}

std::string render_compare_html(const Comparison& comparison, std::string_view command, const std::stop_token& stop) {
  JsonWriter page(json_style(ElementType::float64));
  page.begin_object(JsonLayout::one_line);
  page.string("schema", "regard/1");
  page.string("subject", "comparison");
  page.end_object();
  return page_html(comparison.word,
                   {{"explanation", render_compare_json(comparison, command, stop)}, {"page", page.take_part()}});
}

}  // namespace regard::inline v0
