#include "kernels/cuda/library/cudnn.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "kernels/out_of_memory.h"

namespace muster::kernels::cuda {

absl::Status Cudnn::StatusOf(CudnnStatus code, absl::string_view what) const {
  if (code == kCudnnSuccess) return absl::OkStatus();
  char text[512] = "";
  last_error(text, sizeof(text));
  if (code == kCudnnDeviceAllocationFailed) {
    return OutOfMemoryError("cuDNN", what, /*bytes=*/0, /*free_bytes=*/0, text);
  }
  const std::string message = absl::StrCat("cuDNN: ", what, ": error ", code, ": ", text);
  const bool unsupported = code / 1000 * 1000 == kCudnnNotSupported;
  return unsupported ? absl::UnimplementedError(message) : absl::InternalError(message);
}

absl::StatusOr<Cudnn> OpenCudnn(const LibrarySearchPath& search_path) {
  constexpr char kLibrary[] = "libcudnn.so.9";
  const absl::StatusOr<void*> library = OpenLibrary({kLibrary}, search_path);
  if (!library.ok()) return library.status();
  Cudnn cudnn;
  std::string missing;
  const auto find = [&](const char* symbol, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(*library, symbol));
    if (function == nullptr) missing = symbol;
  };
#define MUSTER_FIND(name, symbol, parameters) find(#symbol, cudnn.name);
  CUDNN_FUNCTIONS(MUSTER_FIND)
#undef MUSTER_FIND
  find("cudnnGetVersion", cudnn.version);
  find("cudnnGetLastErrorString", cudnn.last_error);
  if (!missing.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("CUDA: ", kLibrary, " lacks ", missing));
  }
  return cudnn;
}

}  // namespace muster::kernels::cuda
