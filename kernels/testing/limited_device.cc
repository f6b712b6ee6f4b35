#include "kernels/testing/limited_device.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/out_of_memory.h"

namespace muster::kernels {
namespace {

constexpr char kError[] = "limited device: out of memory";

}  // namespace

absl::StatusOr<void*> LimitedDevice::AllocateBytes(size_t bytes) {
  if (left_ == 0) return absl::ResourceExhaustedError(kError);
  if (left_ != kUnlimited) --left_;
  return HostMemoryDevice::AllocateBytes(bytes);
}

int AllocationsNeeded(LimitedDevice& device, absl::FunctionRef<absl::Status()> create) {
  absl::Status status = absl::ResourceExhaustedError(kError);
  int allocations = -1;
  while (absl::StrContains(status.message(), kError)) {
    device.set_allocations(++allocations);
    status = create();
    device.set_allocations(LimitedDevice::kUnlimited);
    if (!status.ok()) EXPECT_TRUE(IsOutOfMemory(status)) << status;
  }
  EXPECT_TRUE(status.ok()) << "with " << allocations << " allocations: " << status;
  return allocations;
}

}  // namespace muster::kernels
