// An error of any kind of device call ends the training within a step, with the documented exit
// code, without a checkpoint that it may have damaged, and without a summary.
#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

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

using Files = std::map<std::string, std::string>;  // content by name

class DeviceErrorsTest : public ::testing::TestWithParam<Case> {
 protected:
  struct Result {
    absl::Status status;
    v1::TrainSummary summary;
    uint64_t steps_after_failure = 0;
    std::map<uint64_t, Files> checkpoints;  // by step
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
      uint64_t step = 0;
      const std::string parent = entry.path().parent_path().filename();
      if (entry.path().extension() != ".safetensors" ||
          std::sscanf(parent.c_str(), "step-%" SCNu64 ".g1", &step) != 1) {
        continue;
      }
      std::ifstream in(entry.path(), std::ios::binary);
      result.checkpoints[step][entry.path().filename()] =
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

  // The checkpoint of a step without errors.
  const Files& ExpectedAt(uint64_t step) {
    static auto& expected = *new std::map<uint64_t, Files>;
    if (expected.count(step) == 0) {
      v1::JobSpec spec = Spec();
      spec.mutable_train()->set_max_steps(step);
      expected[step] = TrainWell(spec).checkpoints[step];
      EXPECT_EQ(expected[step].size(), 3u);  // model, optimizer, average
    }
    return expected[step];
  }

  // Trains while the device fails one call, at this share of all calls of its kind. Their number
  // depends on how many checkpoints the writer has time for, so the training is repeated until it
  // reaches the call.
  Result TrainToFailure(DeviceCall call, double share, Reported reported) {
    TrainWell(Spec());
    Result result;
    for (int attempt = 0; attempt < 20 && !device_.failed(); ++attempt) {
      const int calls = device_.calls(call);
      EXPECT_GT(calls, 0);
      device_.FailAt(call, std::max(1, static_cast<int>(share * calls)), reported);
      result = Train(Spec());
    }
    EXPECT_TRUE(device_.failed());
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
  for (const auto& [share, reported] :
       {std::pair(0.3, Reported::kAtOnce), std::pair(0.5, Reported::kLate),
        std::pair(0.9, Reported::kAtOnce), std::pair(0.9, Reported::kLate)}) {
    SCOPED_TRACE(share);
    const Result result = TrainToFailure(param.call, share, reported);
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
        EXPECT_EQ(result.summary.steps(), 14u);
        break;
    }
    if (param.end != End::kSuccess) {
      // A loader's thread may wait, and fail, between a poll and the report of its step.
      EXPECT_LE(result.steps_after_failure, (reported == Reported::kLate ? 1u : 0u) +
                                                (param.call == DeviceCall::kAwaitEvent ? 1u : 0u));
    }
    for (const auto& [step, files] : result.checkpoints) {
      EXPECT_TRUE(files == ExpectedAt(step)) << "the checkpoint of step " << step << " is damaged";
    }
  }
}

// Also the last call of each kind, after the last step.
TEST_P(DeviceErrorsTest, IsNoSuccessAfterAnErrorOfTheLastCall) {
  if (GetParam().end == End::kSuccess) return;
  for (const Reported reported : {Reported::kAtOnce, Reported::kLate}) {
    EXPECT_FALSE(TrainToFailure(GetParam().call, 1, reported).status.ok());
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
