// SPDX-License-Identifier: Apache-2.0
//
// attention_forward over keys and values that are read once, where they lie: up to four rows for each key head.
// Read next: decoder.h, kernels/few_rows.h.
#include "attention_in_place.h"

#include <algorithm>
#include <cstdlib>

#include "decoder.h"
#include "dropout.h"

namespace regard {
inline namespace v0 {
namespace internal {
namespace {

// Keys and values as the caller's tensors hold them. Tasks have few rows and read nothing but stored blocks.
template <class T>
class RowKeys final : public KeyPanels<T> {
 public:
  explicit RowKeys(const ResolvedAttention<T>& r) : r_(r) {}
  const T* key_panel(const Unit&, Index, T*) const override { return nullptr; }
  const T* value_panel(const Unit&, Index, T*) const override { return nullptr; }
  bool finite(const Unit&, Index) const override { return false; }  // nobody has looked
  bool stored() const override { return true; }
  void find_stored_keys(const Unit& unit, Index panel, bool, kernels::StoredPanels& block) const override {
    find_block(r_.key, unit, panel, block);
  }
  void find_stored_values(const Unit& unit, Index panel, bool, kernels::StoredPanels& block) const override {
    find_block(r_.value, unit, panel, block);
  }

 private:
  void find_block(const InputView<T, 4>& view, const Unit& unit, Index panel, kernels::StoredPanels& block) const {
    const Sequence& sequence = r_.sequences[static_cast<std::size_t>(unit.sequence)];
    const auto panel_at = [&](Index n) {
      return n < unit.num_panels
                 ? view.pointer(sequence.batch, unit.key_head, sequence.first_key + n * kernels::kPanel, 0)
                 : nullptr;
    };
    block.type = view.type == ElementType::bfloat16  ? kernels::Stored::bfloat16
                 : view.type == ElementType::float16 ? kernels::Stored::float16
                                                     : kernels::Stored::compute_type;
    block.row_stride = view.strides[2];
    for (Index i = 0; i < kernels::kBlockPanels; ++i) {
      block.panels[i] = panel_at(panel + i);
      block.next[i] = panel_at(panel + kernels::kBlockPanels + i);
    }
  }

  const ResolvedAttention<T>& r_;
};

}  // namespace

template <class T>
bool fits_in_place(const ResolvedAttention<T>& r) {
  constexpr Index kDepthStep = 32;  // the numbers of two bytes in the widest vector
  const auto in_rows = [](const InputView<T, 4>& view) { return view.strides[3] == 1 && view.strides[2] != 0; };
  if (r.num_key_heads == 0 || has_dropout(r) || r.depth % kDepthStep != 0 || r.columns % kernels::kPanel != 0)
    return false;
  if (!in_rows(r.key) || !in_rows(r.value)) return false;
  const Index group = r.num_heads / r.num_key_heads;
  return std::all_of(r.sequences.begin(), r.sequences.end(),
                     [&](const Sequence& sequence) { return group * sequence.num_queries <= kernels::kFewRows; });
}

template <class T>
void attend_in_place(const char* name, const ResolvedAttention<T>& r, const TypedOutputs<T>& outputs,
                     double written_bytes, const Runtime& runtime) {
  const RowKeys<T> keys(r);
  const DecoderOptions how{.name = name,
                           .key_bytes = type_bytes(r.key.type),
                           .value_bytes = type_bytes(r.value.type),
                           .written_bytes = written_bytes,
                           .by_chunk = std::abs(r.key.strides[1]) < std::abs(r.key.strides[2])};
  Decoder<T>(r, keys, how, outputs, runtime).run();
}

template bool fits_in_place(const ResolvedAttention<float>&);
template bool fits_in_place(const ResolvedAttention<double>&);
template void attend_in_place(const char*, const ResolvedAttention<float>&, const TypedOutputs<float>&, double,
                              const Runtime&);
template void attend_in_place(const char*, const ResolvedAttention<double>&, const TypedOutputs<double>&, double,
                              const Runtime&);

}  // namespace internal
}  // namespace v0
}  // namespace regard
