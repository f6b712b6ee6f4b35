#include "kernels/contract/kernel_set.h"

#include <filesystem>
#include <map>
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
constexpr char kCudaPtxLibrary[] = "tests/gpu/ptx/plugin/libmuster-cuda-ptx.so";

// The first GPU of a library, its kernels and its arrays, for a test's only thread.
struct Gpu {
  const KernelTable* kernels = nullptr;
  const KernelTable* waiting_kernels = nullptr;
  DeviceArrays* arrays = nullptr;
};
Gpu gpu;  // that the current test uses

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

const KernelTable* WaitingKernels(const KernelTable& kernels) {
  auto* const made = new KernelTable(kernels);
  using T = KernelTable;
  MakeWaiting<&T::batch_norm_statistics, &T::batch_norm_scale, &T::batch_norm_running,
              &T::batch_norm_prepare, &T::cast_ranges, &T::batch_norm_to_sums,
              &T::batch_norm_from_sums, &T::batch_norm_apply,
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
}

void* AllocateForGpu(size_t bytes) { return gpu.arrays->Allocate(bytes); }
void ReleaseForGpu(void* data) { gpu.arrays->Release(data); }

absl::StatusOr<Gpu> OpenGpu(const std::string& library) {
  const absl::StatusOr<const MusterCudaApi*> api = OpenCudaLibrary(library);
  if (!api.ok()) return api.status();
  const char* error = nullptr;
  if ((*api)->device_count(&error) == 0) {
    return absl::UnavailableError(absl::StrCat("no GPU: ", error));
  }
  MusterCudaContext* context = nullptr;
  error = (*api)->open(0, &context);
  if (error != nullptr) return absl::UnavailableError(absl::StrCat("GPU 0: ", error));
  const auto* const kernels = static_cast<const KernelTable*>((*api)->kernels);
  return Gpu{kernels, WaitingKernels(*kernels), new DeviceArrays(**api, context)};
}

absl::StatusOr<KernelSetUse> UseGpu(const std::string& library) {
  static auto& gpus = *new std::map<std::string, absl::StatusOr<Gpu>>;  // by library
  if (gpus.count(library) == 0) gpus.emplace(library, OpenGpu(library));
  const absl::StatusOr<Gpu>& opened = gpus.at(library);
  if (!opened.ok()) return opened.status();
  gpu = *opened;
  return KernelSetUse{gpu.waiting_kernels, {AllocateForGpu, ReleaseForGpu}};
}

}  // namespace

std::string CudaLibraryOfTests() {
  return std::filesystem::exists(kCudaLibrary) ? kCudaLibrary : "";
}

bool HasCudaPtxLibrary() { return std::filesystem::exists(kCudaPtxLibrary); }

std::string CudaPtxLibrary() { return kCudaPtxLibrary; }

std::vector<KernelSet> WithCudaPtx(std::vector<KernelSet> sets) {
  if (HasCudaPtxLibrary()) sets.push_back(KernelSet::kCudaPtx);
  return sets;
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
    case KernelSet::kCudaPtx:
      return "cuda_ptx";
  }
  return "";
}

absl::StatusOr<KernelSetUse> UseKernelSet(KernelSet set) {
  if (set == KernelSet::kCuda) return UseGpu(CudaLibraryOfTests());
  if (set == KernelSet::kCudaPtx) return UseGpu(CudaPtxLibrary());
  if (set == KernelSet::kCudaOnHost) return KernelSetUse{&CudaKernelsOnHost(), {}};
  const auto instructions = static_cast<InstructionSet>(set);
  if (instructions > DetectInstructionSet()) {
    return absl::UnavailableError("this CPU does not support the instruction set");
  }
  return KernelSetUse{&CpuKernels(instructions), {}};
}

}  // namespace muster::kernels
