#include "kernels/cuda/convolution/layer_factory.h"

#include "absl/strings/str_cat.h"
#include "kernels/cpu/convolution/depthwise/engine.h"
#include "kernels/cuda/convolution/cublaslt/linear.h"
#include "kernels/cuda/convolution/cudnn/convolution.h"
#include "kernels/cuda/loss/nt_xent_loss.h"

namespace muster::kernels::cuda {

LayerFactory::~LayerFactory() {
  if (cudnn_handle_ != nullptr) cudnn_->destroy(cudnn_handle_);
  if (cublaslt_handle_ != nullptr) cublaslt_->destroy(cublaslt_handle_);
}

absl::Status LayerFactory::StartCudnn() {
  if (cudnn_handle_ != nullptr) return absl::OkStatus();
  absl::StatusOr<Cudnn> opened = OpenCudnn(setup_.search_path);
  if (!opened.ok()) return opened.status();
  CudnnHandle handle = nullptr;
  absl::Status status = opened->StatusOf(opened->create(&handle), "start");
  if (!status.ok()) return absl::UnavailableError(status.message());
  cudnn_ = *std::move(opened);
  cudnn_handle_ = handle;
  plans_.emplace(setup_.plan_folder, absl::StrCat(setup_.machine, " cuDNN ", cudnn_->version()));
  return cudnn_->StatusOf(cudnn_->set_stream(handle, setup_.stream), "stream");
}

absl::Status LayerFactory::StartCublasLt() {
  if (cublaslt_handle_ != nullptr) return absl::OkStatus();
  absl::StatusOr<CublasLt> opened = OpenCublasLt(setup_.search_path);
  if (!opened.ok()) return opened.status();
  CublasLtHandle handle = nullptr;
  const absl::Status status = opened->StatusOf(opened->create(&handle), "start");
  if (!status.ok()) return absl::UnavailableError(status.message());
  cublaslt_ = *std::move(opened);
  cublaslt_handle_ = handle;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Convolution>> LayerFactory::Make(const ConvolutionShape& shape,
                                                                const ConvolutionOptions& options) {
  if (!shape.valid() || !options.valid()) return InvalidLayerError(shape);
  const KernelTable& kernels = runtime_.device->kernels();
  if (shape.depthwise()) {
    // `threads` are CPU threads; one queues the kernels.
    ConvolutionOptions single_thread = options;
    single_thread.threads = 1;
    return cpu::MakeDepthwiseConvolution(shape, single_thread, kernels);
  }
  if (IsLinear(shape)) {
    const absl::Status status = StartCublasLt();
    if (!status.ok()) return status;
    return MakeCublasLtLinear(shape, options, runtime_, *cublaslt_, cublaslt_handle_,
                              setup_.stream);
  }
  const absl::Status status = StartCudnn();
  if (!status.ok()) return status;
  return MakeCudnnConvolution(shape, options, runtime_,
                              {.cudnn = &*cudnn_, .handle = cudnn_handle_}, *plans_);
}

absl::StatusOr<std::unique_ptr<NtXentLoss>> LayerFactory::MakeNtXentLoss(
    const NtXentShape& largest) {
  const absl::Status started = StartCublasLt();
  if (absl::IsNotFound(started)) return MakeKernelNtXentLoss(*runtime_.device, largest);
  if (!started.ok()) return started;
  auto made =
      MakeCublasLtNtXentLoss(largest, runtime_, *cublaslt_, cublaslt_handle_, setup_.stream);
  if (!absl::IsUnimplemented(made.status())) return made;
  return MakeKernelNtXentLoss(*runtime_.device, largest);
}

}  // namespace muster::kernels::cuda
