// SPDX-License-Identifier: Apache-2.0
//
// What a page's module leaves out: decoders, because a page opens encoders only; and attention over unpacked keys,
// which is faster for few rows and has the same bits.
// Read next: web/core/CMakeLists.txt.
#include <stdexcept>

#include "attention/unpacked_keys.h"
#include "regard/model/decoder_inference.h"
#include "regard/train/vocabulary.h"

namespace regard::inline v0 {
namespace {

[[noreturn]] void fail() { throw std::logic_error("this function is not part of the module"); }

}  // namespace

DecoderTrace decode_trace(const Decoder&, std::span<const Index>, const DecodeOptions&, const Runtime&) { fail(); }
Tensor<float, 2> head_output(const Decoder&, const ModelTrace&, Index, Index, const Runtime&) { fail(); }
Tensor<double, 2> value_norms(const Decoder&, const ModelTrace&, Index, const Runtime&) { fail(); }
VocabularyKind Vocabulary::kind() const { fail(); }
std::string_view Vocabulary::token(Index) const { fail(); }
std::vector<Index> Vocabulary::encode(std::string_view, const std::stop_token&) const { fail(); }

namespace internal {

const char* why_packed(const UntypedAttention&) { return "this module always packs"; }

template <class T>
void attend_unpacked(const char*, const ResolvedAttention<T>&, const TypedOutputs<T>&, double, const Runtime&) {
  fail();
}
template decltype(attend_unpacked<float>) attend_unpacked<float>;
template decltype(attend_unpacked<double>) attend_unpacked<double>;

}  // namespace internal
}  // namespace regard::inline v0
