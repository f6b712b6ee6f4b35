// NVIDIA's libraries, opened at run time: the same binary runs where there are none.
#ifndef MUSTER_KERNELS_CUDA_LIBRARY_OPEN_LIBRARY_H_
#define MUSTER_KERNELS_CUDA_LIBRARY_OPEN_LIBRARY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::kernels::cuda {

// Where libraries lie. A folder that does not exist is no error.
struct LibrarySearchPath {
  std::vector<std::string> first;  // before the dynamic linker's own path
  std::vector<std::string> last;   // after it
};

// Of the environment: first the folders of MUSTER_CUDA_LIBRARY_PATH, separated by colons, as those
// of a Python installation's nvidia packages; last $CUDA_HOME/lib64, /usr/local/cuda/lib64 and
// /usr/local/cuda/lib.
LibrarySearchPath CudaLibrarySearchPath();

// The first of `names` that opens, in the first place that has one; it stays open. Libraries that
// it needs of its own folder are found as it says itself: NVIDIA's say $ORIGIN. NOT_FOUND in one
// line, which names the files and the places or, where one is there and does not open, the linker's
// word.
absl::StatusOr<void*> OpenLibrary(const std::vector<std::string>& names,
                                  const LibrarySearchPath& places);

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_LIBRARY_OPEN_LIBRARY_H_
