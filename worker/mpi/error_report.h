// Reports why a rank ended to its job.
#ifndef MUSTER_WORKER_MPI_ERROR_REPORT_H_
#define MUSTER_WORKER_MPI_ERROR_REPORT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace muster::mpi {

// Writes `message` to the file `path` (TORCHELASTIC_ERROR_FILE of the rank), from which the worker
// reads the message of a failure. Does nothing for an empty path; errors are ignored.
void WriteErrorFile(const std::string& path, absl::string_view message);

}  // namespace muster::mpi

#endif  // MUSTER_WORKER_MPI_ERROR_REPORT_H_
