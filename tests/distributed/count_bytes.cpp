// SPDX-License-Identifier: Apache-2.0
//
// Counts the bytes that a program sends through MPI, with MPI's profiling interface: linked before MPI, these functions
// replace those of the same name. MPI_Finalize writes the counts of each rank to $REGARD_COUNT_BYTES.<rank>:
//
//     section, receiver, tag, messages, bytes      one line each
//
// MPI_Pcontrol(n) starts section n. Only MPI_Isend is expected; any other function that sends is reported as a line
// "unexpected <function>". Read next: volume_test.py.
#include <mpi.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>

namespace {

struct Sent {
  long messages = 0, bytes = 0;
};

std::mutex mutex;
int section = 0;
std::map<std::tuple<int, int, int>, Sent> counts;
std::set<std::string> unexpected;

void count_unexpected(const char* function) {
  const std::lock_guard lock(mutex);
  unexpected.insert(function);
}

}  // namespace

extern "C" {

int MPI_Pcontrol(const int level, ...) {
  const std::lock_guard lock(mutex);
  section = level;
  return MPI_SUCCESS;
}

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm communicator,
              MPI_Request* request) {
  int size = 0;
  PMPI_Type_size(type, &size);
  {
    const std::lock_guard lock(mutex);
    Sent& sent = counts[{section, to, tag}];
    ++sent.messages;
    sent.bytes += static_cast<long>(count) * size;
  }
  return PMPI_Isend(data, count, type, to, tag, communicator, request);
}

int MPI_Send(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm communicator) {
  count_unexpected("MPI_Send");
  return PMPI_Send(data, count, type, to, tag, communicator);
}
int MPI_Ssend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm communicator) {
  count_unexpected("MPI_Ssend");
  return PMPI_Ssend(data, count, type, to, tag, communicator);
}
int MPI_Issend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm communicator,
               MPI_Request* request) {
  count_unexpected("MPI_Issend");
  return PMPI_Issend(data, count, type, to, tag, communicator, request);
}
int MPI_Sendrecv(const void* data, int count, MPI_Datatype type, int to, int tag, void* received, int most,
                 MPI_Datatype received_type, int from, int received_tag, MPI_Comm communicator, MPI_Status* status) {
  count_unexpected("MPI_Sendrecv");
  return PMPI_Sendrecv(data, count, type, to, tag, received, most, received_type, from, received_tag, communicator,
                       status);
}
int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm communicator) {
  count_unexpected("MPI_Bcast");
  return PMPI_Bcast(data, count, type, root, communicator);
}
int MPI_Allreduce(const void* data, void* result, int count, MPI_Datatype type, MPI_Op operation,
                  MPI_Comm communicator) {
  count_unexpected("MPI_Allreduce");
  return PMPI_Allreduce(data, result, count, type, operation, communicator);
}
int MPI_Allgather(const void* data, int count, MPI_Datatype type, void* result, int each, MPI_Datatype result_type,
                  MPI_Comm communicator) {
  count_unexpected("MPI_Allgather");
  return PMPI_Allgather(data, count, type, result, each, result_type, communicator);
}
int MPI_Alltoallv(const void* data, const int* counts_sent, const int* first_sent, MPI_Datatype type, void* result,
                  const int* counts_received, const int* first_received, MPI_Datatype result_type,
                  MPI_Comm communicator) {
  count_unexpected("MPI_Alltoallv");
  return PMPI_Alltoallv(data, counts_sent, first_sent, type, result, counts_received, first_received, result_type,
                        communicator);
}
int MPI_Put(const void* data, int count, MPI_Datatype type, int to, MPI_Aint offset, int most, MPI_Datatype there,
            MPI_Win window) {
  count_unexpected("MPI_Put");
  return PMPI_Put(data, count, type, to, offset, most, there, window);
}

int MPI_Finalize() {
  if (const char* path = std::getenv("REGARD_COUNT_BYTES")) {
    int rank = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::ofstream file(std::string(path) + "." + std::to_string(rank));
    const std::lock_guard lock(mutex);
    for (const auto& [key, sent] : counts) {
      const auto& [of_section, to, tag] = key;
      file << of_section << ' ' << to << ' ' << tag << ' ' << sent.messages << ' ' << sent.bytes << '\n';
    }
    for (const std::string& function : unexpected) file << "unexpected " << function << '\n';
  }
  return PMPI_Finalize();
}

}  // extern "C"
