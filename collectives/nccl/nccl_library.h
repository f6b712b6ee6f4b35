// NCCL, NVIDIA's library of collectives, opened at run time: the same rank runs where there is
// none.
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

// NCCL's functions under their names in nccl_abi.h; an optional one that this version lacks is
// null. Which thread may call which, and when, is the caller's business. It stays open for good, as
// NCCL has threads of its own.
struct NcclLibrary {
#define DECLARE(name, symbol, parameters) NcclResult(*name) parameters = nullptr;
  NCCL_REQUIRED_FUNCTIONS(DECLARE)
  NCCL_OPTIONAL_FUNCTIONS(DECLARE)
#undef DECLARE
#define DECLARE(name, symbol, parameters) const char*(*name)parameters = nullptr;
  NCCL_TEXT_FUNCTIONS(DECLARE)
#undef DECLARE

  std::string path;  // that it was opened by
  int version_code = 0;

  std::string VersionText() const;  // e.g. 2.28.9

  // OK for kNcclSuccess and kNcclInProgress. UNAVAILABLE where a peer or the way to it is gone
  // (remote and system errors), FAILED_PRECONDITION where NCCL refuses what it was asked for,
  // INTERNAL else; with NCCL's own words. `comm` may be null.
  absl::Status StatusOf(NcclResult code, absl::string_view what, NcclComm comm) const;
};

// Has NCCL write its warnings where the process writes, unless the environment says otherwise
// (NCCL_DEBUG, NCCL_DEBUG_FILE). Call it in main, before there are threads.
void SetNcclEnvironment();

// Where the library is looked for: libnccl.so.2 in the folders of the environment variable
// MUSTER_CUDA_LIBRARY_PATH (separated by colons), then as the dynamic linker finds it, then in
// /usr/local/cuda/lib64 and /usr/local/cuda/lib.
std::vector<std::string> NcclLibraryPlaces();

// Opens `library`, or, when that is empty, the first of NcclLibraryPlaces that can be. NOT_FOUND
// names what was looked for and why it was no good; FAILED_PRECONDITION names a library that is too
// old.
absl::StatusOr<std::shared_ptr<const NcclLibrary>> OpenNcclLibrary(const std::string& library = "");

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_NCCL_LIBRARY_H_
