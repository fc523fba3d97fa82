// SPDX-License-Identifier: Apache-2.0
//
// What a page's module leaves out: decoders, because a page opens encoders only. Read next: CMakeLists.txt.
#include <stdexcept>

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

}  // namespace regard::inline v0
