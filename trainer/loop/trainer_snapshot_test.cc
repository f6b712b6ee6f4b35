// Expects the threads that train to take snapshots without converting them, without using files and
// without waiting for them.
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/host_memory_device.h"
#include "spec/spec.h"
#include "trainer/checkpoint/directory_operations.h"
#include "trainer/data/testing.h"
#include "trainer/loop/testing.h"
#include "trainer/loop/trainer.h"

namespace muster::train {
namespace {

// Threads that did something while they were watched. Thread-safe.
class ThreadRecorder {
 public:
  void Watch(bool watch) {
    const absl::MutexLock lock(&mutex_);
    watching_ = watch;
  }
  void Record() {
    const absl::MutexLock lock(&mutex_);
    if (watching_) threads_.insert(std::this_thread::get_id());
  }
  void AwaitOne() const {
    const absl::MutexLock lock(&mutex_);
    const auto recorded = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !threads_.empty(); };
    mutex_.Await(absl::Condition(&recorded));
  }
  bool Contains(std::thread::id thread) const {
    const absl::MutexLock lock(&mutex_);
    return threads_.contains(thread);
  }

 private:
  mutable absl::Mutex mutex_;
  bool watching_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<std::thread::id> threads_ ABSL_GUARDED_BY(mutex_);
};

class RecordingOperations final : public DirectoryOperations {
 public:
  explicit RecordingOperations(ThreadRecorder* recorder) : recorder_(*recorder) {}

  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) const override {
    return Recorded().List(directory);
  }
  absl::StatusOr<CheckpointState> ReadState(const std::string& folder) const override {
    return Recorded().ReadState(folder);
  }
  absl::Status Create(const std::string& folder) const override {
    return Recorded().Create(folder);
  }
  int Rename(const std::string& from, const std::string& to) const override {
    return Recorded().Rename(from, to);
  }
  absl::Status Delete(const std::string& folder) const override {
    return Recorded().Delete(folder);
  }
  absl::Status Sync(const std::string& directory) const override {
    return Recorded().Sync(directory);
  }

 private:
  const DirectoryOperations& Recorded() const {
    recorder_.Record();
    return RealDirectoryOperations();
  }

  ThreadRecorder& recorder_;
};

// Records conversions of weights to the canonical order.
class RecordingConvolution final : public kernels::Convolution {
 public:
  RecordingConvolution(std::unique_ptr<Convolution> convolution, ThreadRecorder* recorder)
      : convolution_(std::move(convolution)), recorder_(*recorder) {}

  int64_t weights_elements() const override { return convolution_->weights_elements(); }
  std::string weights_layout() const override { return convolution_->weights_layout(); }
  kernels::DataType weights_type() const override { return convolution_->weights_type(); }
  kernels::DataType dweights_type() const override { return convolution_->dweights_type(); }
  std::string description() const override { return convolution_->description(); }
  void ImportWeights(const float* canonical, float* weights) const override {
    convolution_->ImportWeights(canonical, weights);
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    recorder_.Record();
    convolution_->ExportWeights(weights, canonical);
  }
  size_t workspace_bytes() const override { return convolution_->workspace_bytes(); }
  void Forward(int64_t samples, const void* x, const void* weights,
               const kernels::Epilogue& epilogue, void* y, void* workspace) override {
    convolution_->Forward(samples, x, weights, epilogue, y, workspace);
  }
  void BackwardData(int64_t samples, const void* dy, const void* weights, void* dx,
                    void* workspace) override {
    convolution_->BackwardData(samples, dy, weights, dx, workspace);
  }
  void BackwardWeights(int64_t samples, const void* x, const void* dy, void* dweights, float* dbias,
                       void* workspace) override {
    convolution_->BackwardWeights(samples, x, dy, dweights, dbias, workspace);
  }

 private:
  const std::unique_ptr<Convolution> convolution_;
  ThreadRecorder& recorder_;
};

class RecordingDevice final : public kernels::HostMemoryDevice {
 public:
  explicit RecordingDevice(ThreadRecorder* recorder) : recorder_(recorder) {}

  std::string name() const override { return "recording"; }
  const kernels::KernelTable& kernels() const override { return kernels::CpuDevice().kernels(); }
  absl::StatusOr<std::unique_ptr<kernels::Convolution>> MakeConvolution(
      const kernels::ConvolutionShape& shape, const kernels::ConvolutionOptions& options) override {
    auto convolution = kernels::CpuDevice().MakeConvolution(shape, options);
    if (!convolution.ok()) return convolution;
    return std::make_unique<RecordingConvolution>(*std::move(convolution), recorder_);
  }

 private:
  ThreadRecorder* const recorder_;
};

