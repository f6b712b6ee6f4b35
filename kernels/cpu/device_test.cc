#include "kernels/cpu/device.h"

#include "gtest/gtest.h"

namespace muster::kernels {
namespace {

TEST(CpuDeviceTest, NameReportsTypesThatAreSlowerThanFloat32) {
  for (const InstructionSet set :
       {InstructionSet::kPlain, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    EXPECT_EQ(NameFor(CpuDevice(set), DataType::kFloat32), "cpu");
    EXPECT_EQ(NameFor(CpuDevice(set), DataType::kBfloat16),
              "cpu without bfloat16 products: slower than in float32 (O0)");
  }
  EXPECT_EQ(NameFor(CpuDevice(InstructionSet::kAvx512Bf16), DataType::kBfloat16), "cpu");
  EXPECT_EQ(NameFor(CpuDevice(InstructionSet::kAvx512Bf16), DataType::kFloat16),
            "cpu without float16 products: slower than in float32 (O0)");
}

TEST(CpuDeviceTest, DefaultUsesTheBestInstructionSet) {
  EXPECT_EQ(&CpuDevice(), &CpuDevice(DetectInstructionSet()));
  EXPECT_EQ(&CpuDevice().kernels(), &CpuKernels());
}

}  // namespace
}  // namespace muster::kernels
