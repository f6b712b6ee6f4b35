// Writes a loader's batches to a network's input.
#ifndef MUSTER_TRAINER_DATA_INPUT_WRITER_H_
#define MUSTER_TRAINER_DATA_INPUT_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "trainer/data/batch.h"
#include "trainer/data/image_dataset.h"

namespace muster::data {

// Converts bytes to (byte / 255 - mean) / standard deviation, by channel, and runs the transforms
// of a batch's images that the loader left to the device. For use on the device's thread; the
// device must outlive it.
class InputWriter {
 public:
  InputWriter(const DatasetInfo& info, kernels::Device& device = kernels::CpuDevice());

  // Queues the work that fills input, float32 [samples, height, width, channels], and labels, int32
  // [samples], both in device memory. input may be null: then only labels are written. Records
  // batch.copied, after which the loader may reuse the batch's memory. RESOURCE_EXHAUSTED if the
  // device has no memory for the writer's arrays.
  absl::Status Write(const Batch& batch, float* input, int32_t* labels);

 private:
  // Allocates and fills scale_ and shift_.
  absl::Status WriteFactors();
  // Device addresses of a batch's pixels and image descriptions.
  absl::StatusOr<const uint8_t*> Pixels(const Batch& batch);
  absl::StatusOr<const kernels::ImageTransformParams*> Images(const Batch& batch);

  kernels::Device& device_;
  const std::vector<float> mean_, standard_deviation_;  // by channel
  kernels::DeviceMemory scale_;  // float32, by channel; allocated by the first Write
  kernels::DeviceMemory shift_;
  // Copies of a batch's arrays, if device memory is not host memory.
  kernels::DeviceMemory pixels_;
  kernels::DeviceMemory images_;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_INPUT_WRITER_H_
