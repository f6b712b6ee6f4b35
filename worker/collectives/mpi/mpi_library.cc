#include "worker/collectives/mpi/mpi_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
  void* opened = nullptr;
  std::string path;
  for (const std::string& place : places) {
    std::error_code error;
    if (!std::filesystem::exists(place, error)) continue;
    path = place;
    // An MPI opens components of its own, which look for its functions among the program's.
    opened = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
    // Its words name the library that is missing.
    if (opened == nullptr) return absl::NotFoundError(absl::StrCat("mpi: ", dlerror()));
    break;
  }
  if (opened == nullptr) {
    return absl::NotFoundError(absl::StrCat("mpi: no ", absl::StrJoin(places, ", no ")));
  }
  const auto get_api =
      reinterpret_cast<decltype(&MusterMpiGetApi)>(dlsym(opened, MUSTER_MPI_API_SYMBOL));
  if (get_api == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("mpi: ", path, " is not Muster's: it has no ", MUSTER_MPI_API_SYMBOL));
  }
  const MusterMpiApi* const api = get_api();
  if (api->abi != MUSTER_MPI_ABI || api->message_bytes != sizeof(MusterMpiMessage)) {
    return absl::FailedPreconditionError(
        absl::StrCat("mpi: ", path, " is of another version of Muster: it has interface ", api->abi,
                     ", this binary needs ", MUSTER_MPI_ABI));
  }
  return api;
}

}  // namespace muster::collectives
