// Opens NVIDIA's libraries at run time, so that the same binary also runs without them.
#ifndef MUSTER_KERNELS_CUDA_LIBRARY_OPEN_LIBRARY_H_
#define MUSTER_KERNELS_CUDA_LIBRARY_OPEN_LIBRARY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::kernels::cuda {

// Folders to search for libraries. Folders that do not exist are ignored.
struct LibrarySearchPath {
  std::vector<std::string> first;  // searched before the dynamic linker's own path
  std::vector<std::string> last;   // searched after it
};

// The search path from the environment: `first` is the colon-separated MUSTER_CUDA_LIBRARY_PATH,
// for example the folders of a Python installation's nvidia packages; `last` is $CUDA_HOME/lib64,
// /usr/local/cuda/lib64 and /usr/local/cuda/lib.
LibrarySearchPath CudaLibrarySearchPath();

// Opens the first of `names` that loads, in the first folder that has one. The library is never
// closed. Its own dependencies are found by its run path, which is $ORIGIN in NVIDIA's libraries.
// Errors: NOT_FOUND with a one-line message that lists the names and folders, or that is
// dlerror()'s if a file exists but does not load.
absl::StatusOr<void*> OpenLibrary(const std::vector<std::string>& names,
                                  const LibrarySearchPath& search_path);

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_LIBRARY_OPEN_LIBRARY_H_
