// SPDX-License-Identifier: Apache-2.0
/// @file
/// The record of a watched run: its loss, and the attention of each head at each snapshot. From the record,
/// find_events() determines the step at which each head formed.
///
/// @verbatim
///     step     0  1  2  4  8 …  212      235 …     600        snapshot_steps()
///     probe    the same sequences at each snapshot
///     head     weights (L, L)      scores      loss without it  ─▶ find_events() ─▶ "step 212: layer 1, head 0 …"
/// @endverbatim
///
/// Extents: L tokens of the probe, N layers, H query heads. Layers, heads, steps and positions are numbered from 0.
///
/// Read next: src/train/record/record.cpp, regard/explain/training_report.h.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/train/settings.h"

namespace regard::inline v0 {

/// One point on the training curve of a run.
struct CurvePoint {
  Index step;                                 ///< Number of optimizer steps before this one.
  double loss;                                ///< Loss on the batch of this step.
  double gradient_norm;                       ///< Global L2 norm of the gradient, before clipping.
  double learning_rate;                       ///< Learning rate.
  std::optional<double> held_out_loss{};      ///< Loss on held-out examples; absent at steps without evaluation.
  std::optional<double> accuracy{};           ///< Fraction of training targets predicted correctly, at the same steps.
  std::optional<double> held_out_accuracy{};  ///< Fraction of held-out targets predicted correctly, at the same steps.
  std::optional<double> tokens_per_second{};  ///< Training throughput.
};

/// Scores of a head's attention, as means over rows. Rows with a single visible key are excluded, except from
/// `pattern`.
struct HeadScores {
  double pattern = 0;   ///< Mean weight on the expected keys, over the rows with such keys; NaN if there are none.
  double previous = 0;  ///< Mean weight on the previous token.
  double sink = 0;      ///< Mean weight on the first token.
  double entropy = 0;   ///< Mean of each row's entropy divided by its maximum, ln(i + 1) for row i; 1 if uniform.
};

/// Computes the scores of causal weights.
///
/// @param weights  The lower triangle, row by row: L (L + 1) / 2 weights.
/// @param wanted   For each of the L rows, the keys of the pattern, or an empty list if the pattern is not defined for
///                 the row.
/// @return The scores.
/// @throws InvalidArgument  if the number of weights is not L (L + 1) / 2, or if an expected key is not visible.
REGARD_EXPORT HeadScores head_scores(std::span<const float> weights, const std::vector<std::vector<Index>>& wanted);

/// Computes the scores of uniform weights over the visible keys, for comparison with other scores.
///
/// @param wanted  As for head_scores().
/// @return The scores; `entropy` is 1.
/// @throws InvalidArgument  as head_scores() does.
///
/// @par Example
/// @code{.cpp}
/// const double excess = head_scores(weights, wanted).pattern - uniform_scores(wanted).pattern;
/// @endcode
REGARD_EXPORT HeadScores uniform_scores(const std::vector<std::vector<Index>>& wanted);

/// The sequences on which heads are observed. Maps show the first sequence; scores and losses are means over all
/// sequences.
struct TrainingProbe {
  std::vector<std::string> tokens;                  ///< Text of each token of the first sequence, (L).
  std::vector<std::optional<std::string>> targets;  ///< Text of the tokens to predict, (L); absent if not counted.
  std::vector<std::vector<Index>> wanted;  ///< Keys of the pattern for each row, (L); all empty if there is no pattern.
  HeadScores uniform;                      ///< Scores of uniform weights.
  Index num_sequences = 1;                 ///< Number of sequences.
  Index query = -1;                        ///< Row whose gradient is stored; −1 if there is none.
};

/// A head at a snapshot.
struct ProbedHead {
  std::vector<float> weights;  ///< Softmax weights of the first sequence, the lower triangle row by row.
  /// dP of row TrainingProbe::query: the gradient of the loss with respect to each visible weight, (query + 1).
  std::vector<float> grad_weights;
  /// dS of that row: the gradient with respect to each score, `P ∘ (dP − Σ P dP)`, (query + 1).
  std::vector<float> grad_scores;
  HeadScores scores;    ///< Scores of the head.
  double ablation = 0;  ///< Loss on the probe with the head's context replaced by zeros, minus TrainingSnapshot::loss.
};

/// All heads at a step.
struct TrainingSnapshot {
  Index step;                     ///< Number of optimizer steps before the snapshot.
  double loss;                    ///< Loss on the probe.
  std::vector<ProbedHead> heads;  ///< All heads, each at index layer · H + head.
};

/// The record of a watched run.
struct TrainingRecord {
  std::string command;        ///< The command line as typed.
  std::string name;           ///< Name of the task, or of the text file.
  bool is_text = false;       ///< Whether the run is trained on a text rather than on a task.
  std::string shows;          ///< What the task shows, in one sentence; may be empty.
  std::string pattern;        ///< A short description of the pattern: "the token after the earlier copy"; may be empty.
  double formed_score = 0.5;  ///< Score at which the task's pattern is considered formed.
  TrainingSettings settings;  ///< The settings.
  TrainingProbe probe;        ///< The probe.
  std::vector<CurvePoint> curve;            ///< The curve, sorted by step.
  std::vector<TrainingSnapshot> snapshots;  ///< The snapshots, sorted by step.
};

/// Returns whether the probe of a record has a pattern, that is, whether any row has an expected key.
///
/// @param record  The record.
/// @return True if it has a pattern.
REGARD_EXPORT bool has_pattern(const TrainingRecord& record);

/// Checks the extents of a record.
///
/// @param record  The record.
/// @throws InvalidArgument  "training record: …" if the probe is empty, if the length of a list differs from the extent
///                          stated in its comment, or if steps are not ascending.
REGARD_EXPORT void check_record(const TrainingRecord& record);

/// Chooses the steps of the snapshots of a run.
///
/// @code{.unparsed}
/// 0, 1, 2, 4, 8, … below n;   n, 2 n, 3 n, …;   steps          n: the smallest value that gives at most max steps
/// @endcode
///
/// @param steps  Number of optimizer steps of the run, ≥ 0.
/// @param max    Maximum number of snapshots, ≥ 2.
/// @return The steps in ascending order. The first is 0 and the last is `steps`.
/// @throws InvalidArgument  if an argument is out of range.
///
/// @par Example
/// @code{.cpp}
/// snapshot_steps(10, 8);  // 0, 1, 2, 4, 6, 8, 10
/// @endcode
REGARD_EXPORT std::vector<Index> snapshot_steps(Index steps, Index max = 60);

/// The keys that a head started to attend to.
enum class HeadEventKind {
  previous_token,  ///< The previous token.
  pattern          ///< The expected keys of the task.
};

/// The moment at which a head formed.
struct HeadEvent {
  HeadEventKind kind;   ///< The keys that the head attends to.
  Index layer;          ///< Layer index.
  Index head;           ///< Head index.
  Index snapshot;       ///< Index of the snapshot.
  Index step;           ///< Step of the snapshot.
  double score;         ///< Score of the head at this snapshot.
  double peak;          ///< Largest score of the head from this snapshot onwards.
  double uniform;       ///< Score of uniform weights.
  Index from_step;      ///< Step of the preceding snapshot, or of this snapshot if it is the first.
  Index to_step;        ///< Step of the second snapshot after this one, or of the last snapshot.
  double loss_fall;     ///< Relative decrease in the probe's loss from from_step to to_step; negative for an increase.
  Index ablation_step;  ///< Step of the first later snapshot that meets the ablation criterion.
  double ablation;      ///< ProbedHead::ablation at that snapshot.
};

/// Finds the moments at which heads formed.
///
/// A head has formed if it meets both of these criteria:
///
/// - **Score:** at two consecutive snapshots, its score exceeds a threshold: max(½, formed_score) for the
///   pattern, ½ for the previous token.
/// - **Ablation:** at the second of them, or at a later one while the score stays above the threshold, ablating the
///   head raises the probe's loss by more than a tenth of the decrease in loss since the first snapshot. By then, the
///   loss must have fallen by more than 5 %: before that, nothing has been learned that a head could have contributed
///   to.
///
/// The event is assigned to the first snapshot above the threshold. A previous-token head is useful before its
/// attention is sharp, so its event is assigned to the first snapshot from which its score stays above max(0.2, twice
/// the uniform score).
///
/// If the pattern itself is the previous token, only events of kind `pattern` are returned.
///
/// @param record  The record.
/// @return The first event of each head and kind, sorted by step, then by kind (previous_token first), then by layer
///         and head.
/// @throws InvalidArgument  as check_record() does.
REGARD_EXPORT std::vector<HeadEvent> find_events(const TrainingRecord& record);

/// Describes an event in one sentence.
///
/// @param record  The record.
/// @param event   One of its events.
/// @return For example "step 212: layer 1, head 0 attends to the token after the earlier copy: score 0.51, uniform
///         0.03; the loss fell 41 % between steps 190 and 260". Text from the record is not escaped.
///
/// @par Example
/// @code{.cpp}
/// for (const HeadEvent& event : find_events(record)) std::puts(event_text(record, event).c_str());
/// @endcode
REGARD_EXPORT std::string event_text(const TrainingRecord& record, const HeadEvent& event);

/// Options for training_record_json().
struct TrainingJsonOptions {
  bool curve = true;  ///< Whether to include the curve.
  bool heads = true;  ///< Whether to include the scores, weights and gradients of heads.
};
/// Writes a record as JSON with `"schema": "regard/1"`, including its events.
///
/// Every number reads back as the same value: weights and gradients as float, all others as double.
///
/// @param record   The record.
/// @param options  Parts to include.
/// @return The JSON text.
/// @throws InvalidArgument  as check_record() does.
///
/// @par Example
/// @code{.cpp}
/// write_file("record.json", training_record_json(record, {.heads = false}));
/// @endcode
REGARD_EXPORT std::string training_record_json(const TrainingRecord& record, const TrainingJsonOptions& options = {});

/// Describes settings in a few lines: the model, the batches, the optimizer, the seed and the arithmetic.
///
/// @param settings  The settings.
/// @return One string per line.
REGARD_EXPORT std::vector<std::string> settings_summary(const TrainingSettings& settings);

}  // namespace regard::inline v0
