#include "kernels/contract/kernel_set.h"

#include <filesystem>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/contract/device_arrays.h"
#include "kernels/cpu/table/instruction_set.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/testing/on_host.h"

namespace muster::kernels {
namespace {

// Path from the workspace's root, for tests; in a bundle, the library is in its default place.
constexpr char kCudaLibrary[] = "kernels/cuda/libmuster-cuda.so";

// The first GPU's kernels and arrays, for a test's only thread.
struct Gpu {
  const KernelTable* kernels = nullptr;
  DeviceArrays* arrays = nullptr;
};
Gpu gpu;

// Calls the table's function with the copies of the arrays in device memory, and waits for it.
template <auto kFunction>
struct Waiting;
template <typename... Arguments, void (*KernelTable::*kFunction)(Arguments...)>
struct Waiting<kFunction> {
  static void Call(Arguments... arguments) {
    gpu.arrays->Upload();
    (gpu.kernels->*kFunction)(gpu.arrays->OnDevice<std::decay_t<Arguments>>(arguments)...);
    gpu.arrays->Download();
  }
};

template <auto... kFunctions>
void MakeWaiting(KernelTable& table) {
  ((table.*kFunctions = Waiting<kFunctions>::Call), ...);
}

const KernelTable& WaitingKernels() {
  static const KernelTable& table = *[] {
    auto* made = new KernelTable(*gpu.kernels);
    using T = KernelTable;
    MakeWaiting<&T::batch_norm_statistics, &T::batch_norm_scale, &T::batch_norm_running,
                &T::batch_norm_to_sums, &T::batch_norm_from_sums, &T::batch_norm_apply,
                &T::batch_norm_backward_parameters, &T::batch_norm_backward_data,
                &T::max_pool_forward, &T::max_pool_backward, &T::average_pool_forward,
                &T::average_pool_backward, &T::activation_forward, &T::activation_backward,
                &T::add_forward, &T::accumulate, &T::scaled_copy, &T::cast, &T::all_finite,
                &T::dropout, &T::draw_blocks, &T::softmax_cross_entropy, &T::l2_normalize_forward,
                &T::l2_normalize_backward, &T::nt_xent_forward, &T::nt_xent_backward, &T::resize,
                &T::load_images, &T::depthwise_convolution_forward,
                &T::depthwise_convolution_backward_data, &T::depthwise_convolution_backward_weights,
                &T::sgd_step, &T::adamw_step, &T::sum_of_squares, &T::lerp, &T::begin_update,
                &T::lars_rates, &T::lars_step, &T::restore_skipped>(*made);
    return made;
  }();
  return table;
}

void* AllocateForGpu(size_t bytes) { return gpu.arrays->Allocate(bytes); }
void ReleaseForGpu(void* data) { gpu.arrays->Release(data); }

absl::StatusOr<KernelSetUse> UseGpu() {
  static const absl::Status opened = [] {
    const absl::StatusOr<const MusterCudaApi*> api = OpenCudaLibrary(CudaLibraryOfTests());
    if (!api.ok()) return api.status();
    const char* error = nullptr;
    if ((*api)->device_count(&error) == 0) {
      return absl::UnavailableError(absl::StrCat("no GPU: ", error));
    }
    MusterCudaContext* context = nullptr;
    error = (*api)->open(0, &context);
    if (error != nullptr) return absl::UnavailableError(absl::StrCat("GPU 0: ", error));
    gpu.kernels = static_cast<const KernelTable*>((*api)->kernels);
    gpu.arrays = new DeviceArrays(**api, context);
    return absl::OkStatus();
  }();
  if (!opened.ok()) return opened;
  return KernelSetUse{&WaitingKernels(), {AllocateForGpu, ReleaseForGpu}};
}

}  // namespace

std::string CudaLibraryOfTests() {
  return std::filesystem::exists(kCudaLibrary) ? kCudaLibrary : "";
}

std::string NameOf(KernelSet set) {
  switch (set) {
    case KernelSet::kPlain:
      return "plain";
    case KernelSet::kAvx2:
      return "avx2";
    case KernelSet::kAvx512:
      return "avx512";
    case KernelSet::kAvx512Bf16:
      return "avx512_bf16";
    case KernelSet::kCudaOnHost:
      return "cuda_on_host";
    case KernelSet::kCuda:
      return "cuda";
  }
  return "";
}

absl::StatusOr<KernelSetUse> UseKernelSet(KernelSet set) {
  if (set == KernelSet::kCuda) return UseGpu();
  if (set == KernelSet::kCudaOnHost) return KernelSetUse{&CudaKernelsOnHost(), {}};
  const auto instructions = static_cast<InstructionSet>(set);
  if (instructions > DetectInstructionSet()) {
    return absl::UnavailableError("this CPU does not support the instruction set");
  }
  return KernelSetUse{&CpuKernels(instructions), {}};
}

}  // namespace muster::kernels
