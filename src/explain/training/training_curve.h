// SPDX-License-Identifier: Apache-2.0
//
// The time axis of a run, and its curve in few points.
//
//     0    10   20    50   100    200  500       step s is at ln(1 + s / c) / ln(1 + last / c), c = max(1, last / 60):
//                                                0 has a place, and the first steps do not take half of the axis
//
// Read next: training_curve.cpp, training_svg.cpp, web/training_curves_figure.js.
#pragma once

#include <vector>

#include "regard/train/record.h"

namespace regard::inline v0 {

// The largest step of a record; at least 1.
Index last_step(const TrainingRecord& record);

// The position of a step on the axis, from 0 to 1.
double step_position(Index step, Index last);

// 0, 1, 2, 5, 10, 20, 50, … and `last`, each at least `gap` of the axis from the next.
std::vector<Index> step_ticks(Index last, double gap);

// 0 and the multiples of 1, 2 or 5 times a power of ten up to `most`, which is above 0: three to six numbers.
std::vector<double> round_ticks(double most);

// The curve in at most `max` points, each the mean over equal parts of the axis. A part with a loss that is not finite
// has such a mean. `step` is that of the middle.
std::vector<CurvePoint> thinned_curve(const std::vector<CurvePoint>& curve, Index max);

// `max` snapshots, or all if there are no more: the first, the last, those of events, and of the others those farthest
// from the ones already chosen. Ascending.
std::vector<Index> spread_snapshots(const TrainingRecord& record, const std::vector<HeadEvent>& events, Index max);

// A score that is compared between heads: that of the pattern, or of the previous token if the record has no pattern.
double compared_score(const TrainingRecord& record, const HeadScores& scores);

// The head with the largest score of a snapshot; the first one of equal ones.
std::size_t best_head(const TrainingRecord& record, const TrainingSnapshot& snapshot);

}  // namespace regard::inline v0
