// SPDX-License-Identifier: Apache-2.0
//
// The figure of lesson why-scale in text: for each head size D the histogram of the scores and the mean weights of a
// query's keys, without and with division by √D, each as a column of block characters.
// Read next: steps_text.cpp, web/scale_figure.js.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "steps_text_parts.h"

namespace regard::inline v0 {
namespace {

constexpr std::size_t kBins = 20;

// Eight heights; at least the lowest for any value above 0.
std::string column(double share, bool unicode) {
  constexpr std::array<std::string_view, 9> kBlocks = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::array<std::string_view, 9> kPlain = {" ", ".", ":", "-", "=", "+", "*", "#", "@"};
  const auto eighths =
      share > 0 ? std::clamp(static_cast<std::size_t>(std::lround(share * 8)), std::size_t{1}, std::size_t{8}) : 0;
  return std::string(unicode ? kBlocks[eighths] : kPlain[eighths]);
}

// The histogram in kBins bins, relative to the fullest one.
std::string histogram(const ScoreSample& sample, bool unicode) {
  std::vector<double> bins(kBins);
  for (std::size_t i = 0; i < sample.counts.size(); ++i)
    bins[i * kBins / sample.counts.size()] += static_cast<double>(sample.counts[i]);
  const double fullest = *std::max_element(bins.begin(), bins.end());
  std::string text;
  for (const double bin : bins) text += column(fullest > 0 ? bin / fullest : 0, unicode);
  return text;
}

std::string weights(const ScoreSample& sample, bool unicode) {
  std::string text;
  for (const double weight : sample.ranked_weights) text += column(weight, unicode);
  return text;
}

Index count_of(const ScoreSample& sample) {
  Index all = sample.below + sample.above;
  for (const Index count : sample.counts) all += count;
  return all;
}

}  // namespace

std::vector<std::string> picture_lines(const TextContext& context, const Step& step) {
  if (step.pictures.empty()) return {};
  const Paint& paint = context.paint;
  const ScoreSample& first = step.pictures.front().plain;
  const auto num_keys = static_cast<Index>(first.ranked_weights.size());
  int label_width = 0;
  const auto label = [](const ScalePicture& picture) { return fmt::format("D = {}", picture.head_size); };
  for (const ScalePicture& picture : step.pictures) label_width = std::max(label_width, display_width(label(picture)));
  const int panel = static_cast<int>(kBins) + 2 + static_cast<int>(num_keys);
  if (label_width + 2 + panel + 3 + panel > context.width) return {};

  const std::string low = styled_number(first.low, {.digits = 0, .unicode = paint.unicode});
  const std::string high = styled_number(first.high, {.digits = 0, .unicode = paint.unicode});
  const Index num_scores = count_of(first);
  std::vector<std::string> lines = wrap_words(
      fmt::format(
          "Histograms of {} scores (of {} queries, {} keys each) from {} to {}; next to each, the weights of a query’s "
          "keys, largest first, averaged over the queries (full height: 1).",
          num_scores, num_scores / std::max<Index>(num_keys, 1), num_keys, low, high),
      context.width, 0);
  for (std::string& line : lines) line = paint.shown(line);
  lines.emplace_back();
  const auto row = [&](const std::string& name, const std::array<std::string, 4>& cells) {
    const int hist = static_cast<int>(kBins), ten = static_cast<int>(num_keys);
    return pad_right(name, label_width) + "  " + pad_right(cells[0], hist) + "  " + pad_right(cells[1], ten) + "   " +
           pad_right(cells[2], hist) + "  " + cells[3];
  };
  lines.push_back(paint.dim(row("", {paint.shown("q·k"), "p", paint.shown("q·k/√D"), paint.shown("p′")})));
  std::string outside;
  for (const ScalePicture& picture : step.pictures) {
    lines.push_back(
        row(label(picture), {histogram(picture.plain, paint.unicode), weights(picture.plain, paint.unicode),
                             histogram(picture.scaled, paint.unicode), weights(picture.scaled, paint.unicode)}));
    const Index beyond = picture.plain.below + picture.plain.above;
    if (beyond == 0) continue;
    const double percent = 100.0 * static_cast<double>(beyond) / static_cast<double>(num_scores);
    outside += fmt::format("{}D = {} {} %", outside.empty() ? "" : ", ", picture.head_size,
                           styled_number(percent, {.digits = 0, .unicode = paint.unicode}));
  }
  if (!outside.empty())
    for (const std::string& line :
         wrap_words(fmt::format("q·k outside {} to {}: {}.", low, high, outside), context.width, 0))
      lines.push_back(paint.shown(line));
  return lines;
}

}  // namespace regard::inline v0
