// SPDX-License-Identifier: Apache-2.0
//
// KvCache, attention_decode and attention_decode_partials for Python.
//
//     cache = regard.KvCache(num_kv_heads=8, head_size=64, capacity=4096, dtype="bfloat16")
//     cache.append(key, value)        (B, Hkv, L, D), or with sequence=i (Hkv, L, D)
//     regard.attention_decode(query, cache, causal=True)
//     file.write(cache.memory) … regard.KvCache.open(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
//
// A cache is not read while another thread changes it: each call holds the lock of its cache. The lock is granted in
// the order of requests, and Ctrl-C interrupts a call that waits for it. A forked child process has a new lock, because
// the threads that held the parent's lock do not exist in the child. Read next: regard/kv_cache.h.
#include "regard/kv_cache.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <variant>

#include "fair_lock.h"
#include "module.h"
#include "options.h"
#include "outputs.h"
#include "ranks.h"
#include "regard/distributed/attention.h"
#include "run.h"

namespace regard::python {
namespace {

class Cache {
 public:
  using Typed =
      std::variant<KvCache<float>, KvCache<double>, KvCache<bfloat16>, KvCache<float16>, KvCache<std::int8_t>>;

  static Cache make(const KvCacheShape& shape, const std::string& dtype) {
    return {nullptr, dtype,
            made(dtype, [&]<class T>(T, const Runtime& runtime) { return KvCache<T>(shape, runtime.stop); })};
  }
  // Opens the cache in an array of bytes, in place.
  static Cache open(std::unique_ptr<Array> block) {
    const std::span<std::byte> bytes = bytes_of(*block);
    const std::string dtype = dtype_of(bytes);
    Typed typed =
        made(dtype, [&]<class T>(T, const Runtime& runtime) { return KvCache<T>::open(bytes, runtime.stop); });
    return {std::move(block), dtype, std::move(typed)};
  }

  const KvCacheShape& shape() const {
    return std::visit([](const auto& cache) -> const KvCacheShape& { return cache.shape(); }, typed_);
  }
  const std::string& dtype() const { return dtype_; }
  template <class Call>
  auto visit(const Call& call) {
    return std::visit(call, typed_);
  }
  FairLock::Place reading() { return locked(FairLock::Use::read); }
  FairLock::Place changing(const char* operator_name) {
    reject_in_plan(operator_name);
    if (block_ != nullptr && block_->read_only()) {
      reject(operator_name, "the cache is in read-only memory; expected a writable copy or mapping");
    }
    return locked(FairLock::Use::write);
  }

