// Additional streams of a GPU, through libmuster-cuda.so.
#ifndef MUSTER_KERNELS_CUDA_STREAM_H_
#define MUSTER_KERNELS_CUDA_STREAM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/capture.h"
#include "kernels/cuda/plugin/plugin.h"
#include "kernels/device.h"
#include "kernels/device_stream.h"

namespace muster::kernels::cuda {

// Creates a stream. Called by a thread that has entered `context`. `context` and its `capture`
// outlive the stream. `flag`: memory for a std::atomic<uint32_t>. Errors: INTERNAL with CUDA's
// text.
absl::StatusOr<std::unique_ptr<DeviceStream>> MakeStream(const MusterCudaApi& api,
                                                         MusterCudaContext* context,
                                                         const Capture* capture, HostMemory flag);

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_STREAM_H_
