#include "tests/gpu/ptx/memory.h"

#include <cstdint>
#include <cstring>

#include "gtest/gtest.h"

namespace muster::ptx {
namespace {

char* At(void* pointer, ptrdiff_t offset) { return static_cast<char*>(pointer) + offset; }

TEST(DeviceMemoryTest, AlignsTo256BytesAndNoMore) {
  DeviceMemory memory;
  for (const size_t bytes : {0, 1, 255, 4096, 100000}) {
    const auto address = reinterpret_cast<uintptr_t>(*memory.Allocate(bytes));
    EXPECT_EQ(address % 512, 256u) << bytes;
  }
  EXPECT_EQ(memory.allocations(), 5u);
  EXPECT_EQ(memory.allocated_bytes(), 1u + 1 + 255 + 4096 + 100000);
}

TEST(DeviceMemoryTest, ChecksBounds) {
  DeviceMemory memory;
  void* const data = *memory.Allocate(10);
  EXPECT_EQ(memory.CheckWrite(data, 10), absl::OkStatus());
  EXPECT_EQ(memory.CheckWrite(At(data, 10), 0), absl::OkStatus());
  EXPECT_EQ(memory.CheckWrite(data, 11).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(memory.CheckWrite(At(data, 10), 1).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(memory.CheckWrite(At(data, -1), 1).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(memory.CheckWrite(data, SIZE_MAX).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(memory.CheckWrite(&memory, 1).code(), absl::StatusCode::kNotFound);
}

TEST(DeviceMemoryTest, ChecksInitialisation) {
  DeviceMemory memory;
  void* const data = *memory.Allocate(16);
  EXPECT_EQ(memory.CheckRead(data, 1).code(), absl::StatusCode::kFailedPrecondition);
  memory.MarkInitialized(At(data, 1), 3);
  EXPECT_EQ(memory.CheckRead(At(data, 1), 3), absl::OkStatus());
  EXPECT_EQ(memory.CheckRead(data, 2).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(memory.CheckRead(At(data, 1), 4).code(), absl::StatusCode::kFailedPrecondition);
  memory.MarkInitialized(data, 16);
  EXPECT_EQ(memory.CheckRead(data, 16), absl::OkStatus());
}

TEST(DeviceMemoryTest, ReportsUseAfterFree) {
  DeviceMemory memory;
  void* const data = *memory.Allocate(16);
  memory.MarkInitialized(data, 16);
  EXPECT_TRUE(memory.IsDevice(data));
  EXPECT_EQ(memory.Free(At(data, 1)).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(memory.Free(data), absl::OkStatus());
  EXPECT_FALSE(memory.IsDevice(data));
  EXPECT_EQ(memory.CheckRead(data, 16).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(memory.CheckWrite(data, 16).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(memory.Free(data).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(memory.allocations(), 0u);
  EXPECT_EQ(memory.allocated_bytes(), 0u);
}

TEST(DeviceMemoryDeathTest, HostCodeBeyondItsPagesCrashes) {
  DeviceMemory memory;
  void* const data = *memory.Allocate(16);
  EXPECT_DEATH(std::memset(data, 0, 8192), "");
  EXPECT_EQ(memory.Free(data), absl::OkStatus());
  EXPECT_DEATH(std::memset(data, 0, 1), "");
}

TEST(DeviceMemoryTest, RegistersHostMemory) {
  DeviceMemory memory;
  char buffer[16];
  EXPECT_EQ(memory.CheckRead(buffer, 16).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(memory.RegisterHost(buffer, 16), absl::OkStatus());
  EXPECT_EQ(memory.RegisterHost(At(buffer, 8), 16).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(memory.CheckRead(buffer, 16), absl::OkStatus());
  EXPECT_FALSE(memory.IsDevice(buffer));
  EXPECT_EQ(memory.Free(buffer).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(memory.UnregisterHost(buffer), absl::OkStatus());
  EXPECT_EQ(memory.CheckRead(buffer, 16).code(), absl::StatusCode::kNotFound);
}

TEST(DeviceMemoryTest, ReportsLackOfMemory) {
  DeviceMemory memory;
  EXPECT_EQ(memory.Allocate(SIZE_MAX).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(memory.Allocate(size_t{1} << 60).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace muster::ptx
