// Loads libmuster-mpi.so on demand; no other code is linked with MPI.
#ifndef MUSTER_COLLECTIVES_MPI_MPI_LIBRARY_H_
#define MUSTER_COLLECTIVES_MPI_MPI_LIBRARY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/mpi/plugin.h"

namespace muster::collectives {

// Candidate paths of the library: the value of the environment variable MUSTER_MPI_PLUGIN; else the
// program's directory `folder`, then lib next to it.
std::vector<std::string> MpiLibraryPlaces(const std::string& folder);

// Opens the first of MpiLibraryPlaces that exists and keeps it open. Errors are one line: NOT_FOUND
// names the files searched or the missing dependency, FAILED_PRECONDITION a library of another
// version. Thread-safe.
absl::StatusOr<const MusterMpiApi*> OpenMpiLibrary();

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_MPI_MPI_LIBRARY_H_
