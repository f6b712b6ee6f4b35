// The functions of libcudnn.so.9, loaded at run time.
#ifndef MUSTER_KERNELS_CUDA_LIBRARY_CUDNN_H_
#define MUSTER_KERNELS_CUDA_LIBRARY_CUDNN_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/library/cudnn_abi.h"
#include "kernels/cuda/library/open_library.h"
#include "kernels/data_type.h"

namespace muster::kernels::cuda {

struct Cudnn {
#define MUSTER_DECLARE(name, symbol, parameters) CudnnStatus(*name) parameters = nullptr;
  CUDNN_FUNCTIONS(MUSTER_DECLARE)
#undef MUSTER_DECLARE
  size_t (*version)() = nullptr;  // 91900 for 9.19.0
  void (*last_error)(char* text, size_t size) = nullptr;

  // Converts cuDNN's status, with its last error text and `what` in the message: UNIMPLEMENTED for
  // unsupported operations, INTERNAL for other errors.
  absl::Status StatusOf(CudnnStatus code, absl::string_view what) const;
};

// Opens libcudnn.so.9. Errors: NOT_FOUND if there is none, FAILED_PRECONDITION if it lacks a
// function.
absl::StatusOr<Cudnn> OpenCudnn(const LibrarySearchPath& search_path);

constexpr CudnnDataType CudnnTypeOf(DataType type) {
  switch (type) {
    case DataType::kBfloat16:
      return kCudnnBfloat16;
    case DataType::kFloat16:
      return kCudnnHalf;
    default:  // kFloat32
      return kCudnnFloat;
  }
}

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_LIBRARY_CUDNN_H_
