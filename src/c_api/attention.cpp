// SPDX-License-Identifier: Apache-2.0
//
// The attention operators for C. Each function converts its descriptors to views and its structs to options, calls the
// C++ operator of the same name, and copies a requested fingerprint to the caller.
// Read next: descriptors.h, src/attention/arguments.cpp.
#include <vector>

#include "descriptors.h"
#include "regard/attention_backward.h"
#include "regard/attention_statistics.h"
#include "tensor/element_types.h"

using namespace regard;
using namespace regard::internal;

namespace {

AttentionFingerprint fingerprint_of(const regard_attention_saved& saved) {
  AttentionFingerprint fingerprint;
  if (saved.fingerprint != nullptr) std::copy_n(saved.fingerprint, fingerprint.words.size(), fingerprint.words.begin());
  return fingerprint;
}

}  // namespace

int32_t regard_attention_forward(const regard_input* query, const regard_input* key, const regard_input* value,
                                 const regard_attention_outputs* outputs, const regard_attention_options* options,
                                 const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "attention_forward";
    const auto q = required<InputView<4>>(name, "query", query);
    with_outputs(name, outputs, [&](const AttentionOutputs& views) {
      run(name, runtime, [&](const Runtime& cpp_runtime) {
        attention_forward(q, required<InputView<4>>(name, "key", key), required<InputView<4>>(name, "value", value),
                          views, options_of(name, options), cpp_runtime);
      });
    });
  });
}

int32_t regard_attention_with_statistics(const regard_input* query, const regard_input* key, const regard_input* value,
                                         const regard_attention_outputs* outputs,
                                         const regard_attention_statistics* statistics,
                                         const regard_attention_options* options, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "attention_with_statistics";
    const auto q = required<InputView<4>>(name, "query", query);
    const regard_attention_statistics s = read_struct(name, "statistics", statistics);
    if (s.chosen_origin != REGARD_FROM_KEY_ZERO && s.chosen_origin != REGARD_FROM_POSITION)
      reject(name, "chosen_origin is " + std::to_string(s.chosen_origin) + "; expected 0 or 1");
    const AttentionStatistics asked{
        .chosen_keys = view_of<InputView<1>>(name, "chosen_keys", s.chosen_keys),
        .chosen_ranges = view_of<InputView<3>>(name, "chosen_ranges", s.chosen_ranges),
        .chosen_origin = s.chosen_origin == REGARD_FROM_POSITION ? ChosenOrigin::position : ChosenOrigin::key_zero,
        .top_keys = view_of<OutputView<4>>(name, "top_keys", s.top_keys),
        .top_weights = view_of<OutputView<4>>(name, "top_weights", s.top_weights),
        .entropy = view_of<OutputView<3>>(name, "entropy", s.entropy),
        .largest_weight = view_of<OutputView<3>>(name, "largest_weight", s.largest_weight),
        .chosen_weight = view_of<OutputView<3>>(name, "chosen_weight", s.chosen_weight),
        .mean_distance = view_of<OutputView<3>>(name, "mean_distance", s.mean_distance),
        .head_entropy = view_of<OutputView<2>>(name, "head_entropy", s.head_entropy),
        .head_largest_weight = view_of<OutputView<2>>(name, "head_largest_weight", s.head_largest_weight),
        .head_chosen_weight = view_of<OutputView<2>>(name, "head_chosen_weight", s.head_chosen_weight),
        .head_mean_distance = view_of<OutputView<2>>(name, "head_mean_distance", s.head_mean_distance)};
    with_outputs(name, outputs, [&](const AttentionOutputs& views) {
      run(name, runtime, [&](const Runtime& cpp_runtime) {
        attention_with_statistics(q, required<InputView<4>>(name, "key", key),
                                  required<InputView<4>>(name, "value", value), views, asked, options_of(name, options),
                                  cpp_runtime);
      });
    });
  });
}

int32_t regard_attention_backward(const regard_input* query, const regard_input* key, const regard_input* value,
                                  const regard_attention_saved* saved, const regard_attention_gradients* gradients,
                                  const regard_attention_options* options, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "attention_backward";
    const auto q = required<InputView<4>>(name, "query", query);
    const regard_attention_saved s = read_struct(name, "saved", saved);
    const regard_attention_gradients g = read_struct(name, "gradients", gradients);
    check_accumulate(name, g.accumulate,
                     REGARD_GRAD_QUERY | REGARD_GRAD_KEY | REGARD_GRAD_VALUE | REGARD_GRAD_BIAS | REGARD_GRAD_SINKS);
    const AttentionForwardState given{.context = view_of<InputView<4>>(name, "context", s.context),
                                      .row_max = view_of<InputView<3>>(name, "row_max", s.row_max),
                                      .row_sum = view_of<InputView<3>>(name, "row_sum", s.row_sum),
                                      .grad_context = view_of<InputView<4>>(name, "grad_context", s.grad_context),
                                      .grad_lse = view_of<InputView<3>>(name, "grad_lse", s.grad_lse),
                                      .fingerprint = fingerprint_of(s)};
    const AttentionGradients views{.grad_query = view_of<OutputView<4>>(name, "grad_query", g.grad_query),
                                   .grad_key = view_of<OutputView<4>>(name, "grad_key", g.grad_key),
                                   .grad_value = view_of<OutputView<4>>(name, "grad_value", g.grad_value),
                                   .grad_bias = view_of<OutputView<4>>(name, "grad_bias", g.grad_bias),
                                   .grad_sinks = view_of<OutputView<1>>(name, "grad_sinks", g.grad_sinks),
                                   .accumulate = {.grad_query = (g.accumulate & REGARD_GRAD_QUERY) != 0,
                                                  .grad_key = (g.accumulate & REGARD_GRAD_KEY) != 0,
                                                  .grad_value = (g.accumulate & REGARD_GRAD_VALUE) != 0,
                                                  .grad_bias = (g.accumulate & REGARD_GRAD_BIAS) != 0,
                                                  .grad_sinks = (g.accumulate & REGARD_GRAD_SINKS) != 0}};
    run(name, runtime, [&](const Runtime& cpp_runtime) {
      attention_backward(q, required<InputView<4>>(name, "key", key), required<InputView<4>>(name, "value", value),
                         given, views, options_of(name, options), cpp_runtime);
    });
  });
}

