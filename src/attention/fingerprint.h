// SPDX-License-Identifier: Apache-2.0
//
// AttentionFingerprint: records the options of a forward call, so that the backward call can verify that its own match.
// Read next: fingerprint.cpp.
#pragma once

#include "arguments.h"

namespace regard::inline v0::internal {

// Writes the fingerprint of the call, unless `to` is null or a plan is being made.
template <class T>
void write_fingerprint(const ResolvedAttention<T>& r, AttentionFingerprint* to);

// Throws std::invalid_argument, naming the options that differ, unless the forward call had the same options as this
// one.
template <class T>
void check_fingerprint(const char* operator_name, const ResolvedAttention<T>& r,
                       const AttentionFingerprint& of_forward);

}  // namespace regard::inline v0::internal
