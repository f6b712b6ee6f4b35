#include "trainer/rank/rank_device.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/exit_code.h"

namespace muster::rank {
namespace {

TEST(RankDeviceTest, AutoUsesGpuAssignedByWorker) {
  v1::Resources resources;
  for (const char* visible : {"", "GPU-1", "GPU-1,GPU-2"}) {
    resources.set_device("cpu");
    EXPECT_FALSE(UsesGpu(resources, visible));
    resources.set_device("gpu");
    EXPECT_TRUE(UsesGpu(resources, visible));
    resources.set_device("auto");
    EXPECT_EQ(UsesGpu(resources, visible), *visible != '\0');
  }
}

TEST(RankDeviceTest, NumericsAreExactUnlessTheJobAllowsOthers) {
  v1::TrainSpec spec;
  EXPECT_TRUE(NumericsOf(spec).deterministic);
  EXPECT_FALSE(NumericsOf(spec).tf32);
  spec.set_deterministic(v1::TrainSpec::NOT_DETERMINISTIC);
  spec.set_tf32(true);
  EXPECT_FALSE(NumericsOf(spec).deterministic);
  EXPECT_TRUE(NumericsOf(spec).tf32);
}

TEST(RankDeviceTest, OpensFirstGpu) {
  const auto device = OpenGpu({}, 0, "kernels/cuda/testing/libmuster-cuda-on-host.so");
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->name(), "cuda:0 host");
  EXPECT_FALSE((*device)->host_memory());
}

TEST(RankDeviceTest, OpensSeveralGpus) {
  const std::string library = "kernels/cuda/testing/libmuster-cuda-on-host.so";
  EXPECT_EQ(OpenGpus({}, 1, library)->size(), 1u);
  // The fake has one GPU.
  EXPECT_EQ(train::ExitCodeOf(OpenGpus({}, 2, library).status()), train::kExitNoDevice);
}

TEST(RankDeviceTest, ReturnsNoDeviceForMissingLibrary) {
  const absl::Status status = OpenGpu({}, 0, "/no/such/library.so").status();
  EXPECT_EQ(status.message(), "CUDA: no /no/such/library.so");
  EXPECT_EQ(train::ExitCodeOf(status), train::kExitNoDevice);
  EXPECT_FALSE(train::IsPermanent(train::kExitNoDevice));
}

}  // namespace
}  // namespace muster::rank
