// Writes a loader's batches into a network's input.
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

// Makes bytes into (byte / 255 - mean) / standard deviation, by channel, and does on the device
// what the loader has left to be done with a batch's images. For the device's thread; the device
// outlives it.
class InputWriter {
 public:
  InputWriter(const DatasetInfo& info, kernels::Device& device = kernels::CpuDevice());

  // Queues the work that fills input, float32 [rows, height, width, channels], and labels, int32
  // [rows], both in the device's memory. input may be null: labels alone. The loader may reuse the
  // batch's memory when batch.copied, which is recorded here, is done. RESOURCE_EXHAUSTED: the
  // device has no memory for what the writer keeps there.
  absl::Status Write(const Batch& batch, float* input, int32_t* labels);

 private:
  // Allocates and fills scale_ and shift_.
  absl::Status WriteFactors();
  // Where the device reads them.
  absl::StatusOr<const uint8_t*> Pixels(const Batch& batch);
  absl::StatusOr<const kernels::ImageRow*> Images(const Batch& batch);

  kernels::Device& device_;
  const std::vector<float> mean_, standard_deviation_;  // by channel
  kernels::DeviceMemory scale_;  // float32, by channel; allocated by the first Write
  kernels::DeviceMemory shift_;
  // Of a batch, where the device's memory is not the process's.
  kernels::DeviceMemory pixels_;
  kernels::DeviceMemory images_;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_INPUT_WRITER_H_
