// Creates convolutions, linear layers and the NT-Xent loss on a GPU: Muster's own kernels for
// depthwise convolutions, cuBLASLt for linear layers and NT-Xent, cuDNN for all others.
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

// Owned by a device and used by its thread only. Outlives the layers. Opens a library when the
// first layer needs it.
class LayerFactory {
 public:
  struct Setup {
    LibrarySearchPath search_path;
    std::string plan_folder;  // see PlanCache
    std::string machine;      // names the GPU and its driver
    void* stream = nullptr;   // the cudaStream_t of the layers
  };
  LayerFactory(Setup setup, LayerRuntime runtime)
      : setup_(std::move(setup)), runtime_(std::move(runtime)) {}
  ~LayerFactory();
  LayerFactory(const LayerFactory&) = delete;
  LayerFactory& operator=(const LayerFactory&) = delete;

  // Errors: NOT_FOUND with a one-line message that names the missing library, UNAVAILABLE with the
  // library's text if it fails to start, and those of MakeCudnnConvolution and MakeCublasLtLinear.
  absl::StatusOr<std::unique_ptr<Convolution>> Make(const ConvolutionShape& shape,
                                                    const ConvolutionOptions& options);
  // Without a cuBLASLt that has algorithms for it, the loss is computed by the device's kernels.
  // Errors: UNAVAILABLE and those of MakeCublasLtNtXentLoss.
  absl::StatusOr<std::unique_ptr<NtXentLoss>> MakeNtXentLoss(const NtXentShape& largest);

 private:
  absl::Status StartCudnn();
  absl::Status StartCublasLt();

  const Setup setup_;
  const LayerRuntime runtime_;
  // Libraries and their handles; empty until started.
  std::optional<Cudnn> cudnn_;
  CudnnHandle cudnn_handle_ = nullptr;
  std::optional<PlanCache> plans_;
  std::optional<CublasLt> cublaslt_;
  CublasLtHandle cublaslt_handle_ = nullptr;
};

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_LAYER_FACTORY_H_
