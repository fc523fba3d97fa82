// SPDX-License-Identifier: Apache-2.0
//
// A pooled map of weights as a picture: queries down, keys across, in the colours of the page.
//
//     largest cell           the map's blue
//     a ten-thousandth of it  the paper's colour, and all below (logarithmic); or 0 (linear)
//     exactly 0              hatched: no query there gives any key there a weight
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

// cells (rows, columns), 0 or more, or NaN, which takes the ink's colour. Small maps have cells of several pixels.
Picture picture_of_map(const InputView<2>& cells, const MapPicture& about);

}  // namespace regard::program
