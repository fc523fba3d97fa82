// SPDX-License-Identifier: Apache-2.0
/// @file
/// Renders the record of a watched run (regard/train/record.h): as text for a terminal, as an image, and as an HTML
/// page for browsing the snapshots.
///
/// @verbatim
///     TrainingRecord ── training_text() ──▶ loss curve, best heads, events: at most 30 lines
///                    ── training_svg()  ──▶ loss and scores as SVG
///                    ── training_html() ──▶ one HTML file, which makes no network requests
/// @endverbatim
///
/// Read next: docs/reference/page.md, src/explain/training/training_text.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "regard/train/record.h"

namespace regard::inline v0 {

/// States the findings of a run in sentences: the heads that formed, the step at which each one formed, the heads that
/// formed before it, and the decrease in the loss.
///
/// A head counts as formed only if find_events() returns an event for it. If there are no events, the findings state
/// the head with the highest score. Text from the record is not escaped.
///
/// @param record  The record.
/// @return The sentences; the first one can serve as a title.
/// @throws InvalidArgument  as check_record() does.
REGARD_EXPORT std::vector<std::string> training_findings(const TrainingRecord& record);

/// Options for training_text().
struct TrainingTextOptions {
  int width = 80;       ///< Width of the terminal in columns; values below 40 are treated as 40.
  bool color = false;   ///< Whether to use colors.
  bool unicode = true;  ///< Whether to use non-ASCII characters.
};
/// Maximum number of lines of training_text() at 60 or more columns.
inline constexpr int kMaxTrainingTextLines = 30;
/// Renders a record as text: the findings, the loss, the best head of a few snapshots, and the events.
///
/// @param record   The record.
/// @param options  Formatting options.
/// @return The text, with at most kMaxTrainingTextLines lines unless `width` is below 60.
/// @throws InvalidArgument  as check_record() does.
REGARD_EXPORT std::string training_text(const TrainingRecord& record, const TrainingTextOptions& options = {});

/// Draws a record as an SVG image: the loss and, below it, the score of each head, as functions of the step on a
/// logarithmic axis.
///
/// @param record  The record.
/// @return The SVG text.
/// @throws InvalidArgument  as check_record() does.
REGARD_EXPORT std::string training_svg(const TrainingRecord& record);

/// Maximum size of training_html(), in bytes.
inline constexpr std::size_t kMaxTrainingHtmlBytes = 4'000'000;

/// Renders a record as an HTML page.
///
/// The page contains all scores and losses, and the weights (as bytes) and gradients of the snapshots. If the page
/// would exceed kMaxTrainingHtmlBytes, it contains the weights and gradients of fewer snapshots, including the first,
/// the last and those of events, and lists these snapshots. If fewer than two snapshots fit, it contains no weights or
/// gradients. The curves have at most 600 points.
///
/// @param record  The record.
/// @return The HTML text.
/// @throws InvalidArgument  as check_record() does, or if scores and curves alone exceed kMaxTrainingHtmlBytes.
///
/// @par Example
/// @code{.cpp}
/// write_file("head.html", training_html(record));
/// @endcode
REGARD_EXPORT std::string training_html(const TrainingRecord& record);

}  // namespace regard::inline v0
