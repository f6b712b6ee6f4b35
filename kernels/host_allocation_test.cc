#include "kernels/host_allocation.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "gtest/gtest.h"

namespace muster::kernels {
namespace {

TEST(HostAllocationTest, AlignsToLinesOrHugePages) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100'000}, (size_t{16} << 20) + 1}) {
    const absl::StatusOr<void*> data = AllocateHostArray(bytes);
    ASSERT_TRUE(data.ok()) << data.status();
    const size_t alignment = bytes > (size_t{16} << 20) ? size_t{2} << 20 : 64;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*data) % alignment, 0u) << bytes;
    std::memset(*data, 1, bytes);
    std::free(*data);
  }
}

TEST(HostAllocationTest, ReportsExhaustion) {
  EXPECT_TRUE(absl::IsResourceExhausted(AllocateHostArray(size_t{1} << 60).status()));
}

}  // namespace
}  // namespace muster::kernels
