#include "trainer/loop/training_setup.h"

#include <functional>
#include <memory>
#include <string>

#include "common/process/build_id.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/host_memory_device.h"
#include "kernels/testing/guarded_device.h"
#include "spec/spec.h"
#include "trainer/data/testing.h"
#include "trainer/exit_code.h"

namespace muster::train {
namespace {

class TrainingSetupTest : public ::testing::Test {
 protected:
  void SetUp() override { data::WriteSyntheticDataset(data_.path(), 100, 10); }

  v1::JobSpec Spec() const {
    v1::JobSpec job;
    v1::TrainSpec& spec = *job.mutable_train();
    spec.mutable_model()->set_name("mlp");
    spec.mutable_dataset()->set_name("mnist");
    spec.mutable_dataset()->set_path(data_.path());
    spec.set_epochs(2);
    spec.set_global_batch(30);
    spec::ApplyDefaults(job);
    return job;
  }
  absl::Status Change(const std::function<void(v1::TrainSpec&)>& change) const {
    v1::JobSpec spec = Spec();
    change(*spec.mutable_train());
    return SetUpTraining(spec, 4, data_.path()).status();
  }

  data::TemporaryDirectory data_;
};

TEST_F(TrainingSetupTest, CreatesDataScheduleAndStrategy) {
  const auto setup = SetUpTraining(Spec(), 4, data_.path());
  ASSERT_TRUE(setup.ok()) << setup.status();
  EXPECT_EQ((*setup)->total_steps, 8);
  EXPECT_EQ((*setup)->max_samples, 8);
  EXPECT_EQ((*setup)->training->size(), 100);
  EXPECT_EQ((*setup)->test->size(), 10);
  EXPECT_FALSE((*setup)->strategy->layout_digest().empty());
}

TEST_F(TrainingSetupTest, ReturnsBadSpecForUnsupportedSettings) {
  for (const std::function<void(v1::TrainSpec&)>& change :
       std::vector<std::function<void(v1::TrainSpec&)>>{
           [](v1::TrainSpec& s) { s.mutable_model()->set_name("vgg"); },
           [](v1::TrainSpec& s) { s.mutable_dataset()->set_name("cifar"); },
           [](v1::TrainSpec& s) { s.mutable_optimizer()->set_name("adam"); },
           [](v1::TrainSpec& s) { s.mutable_schedule()->set_name("linear"); },
           [](v1::TrainSpec& s) { s.mutable_strategy()->set_name("ring"); },
           [](v1::TrainSpec& s) { s.mutable_strategy()->set_name("pipeline"); },
           [](v1::TrainSpec& s) {
             s.mutable_strategy()->set_name("pipeline");
             s.mutable_strategy()->mutable_pipeline()->set_stages(2);
             s.mutable_strategy()->mutable_pipeline()->add_cuts("no-such-layer");
           },
           [](v1::TrainSpec& s) { s.mutable_model()->set_name("resnet1001"); },
           [](v1::TrainSpec& s) { s.set_precision("O4"); },
           [](v1::TrainSpec& s) {
             s.mutable_dataset()->add_mean(0.5);
             s.mutable_dataset()->add_mean(0.5);
           },
           [](v1::TrainSpec& s) { s.set_global_batch(0); },
       }) {
    const absl::Status status = Change(change);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(ExitCodeOf(status), kExitBadSpec);
  }
}

TEST_F(TrainingSetupTest, ReturnsNoInputForMissingData) {
  const absl::Status status =
      Change([](v1::TrainSpec& s) { s.mutable_dataset()->set_path("/does/not/exist"); });
  EXPECT_EQ(ExitCodeOf(status), kExitNoInput);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("/does/not/exist/train-images"));
}

// A GPU on a machine without cuDNN.
class Lacking final : public kernels::HostMemoryDevice {
 public:
  std::string name() const override { return "lacking"; }
  const kernels::KernelTable& kernels() const override { return kernels::CpuKernels(); }
  absl::StatusOr<std::unique_ptr<kernels::Convolution>> MakeConvolution(
      const kernels::ConvolutionShape&, const kernels::ConvolutionOptions&) override {
    return absl::NotFoundError("CUDA: no libcudnn.so.9");
  }
};

TEST_F(TrainingSetupTest, ReturnsNoDeviceForMissingLibrary) {
  Lacking device;
  const absl::Status status = SetUpTraining(Spec(), 4, data_.path(), {&device}).status();
  EXPECT_EQ(ExitCodeOf(status), kExitNoDevice);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("CUDA: no libcudnn.so.9"));
}

TEST_F(TrainingSetupTest, IdentifiesTraining) {
  const auto setup = SetUpTraining(Spec(), 1, "");
  ASSERT_TRUE(setup.ok()) << setup.status();
  EXPECT_EQ((*setup)->identity.fields.at("train.global_batch"), "30");
}

TEST_F(TrainingSetupTest, FingerprintIncludesBuild) {
  const auto setup = SetUpTraining(Spec(), 4, data_.path());
  ASSERT_TRUE(setup.ok()) << setup.status();
  const v1::FingerprintEntry& entry = (*setup)->fingerprint.front();
  EXPECT_EQ(entry.name(), "muster-rank");
  EXPECT_THAT(entry.value(), ::testing::StartsWith(kSoftwareVersion));
  EXPECT_THAT(entry.value(), ::testing::EndsWith(BuildId().substr(0, 16)));
}

TEST_F(TrainingSetupTest, FingerprintIncludesPrecision) {
  v1::JobSpec spec = Spec();
  const auto precision = [&spec, this] {
    const auto setup = SetUpTraining(spec, 4, data_.path());
    EXPECT_TRUE(setup.ok()) << setup.status();
    return (*setup)->fingerprint[2];
  };
  EXPECT_EQ(precision().name(), "precision");
  EXPECT_EQ(precision().value(), "O0 float32");
  spec.mutable_train()->set_precision("O2");
  spec::ApplyDefaults(spec);
  EXPECT_EQ(precision().value(), "O2 bfloat16, gradients bfloat16");
  spec.mutable_train()->mutable_mixed_precision()->set_gradient_dtype("float32");
  EXPECT_EQ(precision().value(), "O2 bfloat16, gradients float32");
}

TEST_F(TrainingSetupTest, FingerprintIncludesDevice) {
  const auto device = [this](kernels::Device& device) {
    const auto setup = SetUpTraining(Spec(), 4, data_.path(), {&device});
    EXPECT_TRUE(setup.ok()) << setup.status();
    const v1::FingerprintEntry& entry = (*setup)->fingerprint.back();
    return entry.name() + " " + entry.value();
  };
  EXPECT_EQ(device(kernels::CpuDevice()), "device cpu");
  EXPECT_EQ(device(kernels::GuardedDevice()), "device gpu");
}

}  // namespace
}  // namespace muster::train
