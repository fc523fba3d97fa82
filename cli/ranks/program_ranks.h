// SPDX-License-Identifier: Apache-2.0
//
// `--ranks`: a subcommand that mpirun has started several times.
//
//     run_on_ranks(timeout, [&](Ranks& ranks) { … })
//       an exception on one rank      ends all: each says which rank failed, and why
//       an exception on all ranks     is reported once, by rank 0 (OnAllRanks)
//
// Read next: program_ranks.cpp, mpi_plugin.h.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "regard/distributed/ranks.h"

namespace regard::program {

// An error that every rank reports with the same text: main prints it on rank 0 only.
class OnAllRanks : public std::runtime_error {
 public:
  OnAllRanks(const std::string& text, bool is_first) : std::runtime_error(text), is_first_(is_first) {}
  bool is_first() const { return is_first_; }

 private:
  bool is_first_;
};

// The value of --timeout, in seconds. Throws UsageError.
RanksOptions parse_timeout(const std::string& text);

// Starts MPI, runs the function, and ends MPI.
void run_on_ranks(const RanksOptions& options, const std::function<void(Ranks&)>& run);

}  // namespace regard::program
