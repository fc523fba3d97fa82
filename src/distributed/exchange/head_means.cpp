// SPDX-License-Identifier: Apache-2.0
//
// The numbers that are sent: for each head of each batch entry, the sums of all means, and the number of rows.
// Read next: head_means.h.
#include "head_means.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "distributed/messages/messages.h"

namespace regard::inline v0::internal {
namespace {

double number_at(const OutputView<3>& view, Index b, Index head, Index row) {
  return view.type == ElementType::float64 ? view.at<double>(b, head, row)
                                           : static_cast<double>(view.at<float>(b, head, row));
}
void write_number(const OutputView<2>& view, Index b, Index head, double number) {
  const auto rounded = static_cast<float>(number);
  const void* const from = view.type == ElementType::float64 ? static_cast<const void*>(&number) : &rounded;
  std::memcpy(view.pointer(b, head), from, static_cast<std::size_t>(type_bytes(view.type)));
}

}  // namespace

HeadMeans::HeadMeans(const AttentionStatistics& requested, const InputView<4>& query) : rows_(requested) {
  using S = AttentionStatistics;
  const auto& [batch, heads, num_rows, size] = query.shape;
  const ElementType type = query.type == ElementType::float64 ? query.type : ElementType::float32;
  for (const auto& [of_head, of_rows] : {std::pair{&S::head_entropy, &S::entropy},
                                         {&S::head_largest_weight, &S::largest_weight},
                                         {&S::head_chosen_weight, &S::chosen_weight},
                                         {&S::head_mean_distance, &S::mean_distance}}) {
    if ((requested.*of_head).absent()) continue;
    means_.push_back({of_rows, requested.*of_head});
    rows_.*of_head = {};
    provide(rows_.*of_rows, type, {batch, heads, num_rows});
  }
  if (means_.empty()) return;
  provide(rows_.top_keys, ElementType::int64, {batch, heads, num_rows, 1});
  provide(rows_.largest_weight, type, {batch, heads, num_rows});
}

template <class View>
void HeadMeans::provide(View& view, ElementType type, const decltype(View::shape)& shape) {
  if (!view.absent()) return;
  Index bytes = type_bytes(type);
  for (const Index extent : shape) bytes *= extent;
  memory_.push_back(std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(std::max<Index>(1, bytes))));
  view = View(memory_.back().get(), type, shape, dense_strides(shape));
}

void HeadMeans::add_rows(std::vector<double>& sums) const {
  double* of_head = sums.data();
  const auto& shape = rows_.largest_weight.shape;
  for (Index b = 0; b < shape[0]; ++b) {
    for (Index h = 0; h < shape[1]; ++h, of_head += means_.size() + 1) {
      for (Index i = 0; i < shape[2]; ++i) {
        const bool sees_key =
            rows_.top_keys.at<Index>(b, h, i, 0) >= 0 || std::isnan(number_at(rows_.largest_weight, b, h, i));
        if (!sees_key) continue;
        for (std::size_t n = 0; n < means_.size(); ++n) of_head[n] += number_at(rows_.*means_[n].of_rows, b, h, i);
        of_head[means_.size()] += 1;
      }
    }
  }
}

void HeadMeans::write(const std::vector<Index>& row_starts, Ranks& ranks, const std::stop_token& stop) const {
  if (means_.empty()) return;
  const auto& shape = rows_.largest_weight.shape;
  std::vector<double> sums(static_cast<std::size_t>(shape[0] * shape[1]) * (means_.size() + 1));
  sum_in_row_order(ranks.messages(), row_starts, 1, sums, [&](Index) { add_rows(sums); }, stop);
  const double* of_head = sums.data();
  for (Index b = 0; b < shape[0]; ++b) {
    for (Index h = 0; h < shape[1]; ++h, of_head += means_.size() + 1) {
      const double count = of_head[means_.size()];
      for (std::size_t n = 0; n < means_.size(); ++n)
        write_number(means_[n].to, b, h, count > 0 ? of_head[n] / count : 0.0);
    }
  }
}

}  // namespace regard::inline v0::internal
