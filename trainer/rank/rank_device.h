// What a rank computes on.
#ifndef MUSTER_TRAINER_RANK_RANK_DEVICE_H_
#define MUSTER_TRAINER_RANK_RANK_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "collectives/nccl/nccl.h"
#include "kernels/device.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::rank {

// Whether a rank computes on a GPU: device gpu, or auto where the worker gave it one, which
// `visible_devices`, its CUDA_VISIBLE_DEVICES, then names.
bool UsesGpu(const v1::Resources& resources, absl::string_view visible_devices);

// A GPU that this process sees, numbered from 0, by kernels::OpenCudaDevice's `library`. Its
// errors, with kExitNoDevice: a rank that was given a GPU and cannot use it does not train without.
absl::StatusOr<std::unique_ptr<kernels::Device>> OpenGpu(int index = 0,
                                                         const std::string& library = "");

// What connects `device`, a GPU that outlives it, with those of other ranks. OpenNcclLibrary's
// errors, with kExitNoDevice.
absl::StatusOr<collectives::NcclParts> OpenNccl(kernels::Device& device);

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_RANK_DEVICE_H_
