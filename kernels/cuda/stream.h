// A GPU's streams beside the one that it computes in, by the plug-in.
#ifndef MUSTER_KERNELS_CUDA_STREAM_H_
#define MUSTER_KERNELS_CUDA_STREAM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/capture.h"
#include "kernels/cuda/plugin/plugin.h"
#include "kernels/device.h"
#include "kernels/device_stream.h"

namespace muster::kernels::cuda {

// By a thread that has entered `context`, which outlives the stream, as `capture`, the context's,
// does. flag: of a std::atomic<uint32_t>. INTERNAL with CUDA's words.
absl::StatusOr<std::unique_ptr<DeviceStream>> MakeStream(const MusterCudaApi& api,
                                                         MusterCudaContext* context,
                                                         const Capture* capture, HostMemory flag);

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_STREAM_H_
