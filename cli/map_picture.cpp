// SPDX-License-Identifier: Apache-2.0
//
// Computes the colors of the cells; see map_picture.h. Read next: docs/guide/inspection.md.
#include "map_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "regard/runtime.h"

namespace regard::program {
namespace {

// --paper, --rule, --ink and --map of web/page.css on light paper.
constexpr Color kPaper = {0xfd, 0xfc, 0xf9};
constexpr Color kRule = {0xd9, 0xd5, 0xca};
constexpr Color kInk = {0x1f, 0x1e, 0x1b};
constexpr Color kMap = {0x0b, 0x4f, 0x8f};

// Color indices: hatched cells, NaN, and the ramp.
constexpr int kBehindHatch = 0, kHatch = 1, kNotANumber = 2, kFirstOfRamp = 3, kLastOfRamp = 255;

constexpr double kDecades = 4;       // of the logarithmic scale
constexpr Index kPictureSide = 512;  // small maps are enlarged to this size
constexpr Index kMaxCellPixels = 32;
constexpr Index kHatchPixels = 8;

std::vector<Color> colors() {
  std::vector<Color> all = {kPaper, kRule, kInk};
  for (int i = kFirstOfRamp; i <= kLastOfRamp; ++i) {
    const double share = static_cast<double>(i - kFirstOfRamp) / (kLastOfRamp - kFirstOfRamp);
    Color mixed{};
    for (std::size_t c = 0; c < 3; ++c)
      mixed[c] = static_cast<std::uint8_t>(std::lround((1 - share) * kPaper[c] + share * kMap[c]));
    all.push_back(mixed);
  }
  return all;
}

Index pixels_of_cell(Index num_cells) { return std::clamp<Index>(kPictureSide / num_cells, 1, kMaxCellPixels); }

}  // namespace

Picture picture_of_map(const InputView<2>& cells, const MapPicture& about) {
  const auto [rows, columns] = cells.shape;
  double largest = 0;
  for (Index a = 0; a < rows; ++a) {
    for (Index b = 0; b < columns; ++b) {
      const auto x = cells.at<double>(a, b);
      if (std::isfinite(x)) largest = std::max(largest, x);
    }
  }
  const bool linear = about.scale == MapScale::linear;
  const auto color_of = [&](double x) {
    if (std::isnan(x)) return kNotANumber;
    const double share = linear ? x / largest : 1 + std::log10(x / largest) / kDecades;
    return kFirstOfRamp + static_cast<int>(std::lround((kLastOfRamp - kFirstOfRamp) * std::clamp(share, 0.0, 1.0)));
  };
  const Index down = pixels_of_cell(rows), across = pixels_of_cell(columns);
  Picture picture{.width = columns * across, .height = rows * down, .pixels = {}, .colors = colors(), .texts = {}};
  picture.pixels.resize(static_cast<std::size_t>(picture.width * picture.height));
  for (Index y = 0; y < picture.height; ++y) {
    for (Index x = 0; x < picture.width; ++x) {
      const auto cell = cells.at<double>(y / down, x / across);
      const int hatched = (x + y) % kHatchPixels == 0 ? kHatch : kBehindHatch;
      picture.pixels[static_cast<std::size_t>(y * picture.width + x)] =
          static_cast<std::uint8_t>(cell == 0 ? hatched : color_of(cell));
    }
  }
  picture.texts = {
      {"Title", about.title},
      {"Description",
       fmt::format(
           "Mean attention weights: {} queries from top to bottom, {} keys from left to right, in {} x {} cells "
           "of {} x {} pixels.",
           about.num_queries, about.num_keys, rows, columns, down, across)},
      {"Scale", linear
                    ? fmt::format("linear: background 0, full blue {:.6g}; hatched: zero; black: NaN", largest)
                    : fmt::format("logarithmic: background {:.6g} or less, full blue {:.6g}; hatched: zero; black: NaN",
                                  largest * std::pow(10, -kDecades), largest)},
      {"Software", "regard " + std::string(version())}};
  return picture;
}

}  // namespace regard::program
