// SPDX-License-Identifier: Apache-2.0
//
// Pictures with up to 256 colors as PNG files, written by libpng, with text entries that describe them.
//
//     pixels (height, width), each the index of a color   →   png_of()   →   the bytes of the file
//
// Read next: picture.cpp, map_picture.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "regard/tensor.h"

namespace regard::program {

using Color = std::array<std::uint8_t, 3>;  // sRGB

struct Picture {
  Index width = 0;
  Index height = 0;
  std::vector<std::uint8_t> pixels;                        // row by row
  std::vector<Color> colors;                               // at most 256
  std::vector<std::pair<std::string, std::string>> texts;  // keyword and text, ASCII
};

// Throws std::runtime_error with libpng's message.
std::string png_of(const Picture& picture);

}  // namespace regard::program
