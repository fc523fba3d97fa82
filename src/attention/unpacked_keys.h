// SPDX-License-Identifier: Apache-2.0
//
// attention_forward with few rows per KV head, for which packing keys and values would take longer than reading them
// unpacked.
// Read next: unpacked_keys.cpp.
#pragma once

#include "arguments.h"

namespace regard::inline v0::internal {

// The reason why keys and values are packed for this call, for a plan; empty if the call has many rows. nullptr:
// attend_unpacked can handle the call.
const char* packing_reason(const UntypedAttention& r);

// Writes every output except weights; the bits are the same as those of every other schedule. name: of the operator;
// written_bytes: the size of its outputs.
template <class T>
void attend_unpacked(const char* name, const ResolvedAttention<T>& r, const TypedOutputs<T>& outputs,
                     double written_bytes, const Runtime& runtime);

}  // namespace regard::inline v0::internal