class TrainerSnapshotTest : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr uint32_t kRanks = 2;

  v1::JobSpec Spec() const {
    v1::JobSpec job;
    v1::TrainSpec& spec = *job.mutable_train();
    spec.mutable_model()->set_name("mlp");
    spec.mutable_dataset()->set_name("fashion_mnist");
    spec.mutable_dataset()->set_path(data_.path());
    spec.set_max_steps(10);
    spec.set_global_batch(20);
    spec.mutable_optimizer()->set_name("sgd");
    spec.mutable_optimizer()->set_learning_rate(0.01);
    spec.mutable_optimizer()->set_momentum(0.9);
    spec.mutable_checkpoint()->set_every_steps(1);
    spec.mutable_strategy()->set_shard_optimizer(GetParam());
    spec::ApplyDefaults(job);
    return job;
  }

  void SetUp() override { data::WriteSyntheticDataset(data_.path(), 100, 20); }

  // Trains with one thread per rank. Expects these threads not to be recorded.
  void Train(const v1::JobSpec& spec, const std::function<void(const v1::Progress&)>& at_progress) {
    CheckpointOptions checkpoints = {.path = checkpoints_.path(), .job_id = "job", .generation = 1};
    checkpoints.keep_best = spec.train().checkpoint().keep_best();
    checkpoints.operations = &recording_operations_;
    const auto directory = CheckpointDirectory::OpenForWriting(checkpoints);
    ASSERT_TRUE(directory.ok()) << directory.status();
    const std::vector<ProcessGroups> groups = MakeLoopbackWorld(kRanks);
    const auto train = [&](uint32_t rank) {
      RecordingDevice device(&conversions_);
      auto setup = SetUpTraining(spec, kRanks, "", {&device});
      ASSERT_TRUE(setup.ok()) << setup.status();
      TrainerOptions options;
      options.job_id = "job";
      options.checkpoints = *directory;
      options.shards_checkpoints = GetParam();
      options.on_checkpoint = [this](const CheckpointRef& written) { written_.push_back(written); };
      options.progress = [&](const v1::Progress& progress) {
        if (rank == 0) at_progress(progress);
      };
      {
        Trainer trainer(*std::move(setup), &groups[rank], std::move(options));
        const auto summary = trainer.Run();
        EXPECT_TRUE(summary.ok()) << summary.status();
      }
      EXPECT_FALSE(conversions_.Contains(std::this_thread::get_id()));
      EXPECT_FALSE(operations_.Contains(std::this_thread::get_id()));
    };
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < kRanks; ++rank) threads.emplace_back(train, rank);
    for (std::thread& thread : threads) thread.join();
  }
  void Watch(bool watch) {
    conversions_.Watch(watch);
    operations_.Watch(watch);
  }

  data::TemporaryDirectory data_, checkpoints_;
  ThreadRecorder conversions_, operations_;
  RecordingOperations recording_operations_{&operations_};
  std::vector<CheckpointRef> written_;
};

// The parameter: whether each rank writes its part of a checkpoint.
TEST_P(TrainerSnapshotTest, OnlyWritersConvertAndUseFiles) {
  // Watches the checkpoint of the first step. The second step waits for its writer.
  Train(Spec(), [this](const v1::Progress& progress) {
    if (progress.step() == 1) {
      Watch(true);
    } else if (progress.step() == 2) {
      conversions_.AwaitOne();
      operations_.AwaitOne();
    } else if (progress.step() == 3) {
      Watch(false);
    }
  });
}

TEST_P(TrainerSnapshotTest, OnlyWritersFindTheBestCheckpoint) {
  v1::JobSpec spec = Spec();
  spec.mutable_train()->set_evaluate_every_epochs(1);
  spec.mutable_train()->mutable_checkpoint()->set_keep_best("test_loss");
  Train(spec, [this](const v1::Progress& progress) {
    if (progress.step() == 1) operations_.Watch(true);
  });
  // The loss falls in each epoch, of five steps.
  ASSERT_FALSE(written_.empty());
  for (const CheckpointRef& written : written_) {
    SCOPED_TRACE(written.name);
    EXPECT_EQ(written.best_step, written.step / 5 * 5);
    EXPECT_EQ(written.best_name,
              written.step < 5 ? "" : absl::StrFormat("step-%08d.g1", written.best_step));
  }
  EXPECT_EQ(written_.back().step, 10);
}

INSTANTIATE_TEST_SUITE_P(Parts, TrainerSnapshotTest, ::testing::Bool(), [](const auto& parts) {
  return std::string(parts.param ? "OfEachRank" : "OfRank0");
});

}  // namespace
}  // namespace muster::train
