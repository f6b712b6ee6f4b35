// From a loader's batches to a network's input.
#ifndef MUSTER_TRAINER_DATA_INPUT_WRITER_H_
#define MUSTER_TRAINER_DATA_INPUT_WRITER_H_

#include <cstddef>
#include <cstdint>

#include "kernels/device.h"
#include "trainer/data/batch.h"
#include "trainer/data/image_dataset.h"

namespace muster::data {

// Makes bytes into (byte / 255 - mean) / standard deviation, by channel, and does on the device
// what the loader has left to be done with a batch's images. For the device's thread; the device
// outlives it.
class InputWriter {
 public:
  // Throws std::bad_alloc, as Write may.
  InputWriter(const DatasetInfo& info, kernels::Device& device = kernels::CpuDevice());

  // Queues what fills input, float32 [rows, height, width, channels], and labels, int32 [rows],
  // both in the device's memory. input may be null: labels alone. The batch's memory is the
  // loader's again when batch.copied is done, which is recorded here.
  void Write(const Batch& batch, float* input, int32_t* labels);

 private:
  // Where the device reads them.
  const uint8_t* Pixels(const Batch& batch);
  const kernels::ImageRow* Images(const Batch& batch);

  kernels::Device& device_;
  const int64_t channels_;
  kernels::DeviceMemory scale_;  // float32, by channel
  kernels::DeviceMemory shift_;
  // Of a batch, where the device's memory is not the process's.
  kernels::DeviceMemory pixels_;
  kernels::DeviceMemory images_;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_INPUT_WRITER_H_
