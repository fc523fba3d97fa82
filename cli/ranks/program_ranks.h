// SPDX-License-Identifier: Apache-2.0
//
// `--ranks`: a subcommand that mpirun has started several times.
//
//     run_on_ranks(timeout, [&](Ranks& ranks) { … })
//       an exception on one rank      ends all: each reports which rank failed, and why
//       an exception on all ranks     is reported once, by rank 0
//
// Read next: program_ranks.cpp, mpi_plugin.h.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "regard/distributed/ranks.h"

namespace regard::program {

// An error that has been reported: main only exits with the code.
class ReportedError : public std::runtime_error {
 public:
  ReportedError(const std::string& text, int exit_code) : std::runtime_error(text), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// The value of --timeout, in seconds. Throws UsageError.
RanksOptions parse_timeout(const std::string& text);

// Starts MPI, runs the function, and ends MPI. Throws ReportedError, and StoppedBySignal as the function does.
void run_on_ranks(const RanksOptions& options, const std::function<void(Ranks&)>& run);

}  // namespace regard::program
