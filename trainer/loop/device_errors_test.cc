// An error of any kind of device call ends the training within a step, with the documented exit
// code, without a checkpoint that it may have damaged, and without a summary.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/out_of_memory.h"
#include "kernels/testing/failing_device.h"
#include "spec/spec.h"
#include "trainer/data/testing.h"
#include "trainer/exit_code.h"
#include "trainer/loop/testing.h"
#include "trainer/loop/trainer.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;
using kernels::DeviceCall;
using kernels::FailingDevice;
using Reported = FailingDevice::Reported;

// How a training ends whose device fails one call.
enum class End {
  kDeviceError,  // exit code kExitNoDevice
  kOutOfMemory,
  kSuccess,  // the training works without the call
};

struct Case {
  const char* name;
  DeviceCall call;
  End end = End::kDeviceError;
};

constexpr Case kCases[] = {
    {"KernelLaunch", DeviceCall::kKernel},
    {"LibraryCall", DeviceCall::kConvolution},
    {"CopyToDevice", DeviceCall::kCopyToDevice},
    {"CopyToHost", DeviceCall::kCopyToHost},
    {"Copy", DeviceCall::kCopy},
    {"Zero", DeviceCall::kZero},
    {"Allocation", DeviceCall::kAllocate, End::kOutOfMemory},
    {"HostAllocation", DeviceCall::kAllocateHost, End::kOutOfMemory},
    {"EventRecord", DeviceCall::kRecordEvent},
    {"EventWait", DeviceCall::kAwaitEvent},
    {"CaptureStart", DeviceCall::kStartCapture, End::kSuccess},
    {"CaptureEnd", DeviceCall::kFinishCapture, End::kSuccess},
    {"GraphLaunch", DeviceCall::kLaunchGraph},
};

class DeviceErrorsTest : public ::testing::TestWithParam<Case> {
 protected:
  struct Result {
    absl::Status status;
    v1::TrainSummary summary;
    uint64_t steps_after_failure = 0;
    std::map<std::string, std::string> checkpoints;  // content by name
  };

  void SetUp() override { data::WriteSyntheticDataset(data_.path(), 330, 50); }
  void TearDown() override { device_.Succeed(); }

  // Two epochs of seven steps, each with an evaluation; every second step has a checkpoint.
  v1::JobSpec Spec() const {
    v1::JobSpec job;
    v1::TrainSpec& spec = *job.mutable_train();
    v1::ModelSpec& model = *spec.mutable_model();
    v1::Conv2dSpec& convolution = *model.add_layers()->mutable_conv2d();
    convolution.set_out_channels(4);
    convolution.set_kernel(3);
    model.add_layers()->mutable_batch_norm2d();
    model.add_layers()->mutable_relu();
    model.add_layers()->mutable_adaptive_avg_pool2d();
    model.add_layers()->mutable_flatten();
    model.add_layers()->mutable_dropout()->set_probability(0.2);
    model.add_layers()->mutable_linear();
    spec.mutable_dataset()->set_name("fashion_mnist");
    spec.mutable_dataset()->set_path(data_.path());
    spec.mutable_dataset()->set_resident("never");
    spec.set_max_steps(14);
    spec.set_evaluate_every_epochs(1);
    spec.set_global_batch(50);
    spec.set_accumulation_steps(2);
    spec.mutable_optimizer()->set_name("sgd");
    spec.mutable_optimizer()->set_learning_rate(0.02);
    spec.mutable_optimizer()->set_momentum(0.9);
    spec.mutable_ema()->set_decay(0.8);
    spec.mutable_checkpoint()->set_every_steps(2);
    spec.set_seed(1);
    return job;
  }