 private:
  // Waits without the interpreter's lock.
  FairLock::Place locked(FairLock::Use use) {
    if (const pid_t process = getpid(); process != process_) {
      static_cast<void>(lock_.release());  // destroying a locked mutex is undefined behavior
      lock_ = std::make_unique<FairLock>();
      process_ = process;
    }
    constexpr std::chrono::milliseconds kLook{20};
    FairLock::Place place(*lock_, use);
    for (bool inside = place.enter({}); !inside;) {
      {
        const nb::gil_scoped_release released;
        inside = place.enter(kLook);
      }
      if (!inside && PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    return place;
  }

  Cache(std::unique_ptr<Array> block, const std::string& dtype, Typed typed)
      : block_(std::move(block)), dtype_(dtype), typed_(std::move(typed)) {}

  // The cache that `make` returns for elements of the named type.
  template <class Make>
  static Typed made(const std::string& dtype, const Make& make) {
    const auto run_make = [&]<class T>(T type) {
      std::optional<Typed> typed;
      run(kUnknownOperations, 0, [&](const Runtime& runtime) { typed = make(type, runtime); });
      return std::move(*typed);
    };
    if (dtype == "int8") return run_make(std::int8_t{});
    const NumberType type = named_type("KvCache", "dtype", dtype);
    if (type == number_type<double>()) return run_make(double{});
    if (type == number_type<bfloat16>()) return run_make(bfloat16{});
    if (type == number_type<float16>()) return run_make(float16{});
    return run_make(float{});
  }

  static std::span<std::byte> bytes_of(const Array& block) {
    const auto view = block.view<std::uint8_t, 1>("KvCache.open", "memory");
    if (view.shape[0] > 1 && view.strides[0] != 1) {
      reject("KvCache.open",
             "memory has a stride of " + std::to_string(view.strides[0]) + "; expected contiguous bytes");
    }
    return {reinterpret_cast<std::byte*>(view.data), static_cast<std::size_t>(view.shape[0])};
  }
  // The type stored in the header of the block (docs/guide/kv-caches.md). KvCache::open() rejects blocks without one.
  static std::string dtype_of(std::span<const std::byte> memory) {
    std::uint32_t type = 4;
    if (memory.size() >= 16) std::memcpy(&type, memory.data() + 12, sizeof type);
    return type == 8         ? "float64"
           : type == 2       ? "float16"
           : type == 0x10002 ? "bfloat16"
           : type == 1       ? "int8"
                             : "float32";
  }

  std::unique_ptr<Array> block_;  // the memory of the cache, unless it owns its memory
  std::string dtype_;
  Typed typed_;
  std::unique_ptr<FairLock> lock_ = std::make_unique<FairLock>();
  pid_t process_ = getpid();
};

void append(Cache& cache, nb::handle key_object, nb::handle value_object, std::optional<Index> sequence,
            nb::handle counts_object) {
  constexpr const char* kName = "KvCache.append";
  const Array key(kName, "key", key_object);
  const Array value(kName, "value", value_object);
  std::vector<Index> counts;
  if (!counts_object.is_none()) {
    counts = index_list(kName, "counts", counts_object);
    if (counts.empty() && !key.empty()) reject(kName, "counts has 0 entries; expected one per sequence, or None");
  }
  if (sequence && !counts.empty()) reject(kName, "counts are for all sequences; expected no counts with sequence");
  const auto lock = cache.changing(kName);
  // Appending an element takes at most a few nanoseconds; an int8 cache is the slowest.
  const auto operations = [](const auto& k, const auto& v) {
    double rows = 10;
    for (std::size_t axis = 0; axis + 1 < k.shape.size(); ++axis) rows *= static_cast<double>(k.shape[axis]);
    return rows * static_cast<double>(k.shape.back() + v.shape.back());
  };
  cache.visit([&]<class T>(KvCache<T>& typed) {
    if (sequence) {
      const auto k = key.input<ComputeType<T>, 3>(kName, "key");
      const auto v = value.input<ComputeType<T>, 3>(kName, "value");
      run(operations(k, v), 0, [&](const Runtime& runtime) { typed.append(*sequence, k, v, runtime.stop); });
    } else {
      const auto k = key.input<ComputeType<T>, 4>(kName, "key");
      const auto v = value.input<ComputeType<T>, 4>(kName, "value");
      run_call(
          operations(k, v), 0, [&](const Runtime& runtime) { typed.append(k, v, counts, runtime.stop); },
          [&](Ranks& ranks, const Runtime& runtime) { regard::append(typed, k, v, ranks, runtime.stop); });
    }
  });
}

template <class K>
Index longest_of(const KvCache<K>& cache) {
  Index longest = 0;
  for (Index b = 0; b < cache.shape().num_sequences; ++b) longest = std::max(longest, cache.length(b));
  return longest;
}

// Arithmetic operations of a call whose query has this shape.
template <class K>
double decode_operations(const KvCache<K>& cache, const std::array<Index, 4>& query) {
  return 2.0 * static_cast<double>(query[0] * query[1] * query[2]) * static_cast<double>(longest_of(cache)) *
         static_cast<double>(query[3] + cache.shape().value_head_size);
}

nb::object attention_decode_of(nb::handle query_object, Cache& cache, nb::kwargs kwargs) {
  constexpr const char* kName = "attention_decode";
  Array query(kName, "query", query_object);
  const int missing_axes = query.rank() == 3 ? 1 : 0;
  query.complete(4, missing_axes);
  Keywords keywords(kName, std::move(kwargs));
  ForwardOutputs outputs(keywords, query_object, query, true, missing_axes);
  const auto lock = cache.reading();
  const auto decode = [&]<class T, class K>(const KvCache<K>& typed, T) {
    using Compute = ComputeType<T>;
    Options<Compute> options(keywords, query);
    const int num_threads = keywords.take_int("num_threads", 0);
    keywords.finish();
    const auto q = query.input<Compute, 4>(kName, "query");
    outputs.allocate(q.shape, longest_of(typed), typed.shape().value_head_size);
    const AttentionOutputs views = outputs.views<T>();
    run_call(
        decode_operations(typed, q.shape), num_threads,
        [&](const Runtime& runtime) { attention_decode(q, typed, views, options.options, runtime); },
        [&](Ranks& ranks, const Runtime& runtime) {
          attention_decode(q, typed, views, options.options, ranks, runtime);
        });
    return outputs.hand_out();
  };
  const NumberType type = outputs.context_type();
  return cache.visit([&]<class K>(KvCache<K>& typed) -> nb::object {
    if constexpr (std::is_same_v<K, double>) {
      if (type != number_type<double>()) {
        reject(kName, "query has type " + type_text(type) + "; expected float64, the type of the cache");
      }
      return decode(typed, double{});
    } else {
      if (type == number_type<float>()) return decode(typed, float{});
      if (type == number_type<bfloat16>()) return decode(typed, bfloat16{});
      if (type == number_type<float16>()) return decode(typed, float16{});
      reject(kName, "query has type " + type_text(type) +
                        "; expected float32, bfloat16 or float16 for a cache of type " + cache.dtype());
    }
  });
}

nb::object attention_decode_partials_of(nb::handle query_object, Cache& cache, nb::kwargs kwargs) {
  constexpr const char* kName = "attention_decode_partials";
  const Array query(kName, "query", query_object);
  Keywords keywords(kName, std::move(kwargs));
  const auto lock = cache.reading();
  return cache.visit([&]<class K>(KvCache<K>& typed) {
    using T = ComputeType<K>;
    Options<T> options(keywords, query);
    const int num_threads = keywords.take_int("num_threads", 0);
    keywords.finish();
    const auto q = query.input<T, 4>(kName, "query");
    const std::vector<Index> row{attention_num_chunks(longest_of(typed)), q.shape[0], q.shape[1], q.shape[2]};
    std::vector<Index> context = row;
    context.push_back(typed.shape().value_head_size);
    Outputs outputs(kName, query_object);
    AttentionPartialOutputs partials;
    outputs.add<T>("accumulator", partials.accumulator, context);
    outputs.add<T>("row_max", partials.row_max, row);
    outputs.add<T>("row_sum", partials.row_sum, row);
    outputs.add<T>("scaled_accumulator", partials.scaled_accumulator, context);
    run(decode_operations(typed, q.shape), num_threads,
        [&](const Runtime& runtime) { attention_decode_partials(q, typed, partials, options.options, runtime); });
    return nb::object(outputs.hand_out_named());
  });
}

}  // namespace

void bind_cache(nb::module_& module) {
  nb::class_<Cache>(module, "KvCache",
                    "Keys and values that are kept between calls, packed in the order in which kernels read them.")
      .def(
          "__init__",
          [](Cache* cache, Index head_size, Index capacity, Index num_sequences, Index num_kv_heads,
             std::optional<Index> value_head_size, Index page_keys, Index num_pages, bool ring,
             const std::string& dtype) {
            KvCacheShape shape;
            shape.num_sequences = num_sequences;
            shape.num_kv_heads = num_kv_heads;
            shape.head_size = head_size;
            shape.value_head_size = value_head_size.value_or(head_size);
            shape.capacity = capacity;
            shape.page_keys = page_keys;
            shape.num_pages = num_pages;
            shape.ring = ring;
            new (cache) Cache(Cache::make(shape, dtype));
          },
          nb::kw_only(), nb::arg("head_size"), nb::arg("capacity"), nb::arg("num_sequences") = 1,
          nb::arg("num_kv_heads") = 1, nb::arg("value_head_size") = nb::none(), nb::arg("page_keys") = 0,
          nb::arg("num_pages") = 0, nb::arg("ring") = false, nb::arg("dtype") = "float32",
          "Creates an empty cache. head_size is D; value_head_size is Dv, by default head_size. dtype is\n"
          "float32, float64, bfloat16, float16 or int8. page_keys, a multiple of 32, and num_pages create a paged\n"
          "cache. With ring, only the newest `capacity` keys are kept.")
      .def("append", &append, nb::arg("key"), nb::arg("value"), nb::arg("sequence") = nb::none(),
           nb::arg("counts") = nb::none(),
           nb::sig("def append(self, key: object, value: object, sequence: int | None = None, "
                   "counts: collections.abc.Sequence[int] | object | None = None) -> None"),
           "Appends keys (B, Hkv, L, D) and values (B, Hkv, L, Dv) to all sequences; with counts, appends the\n"
           "first counts[b] keys to sequence b. With sequence, appends (Hkv, L, D) and (Hkv, L, Dv) to that\n"
           "sequence. float32, bfloat16 and float16 arrays are rounded to the type of the cache; a float64 cache\n"
           "accepts only float64.")
      .def(
          "truncate",
          [](Cache& cache, Index sequence, Index length) {
            const auto lock = cache.changing("KvCache.truncate");
            cache.visit([&](auto& typed) { typed.truncate(sequence, length); });
          },
          nb::arg("sequence"), nb::arg("length"), "Removes all keys of a sequence after the first `length` keys.")
      .def(
          "fork",
          [](Cache& cache, Index from, Index to) {
            const auto lock = cache.changing("KvCache.fork");
            cache.visit([&](auto& typed) { typed.fork(from, to); });
          },
          nb::arg("from_sequence"), nb::arg("to_sequence"),
          "Makes to_sequence, which must be empty, share the keys and values of from_sequence. Whole panels are\n"
          "not copied.")
      .def(
          "length",
          [](Cache& cache, Index sequence) {
            const auto lock = cache.reading();
            return cache.visit([&](auto& typed) { return typed.length(sequence); });
          },
          nb::arg("sequence") = 0,
          "The number of appended keys that were not truncated; for a ring, including keys no longer stored.")
      .def(
          "first_key",
          [](Cache& cache, Index sequence) {
            const auto lock = cache.reading();
            return cache.visit([&](auto& typed) { return typed.first_key(sequence); });
          },
          nb::arg("sequence") = 0, "The index of the first key still stored, which is 0 except in a ring.")
      .def_prop_ro("num_free_pages",
                   [](Cache& cache) {
                     const auto lock = cache.reading();
                     return cache.visit([](auto& typed) { return typed.num_free_pages(); });
                   })
      .def_static(
          "open",
          [](nb::handle memory) { return Cache::open(std::make_unique<Array>("KvCache.open", "memory", memory)); },
          nb::arg("memory"), nb::sig("def open(memory: object) -> KvCache"),
          "Opens a cache in place from the `memory` of another cache: a block of bytes aligned to 64, such as a\n"
          "memory-mapped file. The cache keeps the block alive. If it is writable, append() writes to it. Raises\n"
          "RuntimeError with the byte offset if the block is not a consistent cache.")
      .def_prop_ro(
          "memory",
          [](nb::handle self) {
            const auto block = nb::cast<Cache&>(self).visit([](auto& typed) { return typed.memory(); });
            return nb::ndarray<nb::memview, const std::uint8_t, nb::ndim<1>>(block.data(), {block.size()}, self);
          },
          nb::rv_policy::reference, nb::sig("def memory(self) -> memoryview"),
          "The memory block (docs/guide/kv-caches.md), read-only. To reopen the cache later, save the block to a\n"
          "file, and pass the contents of the file to open().")
      .def_prop_ro("num_bytes",
                   [](Cache& cache) { return cache.visit([](auto& typed) { return typed.memory().size(); }); })
      .def_prop_ro("dtype", &Cache::dtype)
      .def_prop_ro("num_sequences", [](Cache& cache) { return cache.shape().num_sequences; })
      .def_prop_ro("num_kv_heads", [](Cache& cache) { return cache.shape().num_kv_heads; })
      .def_prop_ro("head_size", [](Cache& cache) { return cache.shape().head_size; })
      .def_prop_ro("value_head_size", [](Cache& cache) { return cache.shape().value_head_size; })
      .def_prop_ro("capacity", [](Cache& cache) { return cache.shape().capacity; });
  module.def(
      "attention_decode", &attention_decode_of, nb::arg("query"), nb::arg("cache"), nb::arg("kwargs"),
      nb::sig(signature("def attention_decode(query: object, cache: KvCache, *, out: object | None = None, "
                        "dtype: str | None = None, row_max: object | None = None, row_sum: object | None = None, "
                        "lse: object | None = None, sink_weights: object | None = None, return_row_max: bool = False, "
                        "return_row_sum: bool = False, return_lse: bool = False, return_sink_weights: bool = False" +
                        options_signature() + ") -> typing.Any")),
      "Computes attention_forward over a cache, with bit-identical results. query has shape (B, H, L, D),\n"
      "where B is the number of sequences in the cache. The queries are at the newest L positions of each\n"
      "sequence unless query_offset is given. The context for a sequence without keys is 0.");
  module.def("attention_decode_partials", &attention_decode_partials_of, nb::arg("query"), nb::arg("cache"),
             nb::arg("kwargs"),
             nb::sig(signature("def attention_decode_partials(query: object, cache: KvCache, *" + options_signature() +
                               ") -> dict[str, typing.Any]")),
             "Computes partial results over chunks of 1024 keys of a cache, as attention_partials does: accumulator\n"
             "and scaled_accumulator (N, B, H, L, Dv), row_max and row_sum (N, B, H, L).");
}

}  // namespace regard::python
