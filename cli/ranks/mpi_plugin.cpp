// SPDX-License-Identifier: Apache-2.0
//
// Compiled with an MPI as regard-mpi.so. Read next: mpi_plugin.h.
#include "ranks/mpi_plugin.h"

#include "regard/distributed/mpi.h"

extern "C" {

__attribute__((visibility("default"))) regard::Transport* regard_mpi_begin() {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  return new regard::MpiTransport(MPI_COMM_WORLD);
}

__attribute__((visibility("default"))) void regard_mpi_end(int failed) {
  if (failed) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
}

}  // extern "C"
