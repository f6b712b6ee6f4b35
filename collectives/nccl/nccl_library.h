// NVIDIA NCCL, loaded at run time, so that the same binary runs on machines without it.
#ifndef MUSTER_COLLECTIVES_NCCL_NCCL_LIBRARY_H_
#define MUSTER_COLLECTIVES_NCCL_NCCL_LIBRARY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "collectives/nccl/nccl_abi.h"

namespace muster::collectives {

// NCCL's functions, named as in nccl_abi.h; an optional function that this version lacks is null.
// The caller is responsible for threading and ordering of calls. The library is never closed,
// because NCCL has its own threads.
struct NcclLibrary {
#define DECLARE(name, symbol, parameters) NcclResult(*name) parameters = nullptr;
  NCCL_REQUIRED_FUNCTIONS(DECLARE)
  NCCL_OPTIONAL_FUNCTIONS(DECLARE)
#undef DECLARE
#define DECLARE(name, symbol, parameters) const char*(*name)parameters = nullptr;
  NCCL_TEXT_FUNCTIONS(DECLARE)
#undef DECLARE

  std::string path;  // as passed to dlopen
  int version_code = 0;

  std::string VersionText() const;  // e.g. 2.28.9

  // Returns OK for kNcclSuccess and kNcclInProgress. UNAVAILABLE if a peer or the connection to it
  // is lost (remote and system errors), FAILED_PRECONDITION if NCCL refuses the request, INTERNAL
  // otherwise; with NCCL's message. `comm` may be null.
  absl::Status StatusOf(NcclResult code, absl::string_view what, NcclComm comm) const;
};

// Makes NCCL print warnings to the process's output, unless the environment sets NCCL_DEBUG or
// NCCL_DEBUG_FILE. Call it in main before threads start.
void SetNcclEnvironment();

// Candidate paths of the library: libnccl.so.2 in the directories of the environment variable
// MUSTER_CUDA_LIBRARY_PATH (separated by colons), then in the dynamic linker's search path, then in
// /usr/local/cuda/lib64 and /usr/local/cuda/lib.
std::vector<std::string> NcclLibraryPlaces();

// Opens `library` or, if that is empty, the first of NcclLibraryPlaces that can be opened.
// NOT_FOUND lists the files tried and their errors; FAILED_PRECONDITION names a library that is too
// old.
absl::StatusOr<std::shared_ptr<const NcclLibrary>> OpenNcclLibrary(const std::string& library = "");

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_NCCL_LIBRARY_H_
