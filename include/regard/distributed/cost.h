// SPDX-License-Identifier: Apache-2.0
/// @file
/// Predicts the time of an attention call over several ranks from its plan and the rates of the nodes and the network.
///
/// @verbatim
///     transfer    in(0)  in(1)         in(2) + out(0)   out(1)         out(2)        in(h): query, key and value
///     compute            head 0        head 1           head 2                       out(h): context
///                ├──────┼─────────────┼────────────────┼──────────────┼──────┤       of key/value head h
/// @endverbatim
///
/// This is pure arithmetic, as in shards.h: nothing is measured here. Derivation: docs/derivations/ranks.md, section
/// "Time". The model is the latency-bandwidth model (Hockney 1994), without contention between the links of different
/// nodes.
///
/// Read next: src/distributed/plan/cost.cpp.
#pragma once

#include "regard/distributed/shards.h"

namespace regard::inline v0 {

/// Rates of a node and of its network link. Each rank runs on its own node.
struct NodeRates {
  double flops = 0;            ///< Floating-point operations per second of attention, above 0.
  double read_bytes = 0;       ///< Bytes per second at which keys and values are read from memory, above 0.
  double link_bytes = 0;       ///< Bytes per second that a node can send and, at the same time, receive, above 0.
  double message_latency = 0;  ///< Seconds per message, at least 0.
};

/// The predicted time of a plan.
struct PredictedTime {
  double seconds = 0;   ///< Time from the start until the slowest rank has finished.
  double compute = 0;   ///< Seconds that the slowest rank spends computing.
  double transfer = 0;  ///< Seconds that its transfers take; computation hides all but `seconds − compute` of them.
  Index slowest = 0;    ///< The slowest rank.
};

/// Predicts the time that the ranks need for one attention call.
///
/// @code{.unparsed}
/// heads, rows   in(0) + Σ_h max(compute(h), in(h + 1) + out(h − 1)) + out(last)       of the slowest rank
/// keys          query + compute + partial results + merge + context                  each term of its slowest rank
/// transfer      message_latency · messages + bytes / link_bytes       sent or received, whichever is larger
/// compute(h)    max(2 · pairs · (D + Dv) / flops, bytes of keys and values / read_bytes)
/// @endcode
/// With `heads` and `rows`, a rank processes one key/value head at a time: while it computes one, the next one is
/// received and the context of the previous one is sent.
///
/// @param problem  The attention call.
/// @param plan     Plan of the call.
/// @param rates    Rates of each node.
/// @return The predicted time. For a plan with one rank, this is the time on one machine that holds all rows and keys.
/// @throws InvalidArgument  if a rate is out of range or not finite, or if the plan and the problem have different
///                          numbers of ranks.
///
/// @par Example
/// @code{.cpp}
/// const NodeRates rates{.flops = 1e12, .read_bytes = 50e9, .link_bytes = 1.25e9, .message_latency = 50e-6};
/// const double seconds = predict_time(problem, choose_plan(problem), rates).seconds;
/// @endcode
REGARD_EXPORT PredictedTime predict_time(const DistributedProblem& problem, const DistributedPlan& plan,
                                         const NodeRates& rates);

}  // namespace regard::inline v0
