#include "kernels/cuda/testing/on_host_device.h"

#include <dlfcn.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/testing/on_host.h"
#include "kernels/host_memory_device.h"
#include "kernels/launch_log.h"
#include "kernels/testing/immediate_stream.h"

namespace muster::kernels {
namespace {

constexpr char kFolder[] = "kernels/cuda/testing/fakes";
constexpr char kCudnn[] = "libcudnn.so.9";
constexpr char kCublasLt[] = "libcublasLt.so.13";

// Opens the library as OpenLibrary does, so that both refer to the same instance.
template <typename Function>
Function* FunctionOf(const char* library, const char* symbol) {
  void* const opened = dlopen(absl::StrCat(kFolder, "/", library).c_str(), RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(dlsym(opened, symbol));
}

class CudaOnHostDevice final : public HostMemoryDevice {
 public:
  explicit CudaOnHostDevice(const CudaOnHostOptions& options)
      : captures_(options.captures),
        layers_({.search_path = {.first = {kFolder}, .last = {}},
                 .plan_folder = options.plan_folder,
                 .machine = "host",
                 .stream = stream_.native()},
                {.device = this,
                 .kernels = &CudaConvolutionKernelsOnHost(),
                 .time =
                     [options](absl::FunctionRef<void()> work) {
                       FakeCudnn& cudnn = GetFakeCudnn();
                       const int64_t runs = cudnn.runs;
                       cudnn.dry_run = 1;
                       work();
                       cudnn.dry_run = 0;
                       return options.time(cudnn.last_engine) *
                              static_cast<float>(cudnn.runs - runs);
                     },
                 .report = [this](const absl::Status& error) { error_.Update(error); },
                 .numerics = options.numerics}) {}

  std::string name() const override { return "cuda on host"; }
  const KernelTable& kernels() const override { return CudaKernelsOnHost(); }
  absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(
      const ConvolutionShape& shape, const ConvolutionOptions& options) override {
    return layers_.Make(shape, options);
  }
  absl::StatusOr<std::unique_ptr<NtXentLoss>> MakeNtXentLoss(const NtXentShape& largest) override {
    return layers_.MakeNtXentLoss(largest);
  }
  void CopyToDevice(void* to, const void* host, size_t bytes) override {
    HostMemoryDevice::Copy(to, host, bytes);
  }
  void CopyToHost(void* host, const void* from, size_t bytes) override {
    HostMemoryDevice::Copy(host, from, bytes);
  }
  void Copy(void* to, const void* from, size_t bytes) override {
    if (bytes > 0) LaunchLog::Record("memcpy");
    HostMemoryDevice::Copy(to, from, bytes);
  }
  void Zero(void* to, size_t bytes) override {
    if (bytes > 0) LaunchLog::Record("memset");
    HostMemoryDevice::Zero(to, bytes);
  }
  absl::Status Synchronize() override { return error_; }
  absl::Status error() override { return error_; }
  bool supports_graph_capture() const override { return captures_; }

 private:
  const bool captures_;
  absl::Status error_;  // the first error
  ImmediateStream stream_;
  cuda::LayerFactory layers_;
};

}  // namespace

std::unique_ptr<Device> MakeCudaOnHostDevice(const CudaOnHostOptions& options) {
  return std::make_unique<CudaOnHostDevice>(options);
}

FakeCudnn& GetFakeCudnn() {
  static FakeCudnn& fake = *FunctionOf<MusterFakeCudnnFunction>(kCudnn, "MusterFakeCudnn")();
  return fake;
}

FakeCublasLt& GetFakeCublasLt() {
  static FakeCublasLt& fake =
      *FunctionOf<MusterFakeCublasLtFunction>(kCublasLt, "MusterFakeCublasLt")();
  return fake;
}

bool HasFakeLibraries() {
  const std::filesystem::path folder = kFolder;
  return std::filesystem::exists(folder / kCudnn) && std::filesystem::exists(folder / kCublasLt);
}

}  // namespace muster::kernels
