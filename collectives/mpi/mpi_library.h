// libmuster-mpi.so, opened when it is asked for: nothing else here is linked with an MPI.
#ifndef MUSTER_COLLECTIVES_MPI_MPI_LIBRARY_H_
#define MUSTER_COLLECTIVES_MPI_MPI_LIBRARY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/mpi/plugin.h"

namespace muster::collectives {

// Where the library is looked for: what the environment variable MUSTER_MPI_PLUGIN names; else
// beside the program that runs from `folder`, then in lib beside that folder.
std::vector<std::string> MpiLibraryPlaces(const std::string& folder);

// Opens the first of MpiLibraryPlaces that is there; it stays open. One line: NOT_FOUND names the
// files that were looked for or the library that it lacks, FAILED_PRECONDITION one that is of
// another version. Thread-safe.
absl::StatusOr<const MusterMpiApi*> OpenMpiLibrary();

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_MPI_MPI_LIBRARY_H_
