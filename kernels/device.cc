#include "kernels/device.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "kernels/host_allocation.h"
#include "kernels/out_of_memory.h"

namespace muster::kernels {
namespace {

// Event of a device whose calls have finished when they return.
class PastEvent final : public DeviceEvent {
 public:
  void Record() override {}
  bool Done() override { return true; }
  absl::Status Wait() override { return absl::OkStatus(); }
};

}  // namespace

std::unique_ptr<DeviceEvent> Device::MakeEvent() { return std::make_unique<PastEvent>(); }

absl::StatusOr<std::unique_ptr<DeviceStream>> Device::MakeStream() {
  return absl::UnimplementedError(absl::StrCat(name(), " has no streams"));
}

absl::StatusOr<DeviceMemory> Device::Allocate(size_t bytes, absl::string_view use) {
  absl::StatusOr<void*> data = AllocateBytes(bytes);
  if (!data.ok()) return AllocationError(data.status(), bytes, use, free_bytes());
  return DeviceMemory(this, *data, bytes);
}

absl::StatusOr<HostMemory> Device::AllocateHost(size_t bytes, absl::string_view use) {
  absl::StatusOr<void*> data = AllocateHostBytes(bytes);
  if (!data.ok()) {
    return AllocationError(data.status(), bytes, absl::StrCat(use, " in host memory"),
                           /*free_bytes=*/0);
  }
  return HostMemory(this, *data, bytes);
}

absl::Status Device::AllocationError(const absl::Status& status, size_t bytes,
                                     absl::string_view use, size_t free_bytes) const {
  if (!absl::IsResourceExhausted(status) || IsOutOfMemory(status)) return status;
  return OutOfMemoryError(name(), use, bytes, free_bytes, status.message());
}

absl::StatusOr<void*> Device::AllocateHostBytes(size_t bytes) { return AllocateHostArray(bytes); }

std::string NameFor(const Device& device, DataType compute) {
  if (device.multiplies(compute)) return device.name();
  return absl::StrCat(device.name(), " without ", NameOf(compute),
                      " products: slower than in float32 (O0)");
}

void Device::FreeHost(void* data) { std::free(data); }

absl::Status Device::StartCapture() {
  return absl::UnimplementedError(absl::StrCat(name(), " does not support graph capture"));
}

absl::StatusOr<std::unique_ptr<DeviceGraph>> Device::FinishCapture() { return StartCapture(); }

}  // namespace muster::kernels
