#include "collectives/mpi/mpi_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/plugin.h"
#include "common/program_folder.h"

namespace muster::collectives {

std::vector<std::string> MpiLibraryPlaces(const std::string& folder) {
  const char* const named = std::getenv("MUSTER_MPI_PLUGIN");
  if (named != nullptr && *named != '\0') return {named};
  constexpr char kLibrary[] = "libmuster-mpi.so";
  const std::filesystem::path path = folder;
  return {path / kLibrary, path.parent_path() / "lib" / kLibrary};
}

absl::StatusOr<const MusterMpiApi*> OpenMpiLibrary() {
  const std::vector<std::string> places = MpiLibraryPlaces(ProgramFolder());
  // RTLD_GLOBAL: MPI loads its own components, which resolve MPI symbols from the global scope.
  const absl::StatusOr<Plugin> plugin =
      OpenPlugin("mpi", places, MUSTER_MPI_API_SYMBOL, RTLD_NOW | RTLD_GLOBAL);
  if (!plugin.ok()) return plugin.status();
  const MusterMpiApi* const api = reinterpret_cast<decltype(&MusterMpiGetApi)>(plugin->entry)();
  if (api->abi != MUSTER_MPI_ABI || api->message_bytes != sizeof(MusterMpiMessage)) {
    return absl::FailedPreconditionError(
        absl::StrCat("mpi: ", plugin->path, " belongs to another version of Muster (interface ",
                     api->abi, ", this binary requires ", MUSTER_MPI_ABI, ")"));
  }
  return api;
}

}  // namespace muster::collectives
