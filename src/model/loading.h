// SPDX-License-Identifier: Apache-2.0
//
// Shared by load_encoder and load_decoder: compares the tensors of a checkpoint with those that a model has, reports
// every mismatch in one error, and packs matrices.
//
// Read next: loading.cpp, encoder/encoder_load.cpp, decoder/decoder_load.cpp.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/io/safetensors.h"
#include "regard/linear.h"

namespace regard::inline v0::internal {

inline constexpr std::string_view kConfigFile = "config.json";
inline constexpr std::string_view kTensorFile = "model.safetensors";
// "FOLDER/FILE", for messages.
std::string file_in(const std::string& folder, std::string_view file);
// The config.json of MiniLM has 612 bytes; lists of labels make those of some other models longer.
inline constexpr std::uint64_t kMaxConfigBytes = 4 << 20;

// The tensors of a checkpoint that a model reads, and what is wrong with the checkpoint.
class ModelTensors {
 public:
  ModelTensors(const std::string& folder, const Checkpoint& checkpoint) : folder_(folder), checkpoint_(checkpoint) {}
  ModelTensors(const ModelTensors&) = delete;
  ModelTensors& operator=(const ModelTensors&) = delete;

  // Expects a tensor under a name; `found` is the one of that name, or null. `fill` is called by read(), unless there
  // is a problem. `fields` names the extents: "hidden_size"; or it is empty.
  void expect(const std::string& name, const StoredTensor* found, const std::vector<Index>& shape,
              std::string_view fields, std::function<void(const float*)> fill);
  // Likewise, for a matrix that is not converted as a whole.
  void expect_matrix(const std::string& name, const StoredTensor* found, const std::vector<Index>& shape,
                     std::string_view fields, StoredMatrix& matrix);
  // Every tensor that was not expected and is not left unread is a problem: "NAME is not a tensor of MODEL".
  void expect_no_others(const std::function<bool(std::string_view name)>& is_left_unread, const std::string& model);
  // Throws DataError if there are problems.
  void throw_problems() const;
  // The tensors found so far, in the order in which they were expected.
  std::vector<const StoredTensor*> found() const;

  // Throws DataError unless there is memory for converted copies and for packed matrices. F32 tensors are viewed in the
  // file's bytes.
  void check_memory(std::uint64_t packed_bytes, const ModelFileOptions& options) const;
  // Calls every `fill`, with elements that live as long as the result.
  std::vector<std::shared_ptr<const float>> read(const std::stop_token& stop) const;

 private:
  struct Read {
    const StoredTensor* tensor;
    std::function<void(const float*)> fill;
    StoredMatrix* matrix;  // in place of fill
    // Whether its elements are copied.
    bool is_converted() const;
  };
  // False if there is a problem.
  bool is_expected(const std::string& name, const StoredTensor* found, const std::vector<Index>& shape,
                   std::string_view fields);
  void problem(const std::string& text);

  const std::string& folder_;
  const Checkpoint& checkpoint_;
  std::set<const StoredTensor*> used_;
  std::vector<Read> reads_;
  std::string problems_;
  std::size_t num_problems_ = 0;
};

// The size of a packed matrix: columns are rounded up to panels of 32.
std::uint64_t packed_bytes(Index inputs, Index outputs);
// Packs matrices with the same number of rows as one matrix, with their columns concatenated.
PackedLinear<float> pack_side_by_side(const char* operation, std::span<const TensorView<const float, 2>> matrices,
                                      const Runtime& runtime);

}  // namespace regard::inline v0::internal