int32_t regard_attention_columns(const regard_input* query, const regard_input* key,
                                 const regard_columns_request* request, const regard_columns_outputs* outputs,
                                 const regard_attention_options* options, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "attention_columns";
    const auto q = required<InputView<4>>(name, "query", query);
    const regard_columns_request r = read_struct(name, "request", request);
    const regard_columns_outputs o = read_struct(name, "outputs", outputs);
    if (r.cells != REGARD_MEANS && r.cells != REGARD_SUMS)
      reject(name, "cells is " + std::to_string(r.cells) + "; expected 0 (means) or 1 (sums)");
    const ColumnsRequest asked{.row_max = view_of<InputView<3>>(name, "row_max", r.row_max),
                               .row_sum = view_of<InputView<3>>(name, "row_sum", r.row_sum),
                               .cells = r.cells == REGARD_SUMS ? MapCells::sums : MapCells::means};
    const AttentionColumns views{.key_mass = view_of<OutputView<3>>(name, "key_mass", o.key_mass),
                                 .pooled_map = view_of<OutputView<4>>(name, "pooled_map", o.pooled_map)};
    run(name, runtime, [&](const Runtime& cpp_runtime) {
      attention_columns(q, required<InputView<4>>(name, "key", key), asked, views, options_of(name, options),
                        cpp_runtime);
    });
  });
}

int32_t regard_attention_weights(const regard_input* query, const regard_input* key,
                                 const regard_weights_request* request, const regard_output* output,
                                 const regard_attention_options* options, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "attention_weights";
    const auto q = required<InputView<4>>(name, "query", query);
    const regard_weights_request r = read_struct(name, "request", request);
    if (r.kind != REGARD_WEIGHTS && r.kind != REGARD_SCORES)
      reject(name, "kind is " + std::to_string(r.kind) + "; expected 0 (weights) or 1 (scores)");
    const auto pairs = typed_view<Index, 2>(name, "rows", &r.rows);
    if (!pairs.absent() && pairs.shape[1] != 2)
      reject(name, "rows has shape " + shape_text(pairs.shape) + "; expected (n, 2)");
    std::vector<RowRange> rows(static_cast<std::size_t>(pairs.shape[0]));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i].begin = internal::read_element(pairs.pointer(static_cast<Index>(i), 0));
      rows[i].end = internal::read_element(pairs.pointer(static_cast<Index>(i), 1));
    }
    const WeightsRequest views{.row_max = view_of<InputView<3>>(name, "row_max", r.row_max),
                               .row_sum = view_of<InputView<3>>(name, "row_sum", r.row_sum),
                               .rows = rows,
                               .kind = r.kind == REGARD_SCORES ? WeightsKind::scores : WeightsKind::weights};
    run(name, runtime, [&](const Runtime& cpp_runtime) {
      attention_weights(q, required<InputView<4>>(name, "key", key), views,
                        required<OutputView<4>>(name, "output", output), options_of(name, options), cpp_runtime);
    });
  });
}

int64_t regard_attention_num_chunks(int64_t num_keys) { return attention_num_chunks(num_keys); }

int32_t regard_attention_partials(const regard_input* query, const regard_input* key, const regard_input* value,
                                  const regard_partial_outputs* partials, const regard_attention_options* options,
                                  const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "attention_partials";
    const auto q = required<InputView<4>>(name, "query", query);
    const AttentionPartialOutputs views = partials_of(name, partials);
    run(name, runtime, [&](const Runtime& cpp_runtime) {
      attention_partials(q, required<InputView<4>>(name, "key", key), required<InputView<4>>(name, "value", value),
                         views, options_of(name, options), cpp_runtime);
    });
  });
}

int32_t regard_attention_merge(const regard_partial_inputs* partials, const regard_input* sinks,
                               const regard_attention_outputs* outputs, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "attention_merge";
    const regard_partial_inputs p = read_struct(name, "partials", partials);
    const AttentionPartials views{
        .accumulator = required<InputView<5>>(name, "accumulator", &p.accumulator),
        .row_max = view_of<InputView<4>>(name, "row_max", p.row_max),
        .row_sum = view_of<InputView<4>>(name, "row_sum", p.row_sum),
        .scaled_accumulator = view_of<InputView<5>>(name, "scaled_accumulator", p.scaled_accumulator)};
    const auto of_sinks = sinks == nullptr ? InputView<1>() : view_of<InputView<1>>(name, "sinks", *sinks);
    with_outputs(name, outputs, [&](const AttentionOutputs& written) {
      run(name, runtime, [&](const Runtime& cpp_runtime) { attention_merge(views, of_sinks, written, cpp_runtime); });
    });
  });
}

int32_t regard_attention_merge_lse(const regard_input* contexts, const regard_input* lse,
                                   const regard_attention_outputs* outputs, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "attention_merge_lse";
    const auto of_contexts = required<InputView<5>>(name, "contexts", contexts);
    const auto of_lse = required<InputView<4>>(name, "lse", lse);
    with_outputs(name, outputs, [&](const AttentionOutputs& written) {
      run(name, runtime,
          [&](const Runtime& cpp_runtime) { attention_merge_lse(of_contexts, of_lse, written, cpp_runtime); });
    });
  });
}
