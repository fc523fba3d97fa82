// SPDX-License-Identifier: Apache-2.0
//
// The functions of regard-mpi.so, through which the program uses MPI. The program itself does not need MPI, and works
// with every MPI for which there is a plugin. Read next: mpi_plugin.cpp, program_ranks.cpp.
#pragma once

namespace regard {
inline namespace v0 {
class Transport;
}
}  // namespace regard

extern "C" {
// Initializes MPI and returns the transport of all its processes, which the caller deletes.
regard::Transport* regard_mpi_begin();
// Ends MPI. With `failed` it ends all processes, as MPI_Finalize might wait for one that is missing.
void regard_mpi_end(int failed);
}
