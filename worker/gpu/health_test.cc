#include "worker/gpu/health.h"

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/gpu/xid.h"

namespace muster::gpu {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGiB = 1u << 30;

Reading Good() {
  Reading reading;
  reading.status = absl::OkStatus();
  reading.memory_total_bytes = 80 * kGiB;
  return reading;
}

Reading WithProcesses(std::vector<int64_t> pids, uint64_t used_bytes) {
  Reading reading = Good();
  reading.memory_used_bytes = used_bytes;
  reading.processes.emplace();
  for (const int64_t pid : pids) reading.processes->push_back({pid, "python3"});
  return reading;
}

SteadyTime At(double seconds) { return SteadyTime(absl::Seconds(seconds)); }

TEST(XidTest, DistinguishesDeviceAndProgramErrors) {
  for (const uint64_t xid : {48, 62, 64, 74, 79, 95, 119, 120}) {
    EXPECT_EQ(LookUpXid(xid).kind, XidKind::kFatal) << xid;
  }
  for (const uint64_t xid : {13, 31, 43, 45, 68, 109}) {
    EXPECT_EQ(LookUpXid(xid).kind, XidKind::kApplication) << xid;
  }
  for (const uint64_t xid : {63, 94, 999}) EXPECT_EQ(LookUpXid(xid).kind, XidKind::kNotice) << xid;
  EXPECT_EQ(XidText(79), "Xid 79, GPU has fallen off the bus");
  EXPECT_EQ(XidText(999), "Xid 999");
}

TEST(HealthTest, FatalXidIsPermanent) {
  Health health;
  health.OnReading(Good(), At(0));
  health.OnXid(31);
  health.OnXid(31);
  EXPECT_EQ(health.Problem(), "");
  health.OnXid(79);
  health.OnXid(48);  // the first one is kept
  health.OnReading(Good(), At(1));
  EXPECT_EQ(health.Problem(),
            "Xid 79, GPU has fallen off the bus; unusable until the worker is restarted");
  EXPECT_EQ(health.xids().at(31), 2u);
}

TEST(HealthTest, RecoversLostDevice) {
  Health health;
  Reading lost;
  lost.status = absl::DataLossError("x");
  health.OnReading(lost, At(0));
  EXPECT_EQ(health.Problem(), "lost: it has fallen off the bus");
  lost.status = absl::FailedPreconditionError("x");
  health.OnReading(lost, At(1));
  EXPECT_EQ(health.Problem(), "requires a GPU reset");
  lost.status = absl::InternalError("memory_info: Unknown Error");
  health.OnReading(lost, At(2));
  EXPECT_EQ(health.Problem(), "memory_info: Unknown Error");
  health.OnReading(Good(), At(3));
  EXPECT_EQ(health.Problem(), "");
}

TEST(HealthTest, ReportsDriverRecoveryAction) {
  Health health;
  Reading reading = Good();
  reading.recovery_action = kNvmlRecoveryNone;
  health.OnReading(reading, At(0));
  EXPECT_EQ(health.Problem(), "");
  reading.recovery_action = kNvmlRecoveryGpuReset;
  health.OnReading(reading, At(1));
  EXPECT_EQ(health.Problem(), "the driver requests a GPU reset");
  reading.recovery_action = kNvmlRecoveryNodeReboot;
  health.OnReading(reading, At(2));
  EXPECT_EQ(health.Problem(), "the driver requests a reboot");
  reading.recovery_action = kNvmlRecoveryNone;
  health.OnReading(reading, At(3));
  EXPECT_EQ(health.Problem(), "");
}

TEST(HealthTest, IgnoresEccErrorsBeforeStart) {
  Health health;
  Reading reading = Good();
  reading.ecc_errors = 5;
  health.OnReading(reading, At(0));
  EXPECT_EQ(health.Problem(), "");
  reading.ecc_errors = 6;
  health.OnReading(reading, At(1));
  EXPECT_EQ(health.Problem(), "1 uncorrected ECC error; unusable until the GPU is reset");
  reading.ecc_errors = 0;
  health.OnReading(reading, At(2));
  EXPECT_EQ(health.Problem(), "");
  reading.ecc_errors = 2;
  health.OnReading(reading, At(3));
  EXPECT_THAT(health.Problem(), HasSubstr("2 uncorrected ECC errors"));
}

TEST(HealthTest, ReportsLastingThrottling) {
  Health health;
  Reading hot = Good();
  hot.clock_reasons = NVML_CLOCKS_HW_THERMAL | NVML_CLOCKS_HW_SLOWDOWN;
  health.OnReading(hot, At(0));
  health.OnReading(hot, At(59));
  EXPECT_EQ(health.Problem(), "");
  health.OnReading(hot, At(60));
  EXPECT_EQ(health.Problem(), "throttled by its hardware for more than 1m: too hot");
  // A short pause does not end it.
  health.OnReading(Good(), At(61));
  health.OnReading(Good(), At(120));
  EXPECT_NE(health.Problem(), "");
  health.OnReading(Good(), At(121));
  EXPECT_EQ(health.Problem(), "");

  Reading capped = Good();
  capped.clock_reasons = NVML_CLOCKS_SW_POWER_CAP;
  health.OnReading(capped, At(200));
  health.OnReading(capped, At(300));
  EXPECT_EQ(health.Problem(), "");
}

TEST(MemoryWatchTest, IsFreeWhenTheRanksProcessesAreGone) {
  MemoryWatch memory;
  memory.OnReading(WithProcesses({7}, kGiB), At(0));
  memory.Occupy(/*fresh=*/true);
  memory.OnReading(WithProcesses({7, 4411}, 60 * kGiB), At(1));
  EXPECT_EQ(memory.text(), "");
  memory.Release(At(2));
  EXPECT_EQ(memory.text(), "waiting until the memory of its last rank is freed");
  memory.OnReading(WithProcesses({7, 4411}, 60 * kGiB), At(2.1));
  EXPECT_EQ(memory.state(), MemoryWatch::State::kReturning);
  // The memory of the other program has grown meanwhile.
  memory.OnReading(WithProcesses({7}, 20 * kGiB), At(2.2));
  EXPECT_EQ(memory.state(), MemoryWatch::State::kFree);
  EXPECT_EQ(memory.text(), "");
}

TEST(MemoryWatchTest, NamesProcessThatHoldsMemory) {
  MemoryWatch memory;
  memory.OnReading(WithProcesses({}, kGiB), At(0));
  memory.Occupy(/*fresh=*/true);
  memory.Release(At(1));
  memory.OnReading(WithProcesses({4411}, 60 * kGiB), At(10.9));
  EXPECT_EQ(memory.state(), MemoryWatch::State::kReturning);
  memory.OnReading(WithProcesses({4411}, 60 * kGiB), At(11));
  EXPECT_EQ(memory.state(), MemoryWatch::State::kHeld);
  EXPECT_EQ(memory.text(), "memory held by pid 4411 (python3)");
  memory.OnReading(WithProcesses({}, 60 * kGiB), At(12));
  EXPECT_EQ(memory.text(),
            "memory not freed: 60.0 GiB in use, 1.0 GiB before its last rank, and no process is "
            "visible");
  memory.OnReading(WithProcesses({}, kGiB + MemoryWatch::kToleranceBytes), At(13));
  EXPECT_EQ(memory.state(), MemoryWatch::State::kFree);
}

TEST(MemoryWatchTest, ComparesUsageIfProcessesAreUnknown) {
  MemoryWatch memory;
  Reading reading = Good();
  memory.OnReading(reading, At(0));
  memory.Occupy(/*fresh=*/true);
  memory.Release(At(1));
  reading.memory_used_bytes = kGiB;
  memory.OnReading(reading, At(2));
  EXPECT_EQ(memory.state(), MemoryWatch::State::kReturning);
  reading.memory_used_bytes = 0;
  memory.OnReading(reading, At(3));
  EXPECT_EQ(memory.state(), MemoryWatch::State::kFree);
}

TEST(MemoryWatchTest, AdoptedRankIsJudgedByProcessesOnly) {
  MemoryWatch memory;
  memory.OnReading(WithProcesses({4411}, 60 * kGiB), At(0));
  memory.Occupy(/*fresh=*/false);
  memory.Release(At(1));
  memory.OnReading(WithProcesses({4411}, 60 * kGiB), At(2));
  EXPECT_EQ(memory.state(), MemoryWatch::State::kReturning);
  memory.OnReading(WithProcesses({}, 60 * kGiB), At(3));
  EXPECT_EQ(memory.state(), MemoryWatch::State::kFree);
}

TEST(MemoryWatchTest, LostDeviceStaysHeld) {
  MemoryWatch memory;
  memory.OnReading(WithProcesses({}, 0), At(0));
  memory.Occupy(/*fresh=*/true);
  memory.Release(At(1));
  Reading lost;
  lost.status = absl::DataLossError("x");
  memory.OnReading(lost, At(2));
  EXPECT_EQ(memory.state(), MemoryWatch::State::kReturning);
  memory.OnReading(lost, At(20));
  EXPECT_EQ(memory.state(), MemoryWatch::State::kHeld);
  memory.OnReading(WithProcesses({}, 0), At(21));
  EXPECT_EQ(memory.state(), MemoryWatch::State::kFree);
}

}  // namespace
}  // namespace muster::gpu
