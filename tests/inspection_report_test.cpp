// SPDX-License-Identifier: Apache-2.0
//
// The report of an inspection: heavy hitters and shares from masses written by hand, the text at several widths, the
// JSON, and rejections.
// Read next: regard/explain/inspection_report.h, attention_columns_test.cpp.
#include "regard/explain/inspection_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "regard/io/json.h"
#include "support/rejection.h"

namespace regard::inspection_report_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Two heads of six keys for ten queries; in the second all weight is on one key.
template <class T>
Tensor<T, 3> two_heads() {
  Tensor<T, 3> mass({1, 2, 6});
  const double first[] = {1.5, 4, 0, 0.5, 4, 0};
  for (Index j = 0; j < 6; ++j) mass(0, 0, j) = static_cast<T>(first[j]);
  mass(0, 1, 3) = 10;
  return mass;
}

std::vector<Index> keys_of(const HeadInspection& head) {
  std::vector<Index> keys;
  for (const HeavyHitter& hitter : head.heavy_hitters) keys.push_back(hitter.key);
  return keys;
}

TEST(Inspection, HeavyHittersAreTheLargestMassesLowerKeyFirst) {
  const Tensor<double, 3> mass = two_heads<double>();
  const Inspection made = inspect_heads<double>(mass.view(), 10, {.top = 3, .track_keys = {3, 0}});
  ASSERT_EQ(made.heads.size(), 2u);
  EXPECT_EQ(keys_of(made.heads[0]), (std::vector<Index>{1, 4, 0}));
  EXPECT_EQ(made.heads[0].heavy_hitters[0].mass, 4);
  EXPECT_EQ(made.heads[0].heavy_hitters[0].share, 0.4);
  EXPECT_EQ(made.heads[0].tracked_shares, (std::vector<double>{0.05, 0.15}));
  // Keys without mass are not heavy hitters.
  EXPECT_EQ(keys_of(made.heads[1]), (std::vector<Index>{3}));
  EXPECT_EQ(keys_of(inspect_heads<double>(mass.view(), 10, {.top = 9}).heads[0]), (std::vector<Index>{1, 4, 0, 3}));
  EXPECT_TRUE(inspect_heads<double>(mass.view(), 10, {.top = 0}).heads[0].heavy_hitters.empty());
}

TEST(Inspection, ComparesWithTheUniformSharesGiven) {
  const Tensor<double, 3> mass = two_heads<double>();
  Tensor<double, 3> uniform({1, 1, 6});
  for (Index j = 0; j < 6; ++j) uniform(0, 0, j) = static_cast<double>(j + 1);
  const Inspection made = inspect_heads<double>(mass.view(), 10, {.top = 2}, {}, uniform.view());
  EXPECT_EQ(made.heads[0].heavy_hitters[1].uniform, 0.5);
  EXPECT_EQ(made.heads[1].heavy_hitters[0].uniform, 0.4);
  EXPECT_EQ(inspect_heads<double>(mass.view(), 10).heads[0].heavy_hitters[0].uniform, 1.0 / 6);
  EXPECT_THROW(inspect_heads<double>(mass.view(), 10, {}, {}, Tensor<double, 3>({1, 3, 6}).view()),
               std::invalid_argument);
}

TEST(Inspection, ReadsMassesByTheirStrides) {
  Tensor<float, 3> turned({6, 2, 1});
  const Tensor<float, 3> mass = two_heads<float>();
  for (Index h = 0; h < 2; ++h) {
    for (Index j = 0; j < 6; ++j) turned(j, h, 0) = mass(0, h, j);
  }
  const TensorView<const float, 3> view(turned.data(), {1, 2, 6}, {1, 1, 2});
  EXPECT_EQ(render_inspection_json(inspect_heads<float>(view, 10)),
            render_inspection_json(inspect_heads<float>(mass.view(), 10)));
}

TEST(Inspection, TextBeginsWithTheFinding) {
  const Tensor<double, 3> mass = two_heads<double>();
  EXPECT_EQ(render_inspection_text(inspect_heads<double>(mass.view(), 10)),
            "Head 1 gives 1.0000 of its attention to key 3, the largest share of any key in\n"
            "any head; uniform over the visible keys of each query: 0.1667.\n"
            "\n"
            "head    key 0   heavy hitters: key and share of the attention\n"
            "   0   0.1500   1 0.4000   4 0.4000   0 0.1500   3 0.0500\n"
            "   1        0   3 1.0000\n");
}

