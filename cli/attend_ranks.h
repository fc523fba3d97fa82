// SPDX-License-Identifier: Apache-2.0
//
// `regard attend --ranks`. Read next: attend_ranks.cpp.
#pragma once

#include "attend_options.h"

namespace regard::program {

// Every process reads its rows and its keys. Rank 0 writes the files.
void attend_on_ranks(const AttendText& text, const AttendSettings& settings);

}  // namespace regard::program
