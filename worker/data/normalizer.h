// From a batch's bytes to a network's input.
#ifndef MUSTER_WORKER_DATA_NORMALIZER_H_
#define MUSTER_WORKER_DATA_NORMALIZER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/device.h"
#include "worker/data/batch.h"
#include "worker/data/image_dataset.h"

namespace muster::data {

// (pixel / 255 - mean) / standard deviation, by channel, on a device that outlives it. Not
// thread-safe.
class Normalizer {
 public:
  // Throws std::bad_alloc.
  Normalizer(const DatasetInfo& info, kernels::Device& device = kernels::CpuDevice());

  // As many floats out, in the device's memory, as the batch has bytes, NHWC; zero in the batch's
  // erasures.
  void Apply(const Batch& batch, float* out);

 private:
  // Where the kernel reads them.
  const uint8_t* OnDevice(absl::Span<const uint8_t> pixels);

  kernels::Device& device_;
  const int64_t channels_;
  kernels::DeviceMemory scale_;  // float32, by channel
  kernels::DeviceMemory shift_;
  kernels::DeviceMemory pixels_;  // of a batch, where the device's memory is not the process's
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_NORMALIZER_H_
