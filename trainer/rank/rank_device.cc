#include "trainer/rank/rank_device.h"

#include <utility>

#include "common/status.h"
#include "glog/logging.h"
#include "kernels/cuda/device.h"
#include "trainer/exit_code.h"

namespace muster::rank {

bool UsesGpu(const v1::Resources& resources, absl::string_view visible_devices) {
  return resources.device() == "gpu" || (resources.device() == "auto" && !visible_devices.empty());
}

kernels::cuda::Numerics NumericsOf(const v1::TrainSpec& spec) {
  const bool deterministic =
      !spec.has_deterministic() || spec.deterministic() != v1::TrainSpec::NOT_DETERMINISTIC;
  return {.deterministic = deterministic, .tf32 = spec.tf32()};
}

absl::StatusOr<std::unique_ptr<kernels::Device>> OpenGpu(const kernels::cuda::Numerics& numerics,
                                                         int index, const std::string& library) {
  absl::StatusOr<std::unique_ptr<kernels::Device>> device =
      kernels::OpenCudaDevice(index, library, numerics);
  if (device.ok()) return device;
  return train::WithExitCode(device.status(), train::kExitNoDevice);
}

absl::StatusOr<std::vector<std::unique_ptr<kernels::Device>>> OpenGpus(
    const kernels::cuda::Numerics& numerics, int count, const std::string& library) {
  std::vector<std::unique_ptr<kernels::Device>> gpus;
  while (static_cast<int>(gpus.size()) < count) {
    ASSIGN_OR_RETURN(gpus.emplace_back(),
                     OpenGpu(numerics, static_cast<int>(gpus.size()), library));
    LOG(INFO) << "computes on " << gpus.back()->name();
  }
  if (count > 1) {
    ASSIGN_OR_RETURN(const int pairs, kernels::EnablePeerAccess(count, library));
    LOG(INFO) << pairs << " of " << count * (count - 1)
              << " pairs of GPUs access each other's memory directly";
  }
  return gpus;
}

absl::StatusOr<collectives::NcclParts> OpenNccl(kernels::Device& device) {
  auto library = collectives::OpenNcclLibrary();
  RETURN_IF_ERROR(train::WithExitCode(library.status(), train::kExitNoDevice));
  return collectives::NcclParts{*std::move(library), [&device] { return device.MakeStream(); }};
}

}  // namespace muster::rank
