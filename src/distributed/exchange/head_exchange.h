// SPDX-License-Identifier: Apache-2.0
//
// Runs a call over several ranks one key/value head at a time: while a rank computes one head, the arrays of its next
// one are in transit.
//
//     step          0            1            2
//     rank r        head k       head k + 1   head k + 2         (heads: its own; otherwise: the same on all ranks)
//     receives      … k + 1      … k + 2      results of others
//
// All ranks run the same steps, so both sides of a pair know what is sent next. Large pieces are sent directly from the
// caller's memory to where they are used.
// Read next: head_exchange.cpp, attention.cpp.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "distributed/arguments/local_options.h"
#include "distributed/messages/pieces.h"

namespace regard::inline v0::internal {

// Which indices of an array a rank holds: its rows, its keys, or all of them.
enum class HeldIndices { rows, keys, all };
// Which heads an array has.
enum class ArrayHeads { shared, key_value, query };

struct CallArray {
  HeldArray held;
  HeldIndices indices = HeldIndices::rows;
  ArrayHeads heads = ArrayHeads::query;
  bool is_output = false;
  // Of an output: the type in which it is computed and sent, and whether it is added to what its holder has.
  ElementType computed_type = held.type;
  bool accumulate = false;
  // Of an output: all steps compute in the same memory, so a step begins when the results of the previous one have been
  // sent.
  bool one_buffer = false;
  // The indices that each rank reads of an input, or computes of an output. Empty: those of its scheme.
  std::vector<std::vector<IndexRange>> taken{};
};

// What a rank computes in one call: a key/value head, some rows, and the arrays in the order given: all keys, these
// rows, and the query heads of the key/value head.
struct HeadWork {
  Index kv_head;
  IndexRange rows;
  // Whether arrays of rows are the caller's, with its types: outputs are then accumulated by the function that computes
  // them.
  bool in_place;
  const std::vector<HeldArray>& arrays;
  // The memory of those that are not the caller's.
  const std::vector<std::shared_ptr<std::byte>>& buffers;
};

class HeadExchange {
 public:
  // With the schemes rows and keys, all ranks that work compute the same head at a time. With whole_ranges, each range
  // of rows of the plan is computed in one call, and copied if not all of it is held. All must outlive the object.
  HeadExchange(const DistributedProblem& problem, const DistributedPlan& plan, std::vector<CallArray> arrays,
               Messages& messages, const std::stop_token& stop, bool whole_ranges = false);

  using Compute = std::function<void(const HeadWork&)>;
  void run(const Compute& compute);

 private:
  // A range of rows that this rank computes: in the caller's memory, or in the buffers from first_row on.
  struct Part {
    IndexRange rows;
    bool own;
    Index first_row;
  };
  struct Step {
    std::vector<std::shared_ptr<std::byte>> buffers;  // of each array; null if not needed
    std::vector<Messages::Ticket> input_sends, output_sends;
    std::vector<Arrival> inputs, outputs;
  };

  Index num_steps() const;
  // The key/value head of a rank in a step; −1 if there is none.
  Index kv_head(Index rank, Index step) const;
  bool computes(Index rank, Index step) const;
  IndexRange held_range(HeldIndices indices, Index rank) const;
  std::vector<IndexRange> needed(const CallArray& array, Index rank) const;
  // Of indices that this rank holds, those that it copies to and from its buffers.
  std::vector<IndexRange> copied(const CallArray& array) const;
  // Arrays that all heads share are sent in the first step only.
  bool is_sent(const CallArray& array, bool outputs, Index step) const {
    return array.is_output == outputs && (array.heads != ArrayHeads::shared || outputs || step == 0);
  }
  Index heads_per_step(const CallArray& array) const;
  bool is_sent_from_buffers(const CallArray& array) const;
  Step& step_at(Index step) { return steps_[step % 2]; }
  const Step& step_at(Index step) const { return steps_[step % 2]; }

  // The array in a step, as compute sees it: one part of the rows, or all keys.
  HeldArray local(const Step& step, std::size_t array, Index kv_head, const Part& part) const;
  // Pieces of all inputs, or all outputs, for these ranges of each array.
  using Ranges = std::function<std::vector<IndexRange>(const CallArray&)>;
  // With `buffers`, keys that are sent from the buffers are located there.
  std::vector<Piece> held_pieces(bool outputs, Index step, Index kv_head, const Ranges& ranges,
                                 const Step* buffers = nullptr) const;
  std::vector<Piece> local_pieces(bool outputs, Index step, Index kv_head, const Ranges& ranges) const;

  void allocate(Step& step);
  void post_inputs(Index step);
  void post_outputs(Index step);

  const DistributedProblem& problem_;
  const DistributedPlan& plan_;
  std::vector<CallArray> arrays_;
  Messages& messages_;
  std::stop_token stop_;
  Index rank_, group_;
  std::vector<Part> parts_;
  Index buffer_rows_ = 0;
  Step steps_[2];
};

}  // namespace regard::inline v0::internal
