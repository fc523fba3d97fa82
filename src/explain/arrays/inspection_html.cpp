// SPDX-License-Identifier: Apache-2.0
//
// Pooled maps of a page: strips are joined until the maps of all heads are small enough.
//
//     strips of the map   | 0 | 1 | 2 | 3 | 4 |      joined by twos   |   0   |   1   | 2 |
//     a joined cell is the mean of its weights: the mean of its cells, weighted by their numbers of weights
//
// Read next: regard/explain/attention_html.h, web/inspection_figure.js.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "instantiate.h"
#include "regard/explain/attention_html.h"

namespace regard::inline v0 {
namespace {

constexpr double kMaxMapBytes = 3.0 * (1 << 20);  // of all heads, before base64
constexpr Index kMaxPageCells = 360;              // each way: two pixels of the column

// The edges of the strips over `count` queries or keys when the map's `strips` strips are joined in groups of `joined`.
std::vector<Index> edges_of(Index count, Index strips, Index joined) {
  std::vector<Index> edges;
  for (Index a = 0; a < strips; a += joined) edges.push_back(a * count / strips);
  edges.push_back(count);
  return edges;
}

}  // namespace

template <class T>
AttentionHtmlInspection attention_html_inspection(const Inspection& inspection,
                                                  std::type_identity_t<TensorView<const T, 4>> pooled_map) {
  const auto [batch, heads, rows, columns] = pooled_map.shape;
  const auto num_heads = static_cast<double>(std::max<Index>(batch * heads, 1));
  const Index side = std::clamp<Index>(static_cast<Index>(std::sqrt(kMaxMapBytes / 4 / num_heads)), 1, kMaxPageCells);
  const Index down = (rows + side - 1) / side, across = (columns + side - 1) / side;
  AttentionHtmlInspection page{.heads = inspection,
                               .row_edges = edges_of(inspection.num_queries, rows, down),
                               .column_edges = edges_of(inspection.num_keys, columns, across),
                               .maps = {}};
  const auto width_of = [](Index strip, Index count, Index strips) {
    return (strip + 1) * count / strips - strip * count / strips;
  };
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index a = 0; a < rows; a += down) {
        for (Index c = 0; c < columns; c += across) {
          double sum = 0, weights = 0;
          for (Index y = a; y < std::min(a + down, rows); ++y) {
            for (Index x = c; x < std::min(c + across, columns); ++x) {
              const auto count = static_cast<double>(width_of(y, inspection.num_queries, rows) *
                                                     width_of(x, inspection.num_keys, columns));
              sum += count * static_cast<double>(pooled_map(b, h, y, x));
              weights += count;
            }
          }
          page.maps.push_back(static_cast<float>(sum / weights));
        }
      }
    }
  }
  return page;
}

REGARD_INSTANTIATE_COMPUTE(attention_html_inspection);

}  // namespace regard::inline v0
