// Arrays in a device's memory, zeroed.
#ifndef MUSTER_KERNELS_DEVICE_FLOATS_H_
#define MUSTER_KERNELS_DEVICE_FLOATS_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace muster::kernels {

// Allocates `count` values of type T. Returns Device::Allocate's errors.
template <typename T>
absl::StatusOr<DeviceMemory> AllocateOn(Device& device, size_t count = 1) {
  return device.Allocate(count * sizeof(T));
}

class DeviceFloats {
 public:
  DeviceFloats() = default;
  // Returns Device::Allocate's errors.
  static absl::StatusOr<DeviceFloats> Create(Device& device, size_t count) {
    absl::StatusOr<DeviceMemory> memory = AllocateOn<float>(device, count);
    if (!memory.ok()) return memory.status();
    return DeviceFloats(*std::move(memory));
  }

  float* get() const { return memory_.as<float>(); }
  size_t bytes() const { return memory_.bytes(); }

 private:
  explicit DeviceFloats(DeviceMemory memory) : memory_(std::move(memory)) {}

  DeviceMemory memory_;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_DEVICE_FLOATS_H_
