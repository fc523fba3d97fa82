// SPDX-License-Identifier: Apache-2.0
//
// Attention for Python: attention_forward, attention_weights, attention_with_statistics, attention_columns,
// attention_partials, attention_merge, attention_merge_lse. The functions that users call are in python/regard/.
//
//     borrow arrays ── take options ── allocate results that were not given ── run() ── return results
//
// Read next: options.h, run.h, regard/attention.h.
#include <algorithm>
#include <deque>
#include <limits>

#include "module.h"
#include "options.h"
#include "outputs.h"
#include "ranks.h"
#include "regard/attention_statistics.h"
#include "regard/distributed/attention.h"
#include "run.h"

namespace regard::python {
namespace {

// The number of operations, 2 · (D + Dv) for each pair of a query and a key, as if all keys were visible.
double operations_of(const Array& query, const Array& key, const Array* value) {
  if (query.rank() != 4 || key.rank() != 4) return 0;
  const auto n = [](Index extent) { return static_cast<double>(extent); };
  const double columns = value != nullptr && value->rank() == 4 ? n(value->extent(3)) : 0;
  return 2 * n(query.extent(0)) * n(query.extent(1)) * n(query.extent(2)) * n(key.extent(2)) *
         (n(query.extent(3)) + columns);
}

// Calls `call` with a value of the given type, which is the type of the context or of query.
template <class Call>
auto with_context_type(const char* name, NumberType type, const Call& call) {
  if (type == number_type<float>()) return call(float{});
  if (type == number_type<double>()) return call(double{});
  if (type == number_type<bfloat16>()) return call(bfloat16{});
  if (type == number_type<float16>()) return call(float16{});
  reject(name, "query has type " + type_text(type) + "; expected float32, float64, bfloat16 or float16");
}

template <class Call>
auto with_compute_type(const Array& query, const Call& call) {
  if (query.type() == number_type<double>()) return call(double{});
  return call(float{});
}

RowRange row_range(const char* operator_name, const char* name, nb::handle given) {
  if (!PySequence_Check(given.ptr())) reject_type(operator_name, name, given, "(begin, end)");
  const std::vector<Index> pair = index_list(operator_name, name, given);
  if (pair.size() != 2) {
    reject(operator_name,
           std::string(name) + " has " + std::to_string(pair.size()) + " numbers; expected (begin, end)");
  }
  return {pair[0], pair[1]};
}

std::vector<RowRange> row_ranges(const char* operator_name, const char* name, nb::handle given) {
  if (PyUnicode_Check(given.ptr()) || !PySequence_Check(given.ptr())) {
    reject_type(operator_name, name, given, "a sequence of pairs (begin, end)");
  }
  std::vector<RowRange> ranges;
  for (const nb::handle pair : nb::iter(given)) {
    std::string item_name = name;
    item_name += '[';
    item_name += std::to_string(ranges.size());
    item_name += ']';
    ranges.push_back(row_range(operator_name, item_name.c_str(), pair));
  }
  // An empty list would mean all rows.
  if (ranges.empty()) reject(operator_name, std::string(name) + " has no pair; expected at least one (begin, end)");
  return ranges;
}

// The number of rows or keys in a range; 0 if the operator will reject the range.
Index length_of(const RowRange& range, Index extent) {
  return range.begin < 0 || range.end > extent || range.begin > range.end ? 0 : range.end - range.begin;
}

nb::object attention_forward_of(nb::handle query_object, nb::handle key_object, nb::handle value_object,
                                nb::kwargs kwargs) {
  constexpr const char* kName = "attention_forward";
  Array query(kName, "query", query_object);
  Array key(kName, "key", key_object);
  Array value(kName, "value", value_object);
  const int missing_axes = complete_to_rank_4(kName, query, key, &value);
  Keywords keywords(kName, std::move(kwargs));
  ForwardOutputs outputs(keywords, query_object, query, true, missing_axes);
  if (keywords.take_bool("return_fingerprint")) outputs.add_fingerprint();
  return with_context_type(kName, outputs.context_type(), [&]<class T>(T) {
    using Compute = ComputeType<T>;
    Options<Compute> options(keywords, query);
    const int num_threads = keywords.take_int("num_threads", 0);
    keywords.finish();
    const auto q = query.input<Compute, 4>(kName, "query");
    const auto k = key.input<Compute, 4>(kName, "key");
    const auto v = value.input<Compute, 4>(kName, "value");
    RankGroup* const group = RankGroup::current();
    const bool needs_total = group != nullptr && outputs.allocates_weights();
    outputs.allocate(q.shape, needs_total ? group->total("attention_forward with weights", k.shape[2]) : k.shape[2],
                     v.shape[3]);
    const AttentionOutputs views = outputs.views<T>();
    run_call(
        operations_of(query, key, &value), num_threads,
        [&](const Runtime& runtime) { attention_forward(q, k, v, views, options.options, runtime); },
        [&](Ranks& ranks, const Runtime& runtime) {
          attention_forward(q, k, v, views, options.options, ranks, runtime);
        });
    return outputs.hand_out();
  });
}

nb::object attention_weights_of(nb::handle query_object, nb::handle key_object, nb::kwargs kwargs) {
  constexpr const char* kName = "attention_weights";
  Array query(kName, "query", query_object);
  Array key(kName, "key", key_object);
  const int missing_axes = complete_to_rank_4(kName, query, key, nullptr);
  Keywords keywords(kName, std::move(kwargs));
  return with_compute_type(query, [&]<class T>(T) {
    Outputs outputs(kName, query_object, missing_axes);
    Array row_max, row_sum;
    if (const nb::handle given = keywords.take("row_max")) row_max.borrow(kName, "row_max", given, Access::read);
    if (const nb::handle given = keywords.take("row_sum")) row_sum.borrow(kName, "row_sum", given, Access::read);
    row_max.complete(3, missing_axes);
    row_sum.complete(3, missing_axes);
    outputs.take(keywords, "out", nullptr);
    std::vector<RowRange> rows;
    if (const nb::handle given = keywords.take("rows")) rows = row_ranges(kName, "rows", given);
    WeightsRequest request;
    if (const nb::handle given = keywords.take("keys")) request.keys = row_range(kName, "keys", given);
    if (const nb::handle given = keywords.take("kind")) {
      const std::string kind = text_of(kName, "kind", given);
      if (kind != "weights" && kind != "scores") reject(kName, "kind is '" + kind + "'; expected weights or scores");
      if (kind == "scores") request.kind = WeightsKind::scores;
    }
    Options<T> options(keywords, query);
    const int num_threads = keywords.take_int("num_threads", 0);
    keywords.finish();
    const auto q = query.input<T, 4>(kName, "query");
    const auto k = key.input<T, 4>(kName, "key");
    request.row_max = row_max.view<const T, 3>(kName, "row_max");
    request.row_sum = row_sum.view<const T, 3>(kName, "row_sum");
    request.rows = rows;
    Index num_rows = 0;
    for (const RowRange& range : rows) num_rows += length_of(range, q.shape[2]);
    const Index num_columns = request.keys ? length_of(*request.keys, k.shape[2]) : k.shape[2];
    outputs.allocate(
        "out", number_type<T>(),
        outputs.without_missing_axes({q.shape[0], q.shape[1], rows.empty() ? q.shape[2] : num_rows, num_columns}));
    const auto out = outputs.view<T, 4>("out");
    run(operations_of(query, key, nullptr), num_threads,
        [&](const Runtime& runtime) { attention_weights(q, k, request, out, options.options, runtime); });
    return outputs.hand_out("out");
  });
}

nb::object attention_with_statistics_of(nb::handle query_object, nb::handle key_object, nb::handle value_object,
                                        nb::kwargs kwargs) {
  constexpr const char* kName = "attention_with_statistics";
  Array query(kName, "query", query_object);
  Array key(kName, "key", key_object);
  Array value(kName, "value", value_object);
  const int missing_axes = complete_to_rank_4(kName, query, key, &value);
  Keywords keywords(kName, std::move(kwargs));
  ForwardOutputs forward(keywords, query_object, query, false, missing_axes);
  forward.add_fingerprint();
  return with_context_type(kName, forward.context_type(), [&]<class T>(T) {
    using Compute = ComputeType<T>;
    std::vector<Index> chosen;
    if (const nb::handle given = keywords.take("chosen_keys")) chosen = index_list(kName, "chosen_keys", given);
    Array ranges;
    if (const nb::handle given = keywords.take("chosen_ranges"))
      ranges.borrow(kName, "chosen_ranges", given, Access::read);
    std::array<Index, 2> from_position{};
    const nb::handle offset = keywords.take("chosen_offset");
    if (offset) {
      const Index n = keywords.number<Index>("chosen_offset", offset);
      from_position = {n, n + (n < std::numeric_limits<Index>::max() ? 1 : 0)};
    }
    if (!chosen.empty() + ranges.given() + offset.is_valid() > 1)
      reject(kName,
             "more than one of chosen_keys, chosen_ranges and chosen_offset is given; expected only one of them");
    const int num_top = keywords.take_int("top_keys", 0);
    if (num_top < 0 || num_top > kMaxTopKeys) {
      reject(kName, "top_keys is " + std::to_string(num_top) + "; expected 0 to " + std::to_string(kMaxTopKeys));
    }
    Options<Compute> options(keywords, query);
    const int num_threads = keywords.take_int("num_threads", 0);
    keywords.finish();
    const auto q = query.input<Compute, 4>(kName, "query");
    const auto k = key.input<Compute, 4>(kName, "key");
    const auto v = value.input<Compute, 4>(kName, "value");
    const std::vector<Index> head{q.shape[0], q.shape[1]}, row{q.shape[0], q.shape[1], q.shape[2]};
    const std::vector<Index> top{q.shape[0], q.shape[1], q.shape[2], num_top};
    forward.allocate(q.shape, k.shape[2], v.shape[3]);
    Outputs outputs(kName, query_object, missing_axes);
    AttentionStatistics statistics;
    outputs.add<Compute>("entropy", statistics.entropy, row);
    outputs.add<Compute>("largest_weight", statistics.largest_weight, row);
    outputs.add<Compute>("mean_distance", statistics.mean_distance, row);
    outputs.add<Compute>("head_entropy", statistics.head_entropy, head);
    outputs.add<Compute>("head_largest_weight", statistics.head_largest_weight, head);
    outputs.add<Compute>("head_mean_distance", statistics.head_mean_distance, head);
    if (num_top > 0) {
      outputs.add<Index>("top_keys", statistics.top_keys, top);
      outputs.add<Compute>("top_weights", statistics.top_weights, top);
    }
    if (!chosen.empty() || ranges.given() || offset) {
      statistics.chosen_keys = chosen;
      statistics.chosen_ranges = ranges.broadcast_input<3>(kName, "chosen_ranges");
      if (offset) {
        statistics.chosen_ranges = TensorView<const Index, 3>(from_position.data(), {1, 1, 2});
        statistics.chosen_origin = ChosenOrigin::position;
      }
      outputs.add<Compute>("chosen_weight", statistics.chosen_weight, row);
      outputs.add<Compute>("head_chosen_weight", statistics.head_chosen_weight, head);
    }
    const AttentionOutputs views = forward.views<T>();
    run_call(
        operations_of(query, key, &value), num_threads,
        [&](const Runtime& runtime) {
          attention_with_statistics(q, k, v, views, statistics, options.options, runtime);
        },
        [&](Ranks& ranks, const Runtime& runtime) {
          attention_with_statistics(q, k, v, views, statistics, options.options, ranks, runtime);
        });
    nb::dict named = outputs.hand_out_named();
    named.update(forward.hand_out_named());
    return nb::object(named);
  });
}

nb::object attention_columns_of(nb::handle query_object, nb::handle key_object, nb::handle row_max_object,
                                nb::handle row_sum_object, nb::kwargs kwargs) {
  constexpr const char* kName = "attention_columns";
  Array query(kName, "query", query_object);
  Array key(kName, "key", key_object);
  Array row_max(kName, "row_max", row_max_object);
  Array row_sum(kName, "row_sum", row_sum_object);
  const int missing_axes = complete_to_rank_4(kName, query, key, nullptr);
  row_max.complete(3, missing_axes);
  row_sum.complete(3, missing_axes);
  Keywords keywords(kName, std::move(kwargs));
  return with_compute_type(query, [&]<class T>(T) {
    std::vector<Index> map;
    if (const nb::handle given = keywords.take("pooled_map")) {
      map = index_list(kName, "pooled_map", given);
      if (map.size() != 2) {
        reject(kName, "pooled_map has " + std::to_string(map.size()) + " numbers; expected 2, (rows, columns)");
      }
    }
    ColumnsRequest request;
    if (const nb::handle given = keywords.take("cells")) {
      const std::string cells = text_of(kName, "cells", given);
      if (cells != "means" && cells != "sums") reject(kName, "cells is '" + cells + "'; expected means or sums");
      if (cells == "sums") request.cells = MapCells::sums;
    }
    Options<T> options(keywords, query);
    const int num_threads = keywords.take_int("num_threads", 0);
    keywords.finish();
    const auto q = query.input<T, 4>(kName, "query");
    const auto k = key.input<T, 4>(kName, "key");
    request.row_max = row_max.view<const T, 3>(kName, "row_max");
    request.row_sum = row_sum.view<const T, 3>(kName, "row_sum");
    Outputs outputs(kName, query_object, missing_axes);
    AttentionColumns columns;
    outputs.add<T>("key_mass", columns.key_mass, {q.shape[0], q.shape[1], k.shape[2]});
    if (!map.empty()) {
      Index rows = q.shape[2], keys = k.shape[2];
      if (RankGroup* const group = RankGroup::current()) {
        rows = group->total("attention_columns with a map", rows);
        keys = group->total("attention_columns with a map", keys);
      }
      if (map[0] < 1 || map[0] > rows || map[1] < 1 || map[1] > keys) {
        reject(kName, "pooled_map is " + shape_text(map.data(), 2) + "; expected 1 to " + std::to_string(rows) +
                          " rows and 1 to " + std::to_string(keys) + " columns");
      }
      outputs.add<T>("pooled_map", columns.pooled_map, {q.shape[0], q.shape[1], map[0], map[1]});
    }
    run_call(
        operations_of(query, key, nullptr), num_threads,
        [&](const Runtime& runtime) { attention_columns(q, k, request, columns, options.options, runtime); },
        [&](Ranks& ranks, const Runtime& runtime) {
          attention_columns(q, k, request, columns, options.options, ranks, runtime);
        });
    return nb::object(outputs.hand_out_named());
  });
}

nb::object attention_partials_of(nb::handle query_object, nb::handle key_object, nb::handle value_object,
                                 nb::kwargs kwargs) {
  constexpr const char* kName = "attention_partials";
  const Array query(kName, "query", query_object);
  const Array key(kName, "key", key_object);
  const Array value(kName, "value", value_object);
  Keywords keywords(kName, std::move(kwargs));
  return with_compute_type(query, [&]<class T>(T) {
    Options<T> options(keywords, query);
    const int num_threads = keywords.take_int("num_threads", 0);
    keywords.finish();
    const auto q = query.input<T, 4>(kName, "query");
    const auto k = key.input<T, 4>(kName, "key");
    const auto v = value.input<T, 4>(kName, "value");
    const Index chunks = attention_num_chunks(k.shape[2]);
    const std::vector<Index> row{chunks, q.shape[0], q.shape[1], q.shape[2]};
    const std::vector<Index> context{chunks, q.shape[0], q.shape[1], q.shape[2], v.shape[3]};
    Outputs outputs(kName, query_object);
    AttentionPartialOutputs partials;
    outputs.add<T>("accumulator", partials.accumulator, context);
    outputs.add<T>("row_max", partials.row_max, row);
    outputs.add<T>("row_sum", partials.row_sum, row);
    outputs.add<T>("scaled_accumulator", partials.scaled_accumulator, context);
    run(operations_of(query, key, &value), num_threads,
        [&](const Runtime& runtime) { attention_partials(q, k, v, partials, options.options, runtime); });
    return nb::object(outputs.hand_out_named());
  });
}

nb::object attention_merge_of(nb::handle accumulator_object, nb::handle row_max_object, nb::handle row_sum_object,
                              nb::kwargs kwargs) {
  constexpr const char* kName = "attention_merge";
  const Array accumulator(kName, "accumulator", accumulator_object);
  const Array row_max(kName, "row_max", row_max_object);
  const Array row_sum(kName, "row_sum", row_sum_object);
  Keywords keywords(kName, std::move(kwargs));
  return with_compute_type(accumulator, [&]<class T>(T) {
    Array scaled;
    if (const nb::handle given = keywords.take("scaled_accumulator")) {
      scaled.borrow(kName, "scaled_accumulator", given, Access::read);
    }
    std::vector<T> sinks;
    if (const nb::handle given = keywords.take("sinks")) {
      sinks = number_list<T>(kName, "sinks", given);
      if (sinks.empty() && !accumulator.empty()) reject(kName, "sinks has 0 entries; expected one per head, or None");
    }
    ForwardOutputs outputs(keywords, accumulator_object, accumulator, true);
    const int num_threads = keywords.take_int("num_threads", 0);
    keywords.finish();
    AttentionPartials partials;
    partials.accumulator = accumulator.view<const T, 5>(kName, "accumulator");
    partials.row_max = row_max.view<const T, 4>(kName, "row_max");
    partials.row_sum = row_sum.view<const T, 4>(kName, "row_sum");
    partials.scaled_accumulator = scaled.view<const T, 5>(kName, "scaled_accumulator");
    const auto& shape = partials.accumulator.shape;
    outputs.allocate({shape[1], shape[2], shape[3], 0}, 0, shape[4]);
    const AttentionOutputs views = outputs.views<T>();
    run(static_cast<double>(accumulator.empty() ? 0 : shape[0] * shape[1] * shape[2] * shape[3] * shape[4]),
        num_threads, [&](const Runtime& runtime) { attention_merge(partials, sinks, views, runtime); });
    return outputs.hand_out();
  });
}

nb::object attention_merge_lse_of(nb::handle contexts_object, nb::handle lse_object, nb::kwargs kwargs) {
  constexpr const char* kName = "attention_merge_lse";
  const Array contexts(kName, "contexts", contexts_object);
  const Array lse(kName, "lse", lse_object);
  Keywords keywords(kName, std::move(kwargs));
  return with_compute_type(contexts, [&]<class T>(T) {
    ForwardOutputs outputs(keywords, contexts_object, contexts, true);
    const int num_threads = keywords.take_int("num_threads", 0);
    keywords.finish();
    const auto contexts_view = contexts.view<const T, 5>(kName, "contexts");
    const auto lse_view = lse.view<const T, 4>(kName, "lse");
    const auto& shape = contexts_view.shape;
    outputs.allocate({shape[1], shape[2], shape[3], 0}, 0, shape[4]);
    const AttentionOutputs views = outputs.views<T>();
    run(static_cast<double>(contexts_view.size()), num_threads,
        [&](const Runtime& runtime) { attention_merge_lse(contexts_view, lse_view, views, runtime); });
    return outputs.hand_out();
  });
}

// Short, so that help() fits on one screen. regard/attention.h has the full contract.
constexpr const char* kForwardText =
    "Computes softmax(soft_cap(scale · query · keyᵀ) + bias) · value, with the softmax over visible keys.\n"
    "\n"
    "query (B, H, L, D), key (B, Hkv, S, D) and value (B, Hkv, S, Dv) are arrays of float32, bfloat16 or\n"
    "float16, in any combination, or all of float64. They may be arrays of NumPy, PyTorch or JAX, or any\n"
    "object that supports the buffer protocol or DLPack, in CPU memory, and are read in place, with any\n"
    "strides. Returns context (B, H, L, Dv), an array of the same library as query. With return_… options,\n"
    "returns a tuple of context and the requested results: row_max, row_sum and lse (B, H, L), weights\n"
    "(B, H, L, S), sink_weights (B, H, L) and fingerprint (bytes, for attention_backward). out, row_max … are\n"
    "arrays that are written to instead of new arrays. causal='top_left' or 'bottom_right' also sets\n"
    "query_offset.\n"
    "Raises ValueError before any work is done.";

}  // namespace

std::string options_signature() {
  return ", causal: bool | str = False, query_offset: int | str | collections.abc.Sequence[int] | None = None, "
         "window: tuple[int | None, int | None] | None = None, "
         "key_lengths: collections.abc.Sequence[int] | object | None = None, "
         "query_starts: collections.abc.Sequence[int] | object | None = None, "
         "key_starts: collections.abc.Sequence[int] | object | None = None, query_segments: object | None = None, "
         "key_segments: object | None = None, prefix: collections.abc.Sequence[int] | object | None = None, "
         "block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, "
         "bias: object | None = None, alibi_slopes: collections.abc.Sequence[float] | object | None = None, "
         "sinks: collections.abc.Sequence[float] | object | None = None, soft_cap: float | None = None, "
         "scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, "
         "dropout_first: collections.abc.Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, "
         "num_threads: int = 0";
}

const char* signature(std::string text) {
  static std::deque<std::string> kept;
  return kept.emplace_back(std::move(text)).c_str();
}

void bind_attention(nb::module_& module) {
  const std::string options = options_signature();
  const std::string arrays = "query: object, key: object, value: object, *, ";
  const std::string outputs =
      "out: object | None = None, dtype: str | None = None, row_max: object | None = None, "
      "row_sum: object | None = None, lse: object | None = None, weights: object | None = None, "
      "sink_weights: object | None = None, return_row_max: bool = False, return_row_sum: bool = False, "
      "return_lse: bool = False, return_weights: bool = False, return_sink_weights: bool = False, "
      "return_fingerprint: bool = False";
  module.def("attention_forward", &attention_forward_of, nb::arg("query").none(), nb::arg("key").none(),
             nb::arg("value").none(), nb::arg("kwargs"),
             nb::sig(signature("def attention_forward(" + arrays + outputs + options + ") -> typing.Any")),
             kForwardText);
  module.def("attention_weights", &attention_weights_of, nb::arg("query"), nb::arg("key"), nb::arg("kwargs"),
             nb::sig(signature("def attention_weights(query: object, key: object, *, row_max: object | None = None, "
                               "row_sum: object | None = None, out: object | None = None, "
                               "rows: collections.abc.Sequence[tuple[int, int]] | None = None, "
                               "keys: tuple[int, int] | None = None, kind: str = 'weights'" +
                               options + ") -> typing.Any")),
             "Computes the exact weights (with kind='scores', the scores) of selected rows and keys, which are\n"
             "zero-based ranges (begin, end). row_max and row_sum are those of attention_forward. Returns an array\n"
             "(B, H, R, keys).");
  module.def("attention_with_statistics", &attention_with_statistics_of, nb::arg("query").none(), nb::arg("key").none(),
             nb::arg("value"), nb::arg("kwargs"),
             nb::sig(signature("def attention_with_statistics(" + arrays +
                               "out: object | None = None, dtype: str | None = None, top_keys: int = 0, "
                               "chosen_keys: collections.abc.Sequence[int] | object | None = None, "
                               "chosen_ranges: object | None = None, chosen_offset: int | None = None" +
                               options + ") -> dict[str, typing.Any]")),
             "Computes attention_forward and, in the same pass, statistics of its rows. Returns by name: context,\n"
             "row_max, row_sum, lse, fingerprint, entropy, largest_weight and mean_distance (B, H, L), and the means\n"
             "head_… (B, H). With top_keys=k, also top_keys and top_weights (B, H, L, k). With chosen keys, also\n"
             "chosen_weight and its mean. Chosen keys are given by chosen_keys=[0, 4] for all rows, by\n"
             "chosen_ranges, int64 (L, 2), (1, 2) or (B, L, 2), with begin and end for each row, or by\n"
             "chosen_offset=n, the key at the position of the row + n: -1 is the previous token, 1 - period the\n"
             "token after the earlier copy of this token. Positions are i + query_offset. The weight of a key that\n"
             "does not exist is 0.");
  module.def("attention_columns", &attention_columns_of, nb::arg("query"), nb::arg("key"), nb::arg("row_max"),
             nb::arg("row_sum"), nb::arg("kwargs"),
             nb::sig(signature("def attention_columns(query: object, key: object, row_max: object, row_sum: object, *, "
                               "pooled_map: tuple[int, int] | None = None, cells: str = 'means'" +
                               options + ") -> dict[str, typing.Any]")),
             "Computes key_mass (B, H, S), the weight on each key summed over the queries. If pooled_map is given as\n"
             "a size (Ga, Gb), also computes pooled_map (B, H, Ga, Gb), the mean or sum of the weights in each cell.");
  module.def("attention_partials", &attention_partials_of, nb::arg("query").none(), nb::arg("key").none(),
             nb::arg("value").none(), nb::arg("kwargs"),
             nb::sig(signature("def attention_partials(query: object, key: object, value: object, *" + options +
                               ") -> dict[str, typing.Any]")),
             "Computes partial results over chunks of 1024 keys, before the division by row_sum: accumulator and\n"
             "scaled_accumulator (N, B, H, L, Dv), row_max and row_sum (N, B, H, L).");
  module.def("attention_merge", &attention_merge_of, nb::arg("accumulator"), nb::arg("row_max"), nb::arg("row_sum"),
             nb::arg("kwargs"),
             nb::sig(signature("def attention_merge(accumulator: object, row_max: object, row_sum: object, *, "
                               "scaled_accumulator: object | None = None, "
                               "sinks: collections.abc.Sequence[float] | object | None = None, "
                               "out: object | None = None, dtype: str | None = None, lse: object | None = None, "
                               "sink_weights: object | None = None, return_row_max: bool = False, "
                               "return_row_sum: bool = False, return_lse: bool = False, "
                               "return_sink_weights: bool = False, num_threads: int = 0) -> typing.Any")),
             "Merges N partial results in key order. The result for all chunks is bit-identical to that of\n"
             "attention_forward.");
  module.def("attention_merge_lse", &attention_merge_lse_of, nb::arg("contexts"), nb::arg("lse"), nb::arg("kwargs"),
             nb::sig("def attention_merge_lse(contexts: object, lse: object, *, out: object | None = None, "
                     "return_lse: bool = False, num_threads: int = 0) -> typing.Any"),
             "Merges N complete results over disjoint sets of keys, using the lse of each result: contexts\n"
             "(N, B, H, L, Dv), lse (N, B, H, L).");
}

}  // namespace regard::python