TEST(Inspection, TextFitsItsWidth) {
  Tensor<float, 3> mass({2, 3, 400});
  for (Index b = 0; b < 2; ++b) {
    for (Index h = 0; h < 3; ++h) {
      for (Index j = 0; j < 400; ++j) mass(b, h, j) = static_cast<float>(1.0 / static_cast<double>(j + 7 * h + 1));
    }
  }
  const Inspection made = inspect_heads<float>(mass.view(), 100000, {.top = 20, .track_keys = {0, 399}});
  for (const int width : {60, 80, 200}) {
    const std::string text = render_inspection_text(made, {.width = width});
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      EXPECT_LE(end - at, static_cast<std::size_t>(width)) << text;
      at = end + 1;
    }
    EXPECT_NE(text.find("Batch 0, head 0 gives 0.000010 of its"), std::string::npos) << text;
    EXPECT_NE(text.find("batch   head     key 0   key 399"), std::string::npos) << text;
    // Small shares show two digits of the head's largest.
    EXPECT_NE(text.find("0 0.0000013   1 0.0000011"), std::string::npos) << text;
  }
}

TEST(Inspection, ReportsHeadsWithoutAttentionAndNan) {
  Tensor<double, 3> mass({1, 2, 3});
  EXPECT_EQ(render_inspection_text(inspect_heads<double>(mass.view(), 4)),
            "No query has a visible key, or no heavy hitters were requested.\n\n"
            "head   key 0   heavy hitters: key and share of the attention\n"
            "   0       0   none\n"
            "   1       0   none\n");
  mass(0, 1, 2) = kNan;
  mass(0, 1, 1) = 1;
  const Inspection made = inspect_heads<double>(mass.view(), 4);
  EXPECT_EQ(keys_of(made.heads[1]), (std::vector<Index>{2, 1}));
  EXPECT_TRUE(render_inspection_text(made).starts_with("Head 1 has weights that are nan.\n"));
  EXPECT_EQ(read_json(render_inspection_json(made), "made").find("heads")->items()[1].find("mass")->items()[0].text(),
            "nan");
}

TEST(Inspection, JsonPrintsNumbersInTheirType) {
  Tensor<float, 3> mass({1, 1, 2});
  mass(0, 0, 1) = 0.1F;
  const std::string json = render_inspection_json(inspect_heads<float>(mass.view(), 1, {.track_keys = {1}}));
  EXPECT_NE(json.find("\"mass\": [0.1]"), std::string::npos) << json;
  const JsonValue data = read_json(json, "json");
  EXPECT_EQ(data.find("queries")->number(), 1);
  EXPECT_EQ(data.find("tracked_keys")->numbers().at(0), 1);
  EXPECT_EQ(data.find("heads")->items()[0].find("heavy_hitters")->numbers().at(0), 1);
}

TEST(Inspection, ShowsTheMeansOfHeads) {
  const Tensor<double, 3> mass = two_heads<double>();
  Tensor<double, 2> entropy({1, 2}), largest({1, 2}), distance({1, 2});
  entropy(0, 0) = 1.25;
  largest(0, 1) = 1;
  distance(0, 1) = 812.34;
  AttentionStatistics statistics;
  statistics.head_entropy = entropy.view();
  statistics.head_largest_weight = largest.view();
  statistics.head_mean_distance = distance.view();
  const Inspection made = inspect_heads<double>(mass.view(), 10, {}, statistics);
  const std::string text = render_inspection_text(made, {.one_line = true});
  EXPECT_TRUE(
      text.ends_with("head    key 0   entropy   largest   distance   heavy hitters\n"
                     "   0   0.1500      1.25         0          0   1 0.4000   4 0.4000   0 0.1500\n"
                     "   1        0         0    1.0000      812.3   3 1.0000\n"))
      << text;
  const JsonValue heads = *read_json(render_inspection_json(made), "made").find("heads");
  EXPECT_EQ(heads.items()[0].find("entropy")->number(), 1.25);
  EXPECT_EQ(heads.items()[1].find("largest_weight")->number(), 1);
  EXPECT_EQ(heads.items()[1].find("mean_distance")->number(), 812.34);
  EXPECT_EQ(read_json(render_inspection_json(inspect_heads<double>(mass.view(), 10)), "made")
                .find("heads")
                ->items()[0]
                .find("entropy"),
            nullptr);
}

TEST(Inspection, RejectsInvalidArguments) {
  const Tensor<double, 3> mass({1, 1, 3});
  const auto message = [&](Index queries, const InspectionOptions& options) {
    return rejection<std::invalid_argument>([&] { inspect_heads<double>(mass.view(), queries, options); });
  };
  EXPECT_EQ(message(0, {}), "inspect_heads: num_queries is 0; expected 1 or more");
  EXPECT_EQ(message(1, {.top = -1}), "inspect_heads: top is -1; expected 0 or more");
  Tensor<double, 2> other({1, 2});
  AttentionStatistics statistics;
  statistics.head_entropy = other.view();
  EXPECT_EQ(rejection<std::invalid_argument>([&] { inspect_heads<double>(mass.view(), 1, {}, statistics); }),
            "inspect_heads: statistics have shape (1, 2); expected (1, 1)");
  EXPECT_EQ(message(1, {.track_keys = {0, 3}}), "inspect_heads: track_keys names key 3; expected keys from 0 to 2");
}

}  // namespace
}  // namespace regard::inspection_report_test
