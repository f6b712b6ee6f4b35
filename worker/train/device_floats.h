// An array of floats in a device's memory, zeroed.
#ifndef MUSTER_WORKER_TRAIN_DEVICE_FLOATS_H_
#define MUSTER_WORKER_TRAIN_DEVICE_FLOATS_H_

#include <cstddef>
#include <new>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace muster::train {

class DeviceFloats {
 public:
  DeviceFloats() = default;
  // Throws std::bad_alloc.
  DeviceFloats(kernels::Device& device, size_t count) {
    absl::StatusOr<kernels::DeviceMemory> memory = device.Allocate(count * sizeof(float));
    if (!memory.ok()) throw std::bad_alloc();
    memory_ = *std::move(memory);
  }
  float* get() const { return memory_.as<float>(); }

 private:
  kernels::DeviceMemory memory_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_DEVICE_FLOATS_H_
