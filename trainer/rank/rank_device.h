// Selects and opens the device of a rank.
#ifndef MUSTER_TRAINER_RANK_RANK_DEVICE_H_
#define MUSTER_TRAINER_RANK_RANK_DEVICE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "collectives/nccl/nccl.h"
#include "kernels/cuda/numerics.h"
#include "kernels/device.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::rank {

// Whether a rank computes on a GPU: with device gpu, or with device auto if the worker assigned
// one. `visible_devices`: CUDA_VISIBLE_DEVICES of the rank.
bool UsesGpu(const v1::Resources& resources, absl::string_view visible_devices);

// The algorithms that a job allows on GPUs.
kernels::cuda::Numerics NumericsOf(const v1::TrainSpec& spec);

// Opens visible GPU `index` (from 0); `library`: see kernels::OpenCudaDevice. Returns its errors
// with kExitNoDevice: there is no fallback to the CPU.
absl::StatusOr<std::unique_ptr<kernels::Device>> OpenGpu(const kernels::cuda::Numerics& numerics,
                                                         int index = 0,
                                                         const std::string& library = "");

// Opens the first `count` visible GPUs, which access each other's memory directly where the
// hardware can. Errors: those of OpenGpu.
absl::StatusOr<std::vector<std::unique_ptr<kernels::Device>>> OpenGpus(
    const kernels::cuda::Numerics& numerics, int count, const std::string& library = "");

// Opens NCCL for `device`, a GPU that outlives the result. Returns OpenNcclLibrary's errors with
// kExitNoDevice.
absl::StatusOr<collectives::NcclParts> OpenNccl(kernels::Device& device);

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_RANK_DEVICE_H_
