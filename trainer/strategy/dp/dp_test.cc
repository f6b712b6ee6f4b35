// Expects one process with several devices to train as one device does.
#include "trainer/strategy/dp/dp.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/failing_device.h"
#include "kernels/testing/guarded_device.h"
#include "spec/spec.h"
#include "trainer/data/testing.h"
#include "trainer/exit_code.h"
#include "trainer/loop/testing.h"
#include "trainer/loop/trainer.h"
#include "trainer/strategy/testing.h"

namespace muster::train {
namespace {

TEST(DpTest, TrainsLikeOneDeviceAndReportsPhases) {
  const data::TemporaryDirectory data;
  data::WriteSyntheticDataset(data.path(), 330, 50);
  v1::JobSpec spec = SmallTraining(data.path(), 12);
  const v1::TrainSummary one = TrainRanks(spec, {})[0];
  EXPECT_EQ(one.parts_size(), 0);

  spec.mutable_train()->mutable_strategy()->set_name("dp");
  TestWorld world;
  world.devices.assign(3, &kernels::CpuDevice());
  const v1::TrainSummary three = TrainRanks(spec, world)[0];
  EXPECT_EQ(three.strategy(), "dp");
  ExpectLossesNear(three, one, 1e-4);
  std::vector<std::string> phases;
  double seconds = 0;
  for (const v1::StepPart& phase : three.parts()) {
    phases.push_back(phase.name());
    seconds += phase.seconds();
  }
  EXPECT_THAT(phases, ::testing::ElementsAre("scatter", "replicate", "forward", "gather", "loss",
                                             "scatter_gradient", "backward", "reduce", "exchange",
                                             "update"));
  EXPECT_GT(seconds, 0);
  EXPECT_LT(seconds, 1.5 * three.median_step_seconds());
  ASSERT_EQ(three.devices_size(), 3);
  for (const v1::DeviceUse& device : three.devices()) EXPECT_GT(device.busy_seconds(), 0);
  EXPECT_GT(three.devices(0).parameter_bytes(), 0);
  EXPECT_EQ(three.devices(1).parameter_bytes(), 0);  // shared with the first
  EXPECT_GT(three.devices(0).gathered_bytes(), three.devices(1).gathered_bytes());
  EXPECT_GT(three.devices(0).optimizer_bytes(), 0);
  EXPECT_EQ(three.devices(1).optimizer_bytes(), 0);
}

// The devices after the first compute, too.
TEST(DpTest, ReturnsTheErrorOfAnyDevice) {
  const data::TemporaryDirectory data;
  data::WriteSyntheticDataset(data.path(), 330, 50);
  v1::JobSpec spec = SmallTraining(data.path(), 12);
  spec.mutable_train()->mutable_strategy()->set_name("dp");
  spec::ApplyDefaults(spec);
  kernels::FailingDevice& failing = kernels::FailingDevice::Get();
  const std::vector<ProcessGroups> groups = MakeLoopbackWorld(1);
  auto setup = SetUpTraining(spec, 1, "", {&kernels::GuardedDevice(), &failing});
  ASSERT_TRUE(setup.ok()) << setup.status();
  TrainerOptions options;
  options.progress = [&failing](const v1::Progress& progress) {
    if (progress.step() == 3 && !failing.failed()) failing.FailAt(kernels::DeviceCall::kKernel, 2);
  };
  Trainer trainer(*std::move(setup), &groups[0], std::move(options));
  const absl::Status status = trainer.Run().status();
  EXPECT_EQ(status.message(), "failing: an injected error");
  EXPECT_EQ(ExitCodeOf(status), kExitNoDevice);
  EXPECT_EQ(trainer.step(), 4u);
}

}  // namespace
}  // namespace muster::train
