#include "trainer/device_status.h"

#include "gtest/gtest.h"
#include "kernels/out_of_memory.h"
#include "trainer/exit_code.h"

namespace muster::train {
namespace {

TEST(DeviceStatusTest, AddsTheExitCodeOfADeviceThatDoesNotWork) {
  EXPECT_EQ(ExitCodeOf(WithDeviceExitCode(absl::InternalError("launch"))), kExitNoDevice);
  EXPECT_EQ(ExitCodeOf(WithDeviceExitCode(absl::NotFoundError("no libcudnn"))), kExitNoDevice);
  const absl::Status invalid = absl::InvalidArgumentError("layer");
  EXPECT_EQ(WithDeviceExitCode(invalid), invalid);
  const absl::Status full = kernels::OutOfMemoryError("gpu", "weights", 8, 4, "out of memory");
  EXPECT_EQ(ExitCodeOf(WithDeviceExitCode(full)), kExitFailure);
}

TEST(DeviceStatusTest, AdvisesToUseLessMemory) {
  const absl::Status full = kernels::OutOfMemoryError("gpu", "weights", 8, 4, "driver's text");
  const absl::Status advised = WithMemoryAdvice(WithExitCode(full, kExitNoInput));
  EXPECT_EQ(advised.message(),
            "gpu: out of memory: cannot allocate 8 bytes for weights, 4 bytes are free: driver's "
            "text; use a smaller train.global_batch or more train.accumulation_steps");
  EXPECT_TRUE(absl::IsResourceExhausted(advised));
  EXPECT_EQ(ExitCodeOf(advised), kExitNoInput);  // payloads are kept
  const absl::Status disk = absl::ResourceExhaustedError("no space left on device");
  EXPECT_EQ(WithMemoryAdvice(disk), disk);
}

}  // namespace
}  // namespace muster::train
