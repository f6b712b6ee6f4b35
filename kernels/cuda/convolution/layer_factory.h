// Convolutions and linear layers on a GPU, each by what serves it: kernels of ours for depthwise
// ones, cuBLASLt for linear layers, cuDNN for the others.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_LAYER_FACTORY_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_LAYER_FACTORY_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/convolution.h"
#include "kernels/cuda/convolution/cudnn/plan_cache.h"
#include "kernels/cuda/convolution/layer_runtime.h"
#include "kernels/cuda/library/cublaslt.h"
#include "kernels/cuda/library/cudnn.h"
#include "kernels/cuda/library/open_library.h"

namespace muster::kernels::cuda {

// Owned by a device, for its one thread; outlives the layers. A library is opened when the first
// layer needs it.
class LayerFactory {
 public:
  struct Setup {
    LibrarySearchPath places;
    std::string plan_folder;  // see PlanCache
    std::string machine;      // the GPU and its driver
    void* stream = nullptr;   // that layers queue in
  };
  LayerFactory(Setup setup, LayerRuntime runtime)
      : setup_(std::move(setup)), runtime_(std::move(runtime)) {}
  ~LayerFactory();
  LayerFactory(const LayerFactory&) = delete;
  LayerFactory& operator=(const LayerFactory&) = delete;

  // The errors of the layers' makers. NOT_FOUND in one line that names the library which is
  // missing, UNAVAILABLE with its word where it does not start.
  absl::StatusOr<std::unique_ptr<Convolution>> Make(const ConvolutionShape& shape,
                                                    const ConvolutionOptions& options);

 private:
  absl::Status StartCudnn();
  absl::Status StartCublasLt();

  const Setup setup_;
  const LayerRuntime runtime_;
  // With their handles, once they are started.
  std::optional<Cudnn> cudnn_;
  CudnnHandle cudnn_handle_ = nullptr;
  std::optional<PlanCache> plans_;
  std::optional<CublasLt> cublaslt_;
  CublasLtHandle cublaslt_handle_ = nullptr;
};

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_LAYER_FACTORY_H_
