#include "kernels/contract/kernel_set.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/table/instruction_set.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/testing/on_host.h"

namespace muster::kernels {
namespace {

// Path from the workspace's root, for tests; in a bundle, the library is in its default place.
constexpr char kCudaLibrary[] = "kernels/cuda/libmuster-cuda.so";

// The first GPU and its kernels, for a test's only thread.
struct Gpu {
  const MusterCudaApi* api = nullptr;
  MusterCudaContext* context = nullptr;
  const KernelTable* kernels = nullptr;
};
Gpu gpu;

void DieOf(const char* error) {
  if (error == nullptr) return;
  std::fprintf(stderr, "CUDA: %s\n", error);
  std::abort();
}

// Calls the table's function and waits for the device.
template <auto kFunction>
struct Waiting;
template <typename... Arguments, void (*KernelTable::*kFunction)(Arguments...)>
struct Waiting<kFunction> {
  static void Call(Arguments... arguments) {
    (gpu.kernels->*kFunction)(arguments...);
    DieOf(gpu.api->synchronize(gpu.context));
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

void* AllocateForGpu(size_t bytes) {
  void* data = nullptr;
  DieOf(gpu.api->allocate_host(gpu.context, bytes, &data));
  return data;
}

void ReleaseForGpu(void* data) { gpu.api->release_host(gpu.context, data); }

absl::StatusOr<KernelSetUse> UseGpu() {
  static const absl::Status opened = [] {
    const absl::StatusOr<const MusterCudaApi*> api = OpenCudaLibrary(CudaLibraryOfTests());
    if (!api.ok()) return api.status();
    const char* error = nullptr;
    if ((*api)->device_count(&error) == 0) {
      return absl::UnavailableError(absl::StrCat("no GPU: ", error));
    }
    gpu.api = *api;
    gpu.kernels = static_cast<const KernelTable*>(gpu.api->kernels);
    DieOf(gpu.api->open(0, &gpu.context));
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