  Result Train(v1::JobSpec spec) {
    spec::ApplyDefaults(spec);
    Result result;
    const auto groups = MakeLoopbackWorld(1);
    auto setup = SetUpTraining(spec, 1, "", {&device_});
    result.status = setup.status();
    if (!setup.ok()) return result;
    const data::TemporaryDirectory folder;
    auto directory = CheckpointDirectory::OpenForWriting({folder.path(), "job", 1, /*keep=*/100});
    EXPECT_TRUE(directory.ok()) << directory.status();
    TrainerOptions options;
    options.job_id = "job";
    options.checkpoints = *std::move(directory);
    uint64_t good_steps = 0;
    uint64_t steps = 0;
    options.progress = [&](const v1::Progress& progress) {
      steps = progress.step();
      if (!device_.failed()) good_steps = steps;
    };
    {
      Trainer trainer(*std::move(setup), &groups[0], std::move(options));
      auto summary = trainer.Run();
      result.status = summary.status();
      if (summary.ok()) result.summary = *std::move(summary);
    }
    result.steps_after_failure = steps - good_steps;
    for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
      if (entry.path().extension() != ".safetensors") continue;
      if (!absl::StartsWith(entry.path().parent_path().filename().string(), "step-")) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      result.checkpoints[fs::relative(entry.path(), folder.path())] =
          std::string(std::istreambuf_iterator<char>(in), {});
    }
    return result;
  }

  // Trains without errors.
  Result TrainWell(const v1::JobSpec& spec) {
    device_.Succeed();
    Result result = Train(spec);
    EXPECT_TRUE(result.status.ok()) << result.status;
    return result;
  }

  static void ExpectOutOfMemory(const absl::Status& status) {
    EXPECT_TRUE(kernels::IsOutOfMemory(status)) << status;
    EXPECT_EQ(ExitCodeOf(status), kExitFailure);
    EXPECT_THAT(std::string(status.message()),
                ::testing::MatchesRegex("failing: out of memory: cannot allocate [0-9]+ bytes for "
                                        ".+: injected; use a smaller train.global_batch or more "
                                        "train.accumulation_steps"));
  }

  FailingDevice& device_ = FailingDevice::Get();
  data::TemporaryDirectory data_;
};

TEST_P(DeviceErrorsTest, EndsTheTrainingWithinAStep) {
  const Case& param = GetParam();
  const v1::JobSpec spec = Spec();
  const Result expected = TrainWell(spec);
  EXPECT_EQ(expected.checkpoints.size(), 7 * 3);  // model, optimizer, average
  const int calls = device_.calls(param.call);
  ASSERT_GT(calls, 0);
  for (const auto& [nth, reported] :
       {std::pair(calls / 3 + 1, Reported::kAtOnce), std::pair(calls / 2 + 1, Reported::kLate),
        std::pair(calls * 9 / 10, Reported::kAtOnce), std::pair(calls * 9 / 10, Reported::kLate)}) {
    SCOPED_TRACE(absl::StrCat("call ", nth, " of ", calls));
    device_.FailAt(param.call, nth, reported);
    const Result result = Train(spec);
    EXPECT_TRUE(device_.failed());
    switch (param.end) {
      case End::kDeviceError:
        EXPECT_EQ(ExitCodeOf(result.status), kExitNoDevice) << result.status;
        EXPECT_EQ(result.status.message(), "failing: an injected error");
        break;
      case End::kOutOfMemory:
        ExpectOutOfMemory(result.status);
        break;
      case End::kSuccess:
        EXPECT_TRUE(result.status.ok()) << result.status;
        EXPECT_EQ(result.summary.weights_digest(), expected.summary.weights_digest());
        continue;
    }
    EXPECT_LE(result.steps_after_failure, reported == Reported::kLate ? 1 : 0);
    for (const auto& [name, content] : result.checkpoints) {
      ASSERT_TRUE(expected.checkpoints.count(name) == 1) << name;
      EXPECT_TRUE(content == expected.checkpoints.at(name)) << name << " is damaged";
    }
  }
}

// Also the last call of each kind, after the last step.
TEST_P(DeviceErrorsTest, IsNoSuccessAfterAnErrorOfTheLastCall) {
  const Case& param = GetParam();
  // The number of waits depends on the loader's threads.
  if (param.end == End::kSuccess || param.call == DeviceCall::kAwaitEvent) return;
  const v1::JobSpec spec = Spec();
  TrainWell(spec);
  for (const Reported reported : {Reported::kAtOnce, Reported::kLate}) {
    const int calls = device_.calls(param.call);
    device_.FailAt(param.call, calls, reported);
    const Result result = Train(spec);
    EXPECT_TRUE(device_.failed());
    EXPECT_FALSE(result.status.ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, DeviceErrorsTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

using DeviceMemoryTest = DeviceErrorsTest;

TEST_P(DeviceMemoryTest, ReturnsExhaustionAtEveryAllocation) {
  v1::JobSpec spec = Spec();
  spec.mutable_train()->set_max_steps(1);
  TrainWell(spec);
  const int allocations = device_.calls(GetParam().call);
  EXPECT_GT(allocations, 10);
  for (int nth = 1; nth <= allocations; ++nth) {
    SCOPED_TRACE(absl::StrCat("allocation ", nth, " of ", allocations));
    device_.FailAt(GetParam().call, nth);
    const Result result = Train(spec);
    EXPECT_TRUE(device_.failed());
    ExpectOutOfMemory(result.status);
  }
}

INSTANTIATE_TEST_SUITE_P(Allocations, DeviceMemoryTest,
                         ::testing::Values(Case{"Device", DeviceCall::kAllocate},
                                           Case{"Host", DeviceCall::kAllocateHost}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace muster::train
