// SPDX-License-Identifier: Apache-2.0
//
// attention_forward with few rows a key head: packing keys and values would take longer than reading them in place.
// Read next: unpacked_keys.cpp.
#pragma once

#include "arguments.h"

namespace regard::inline v0::internal {

// Why keys and values are packed for this call, in words for a plan, empty where its rows are many; nullptr:
// attend_unpacked takes it.
const char* why_packed(const UntypedAttention& r);

// Writes every output but weights, with the bits of any other way. name: of the operator; written_bytes: what it
// writes.
template <class T>
void attend_unpacked(const char* name, const ResolvedAttention<T>& r, const TypedOutputs<T>& outputs,
                     double written_bytes, const Runtime& runtime);

}  // namespace regard::inline v0::internal
