// SPDX-License-Identifier: Apache-2.0
//
// What all ranks must know about a call before they compute: its extents, which rank holds what, and that its arguments
// are valid and equal on all ranks.
//
//   1. every rank sends its options, shapes and numbers of rows and keys   Agreement
//   2. every rank checks the call as one machine would                     plan() of the whole call, and of its rows
//   3. every rank sends what it found                                      Agreement
//
// Read next: whole_call.cpp, attention.cpp.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "agreement.h"
#include "local_options.h"
#include "regard/kv_cache.h"

namespace regard::inline v0::internal {

// The arguments of a rank. The value may be absent.
struct RankArguments {
  const char* function;
  const InputView<4>& query;
  const InputView<4>& key;
  const InputView<4>& value;
  const AttentionOptions& options;
};

struct WholeCall {
  CallExtents extents{};
  DistributedProblem problem;
  IndexRange rows, keys;  // that this rank holds
  // Whether a mask or bias has rows of its own for each row, rather than one for all.
  bool mask_by_row = false, bias_by_row = false;
};

// Types and shapes that must be equal on all ranks: those of the arguments first, then those of outputs.
Agreement agreement_on(const RankArguments& arguments);
void add_output(Agreement& agreement, const char* name, const OutputView<4>& view, std::size_t axis_that_differs);
void add_output(Agreement& agreement, const char* name, const OutputView<3>& view, std::size_t axis_that_differs);

// Shape and a hash of the elements, in order.
template <int Rank>
std::string elements_text(const InputView<Rank>& view);

// The fields of a decoding call.
void add_decode_fields(Agreement& agreement, const InputView<4>& query, const AttentionOutputs& outputs,
                       const AttentionOptions& options);
// Throws InvalidArgument, "attention_forward: …", unless a decoding call over all keys is valid.
void check_decode(const InputView<4>& query, const KvCacheShape& shape, ElementType stored,
                  const std::vector<Index>& lengths, Index longest, const AttentionOutputs& outputs,
                  const AttentionOptions& options);
// The text of an error without the name of the function before it.
std::string without_function(const std::string& text, const std::string& function);

// Notifies the other ranks if this one fails within a call.
template <class F>
void run_call(Ranks& ranks, const F& run) {
  try {
    run();
  } catch (const RankError&) {
    throw;
  } catch (const std::exception& error) {
    ranks.fail(error.what());
    throw;
  } catch (...) {
    ranks.fail("an exception of unknown type");
    throw;
  }
}

// An operator call for the rows of this rank, to be checked only.
using Check = std::function<void(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                                 const AttentionOptions& options, const Runtime& runtime)>;

// The agreement has the fields of the outputs. Checks the options against the whole call, and calls `check` with
// placeholders for everything except the rows of this rank.
WholeCall agree_on_call(const RankArguments& arguments, Agreement& agreement, const Check& check, Ranks& ranks,
                        const std::stop_token& stop);

}  // namespace regard::inline v0::internal
