// Arrays in a device's memory, zeroed.
#ifndef MUSTER_KERNELS_DEVICE_FLOATS_H_
#define MUSTER_KERNELS_DEVICE_FLOATS_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device.h"

namespace muster::kernels {

// Allocates `count` values of type T. Returns Device::Allocate's errors, which name the `use`.
template <typename T>
absl::StatusOr<DeviceMemory> AllocateOn(Device& device, size_t count = 1,
                                        absl::string_view use = "temporary arrays") {
  return device.Allocate(count * sizeof(T), use);
}

class DeviceFloats {
 public:
  DeviceFloats() = default;
  // Returns Device::Allocate's errors, which name the `use`.
  static absl::StatusOr<DeviceFloats> Create(Device& device, size_t count,
                                             absl::string_view use = "temporary arrays") {
    absl::StatusOr<DeviceMemory> memory = AllocateOn<float>(device, count, use);
    if (!memory.ok()) return memory.status();
    return DeviceFloats(*std::move(memory));
  }

  // Refers to memory that another object owns.
  static DeviceFloats Refer(float* values, size_t count) {
    return DeviceFloats(DeviceMemory::Refer(values, count * sizeof(float)));
  }

  float* get() const { return memory_.as<float>(); }
  size_t bytes() const { return memory_.bytes(); }

 private:
  explicit DeviceFloats(DeviceMemory memory) : memory_(std::move(memory)) {}

  DeviceMemory memory_;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_DEVICE_FLOATS_H_
