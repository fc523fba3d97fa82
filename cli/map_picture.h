// SPDX-License-Identifier: Apache-2.0
//
// A pooled map of weights as a picture: queries run down, keys across, in the colors of the page.
//
//     largest cell   the map's blue
//     lower limit    the paper's color, at and below it; logarithmic: largest / 10,000, linear: 0
//     exactly 0      hatched: no query in the cell gives any key in it a weight
//
// Read next: picture.h, docs/guide/inspection.md.
#pragma once

#include <string>

#include "picture.h"
#include "regard/tensor.h"

namespace regard::program {

enum class MapScale { logarithmic, linear };

struct MapPicture {
  std::string title;  // ASCII
  Index num_queries = 0, num_keys = 0;
  MapScale scale = MapScale::logarithmic;
};

// cells: (rows, columns), not negative; NaN has the ink's color. In small maps a cell has several pixels.
Picture picture_of_map(const InputView<2>& cells, const MapPicture& about);

}  // namespace regard::program
