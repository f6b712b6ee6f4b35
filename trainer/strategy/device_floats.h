// Arrays in a device's memory, zeroed.
#ifndef MUSTER_TRAINER_STRATEGY_DEVICE_FLOATS_H_
#define MUSTER_TRAINER_STRATEGY_DEVICE_FLOATS_H_

#include <cstddef>
#include <new>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace muster::train {

// Of `count` values. Throws std::bad_alloc.
template <typename T>
kernels::DeviceMemory AllocateOn(kernels::Device& device, size_t count = 1) {
  absl::StatusOr<kernels::DeviceMemory> memory = device.Allocate(count * sizeof(T));
  if (!memory.ok()) throw std::bad_alloc();
  return *std::move(memory);
}

class DeviceFloats {
 public:
  DeviceFloats() = default;
  // Throws std::bad_alloc.
  DeviceFloats(kernels::Device& device, size_t count) : memory_(AllocateOn<float>(device, count)) {}
  float* get() const { return memory_.as<float>(); }
  size_t bytes() const { return memory_.bytes(); }

 private:
  kernels::DeviceMemory memory_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_DEVICE_FLOATS_H_
