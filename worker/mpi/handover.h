// The connection between a rank and its proxy, the process that Open MPI starts in its place.
//
// The proxy sends its environment, with which the rank starts its program, and kEnd for each signal
// by which Open MPI asks the process to end. The rank sends the wait status of its program once. If
// the other side has ended, the connection is closed.
#ifndef MUSTER_WORKER_MPI_HANDOVER_H_
#define MUSTER_WORKER_MPI_HANDOVER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/owned_fd.h"
#include "worker/mpi/open_mpi.h"

namespace muster::mpi {

// A byte from the proxy after its environment.
inline constexpr char kEnd = 'E';

// Functions return file descriptors with close-on-exec, and errors of errno.
// `directory` may be longer than an address of a socket.

// Listens on the socket of the rank with this local rank.
absl::StatusOr<OwnedFd> ListenForProxy(const std::string& directory, uint32_t local_rank);
// Connects to it. NOT_FOUND and UNAVAILABLE: the rank does not listen yet.
absl::StatusOr<OwnedFd> ConnectToRank(const std::string& directory, uint32_t local_rank);

// Blocks until all is sent.
absl::Status SendEnvironment(int fd, const Environment& environment);
// Blocks until all is received. UNAVAILABLE if the proxy has ended, INVALID_ARGUMENT if it sends
// something else.
absl::StatusOr<Environment> ReceiveEnvironment(int fd);

// `status` as of waitpid.
absl::Status SendWaitStatus(int fd, int status);
// Nothing if the rank has ended without a status.
std::optional<int> ReceiveWaitStatus(int fd);

}  // namespace muster::mpi

#endif  // MUSTER_WORKER_MPI_HANDOVER_H_
