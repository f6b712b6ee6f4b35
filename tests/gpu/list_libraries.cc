// Lists the libraries that Muster opens on a machine with a GPU: for each a line with its version,
// or with the reason why it cannot be opened. Exits with 1 if cuDNN, cuBLASLt or libz is missing;
// NCCL is needed only for several ranks.
#include <dlfcn.h>

#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "collectives/nccl/nccl_library.h"
#include "kernels/cuda/library/cublaslt.h"
#include "kernels/cuda/library/cudnn.h"
#include "kernels/cuda/library/open_library.h"

namespace muster {
namespace {

// Version of a library that can be opened, or the error.
using Version = absl::StatusOr<std::string>;

Version CudnnVersion() {
  const auto cudnn = kernels::cuda::OpenCudnn(kernels::cuda::CudaLibrarySearchPath());
  if (!cudnn.ok()) return cudnn.status();
  const size_t version = cudnn->version();
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// cuBLASLt's version is not among the functions that Muster loads.
Version CublasLtVersion() {
  const auto cublaslt = kernels::cuda::OpenCublasLt(kernels::cuda::CudaLibrarySearchPath());
  if (!cublaslt.ok()) return cublaslt.status();
  return "found";
}

Version NcclVersion() {
  const auto nccl = collectives::OpenNcclLibrary();
  if (!nccl.ok()) return nccl.status();
  return (*nccl)->VersionText();
}

// cuDNN opens it at run time.
Version ZlibVersion() {
  void* const library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::NotFoundError(dlerror());
  const auto version = reinterpret_cast<const char* (*)()>(dlsym(library, "zlibVersion"));
  if (version == nullptr) return absl::NotFoundError(dlerror());
  return version();
}

bool Print(const char* name, const Version& version) {
  if (version.ok()) {
    std::cout << name << " " << *version << "\n";
  } else {
    std::cout << version.status().message() << "\n";
  }
  return version.ok();
}

int Main() {
  bool complete = Print("cuDNN", CudnnVersion());
  complete &= Print("cuBLASLt", CublasLtVersion());
  complete &= Print("libz", ZlibVersion());
  Print("NCCL", NcclVersion());
  return complete ? 0 : 1;
}

}  // namespace
}  // namespace muster

int main() { return muster::Main(); }
