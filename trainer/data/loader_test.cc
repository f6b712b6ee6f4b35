#include "trainer/data/loader.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "kernels/host_memory_device.h"
#include "trainer/data/fake_dataset.h"
#include "trainer/exit_code.h"

namespace muster::data {
namespace {

using Corners = std::tuple<int, int, int, int>;

struct Copy {
  uint64_t step, epoch, first_sample, global_samples;
  std::vector<uint8_t> pixels;
  std::vector<int32_t> labels;
  std::vector<Corners> erasures;
  bool operator==(const Copy&) const = default;

  explicit Copy(const Batch& batch)
      : step(batch.step),
        epoch(batch.epoch),
        first_sample(batch.first_sample),
        global_samples(batch.global_samples),
        pixels(batch.pixels.begin(), batch.pixels.end()),
        labels(batch.labels.begin(), batch.labels.end()) {
    for (const kernels::ImageTransformParams& params : batch.images) {
      erasures.push_back(
          {params.erased_top, params.erased_left, params.erased_height, params.erased_width});
    }
  }

  // Appends the next rank's slice of the same batch.
  void Append(const Copy& other) {
    EXPECT_EQ(other.step, step);
    EXPECT_EQ(other.epoch, epoch);
    EXPECT_EQ(other.global_samples, global_samples);
    pixels.insert(pixels.end(), other.pixels.begin(), other.pixels.end());
    labels.insert(labels.end(), other.labels.begin(), other.labels.end());
    erasures.insert(erasures.end(), other.erasures.begin(), other.erasures.end());
  }
};

constexpr size_t kSamples = 57;
constexpr uint64_t kGlobalBatch = 10;
constexpr uint64_t kSteps = 20;  // three epochs of 6 steps with a short last one, and two more

FakeDataset MakeImages() { return FakeDataset(kSamples, {{30, 40}, {25, 19}, {12, 12}}, 3); }

LoaderOptions Options() {
  LoaderOptions options;
  options.seed = 4;
  options.end_step = kSteps;
  options.transform.size = {12, 12};
  options.transform.augment.crop_padding = 2;
  options.transform.augment.flip = true;
  options.transform.augment.seed = 4;
  options.transform.augment.random_resized_crop.emplace();
  options.transform.augment.random_erasing.emplace();
  return options;
}

std::vector<Copy> All(Loader& loader) {
  std::vector<Copy> batches;
  while (true) {
    const auto batch = loader.Next();
    EXPECT_TRUE(batch.ok()) << batch.status();
    if (!batch.ok() || *batch == nullptr) return batches;
    EXPECT_EQ((*batch)->labels.size(), (*batch)->samples);
    batches.emplace_back(**batch);
  }
}

std::vector<Copy> Train(const FakeDataset& dataset, const LoaderOptions& options) {
  const auto loader =
      Loader::ForTraining(&dataset, *StepMap::Create(dataset.size(), kGlobalBatch, false), options);
  return All(*loader);
}

TEST(LoaderTest, ResultDoesNotDependOnThreadsAndPrefetch) {
  const FakeDataset dataset = MakeImages();
  for (const uint32_t views : {1u, 2u}) {
    LoaderOptions options = Options();
    options.views = views;
    const std::vector<Copy> expected = Train(dataset, options);
    ASSERT_EQ(expected.size(), kSteps);
    for (const uint32_t threads : {2u, 5u}) {
      for (const uint32_t prefetch : {0u, 1u, 3u, 50u}) {
        options.threads = threads;
        options.prefetch = prefetch;
        EXPECT_EQ(Train(dataset, options), expected) << threads << " threads, " << prefetch;
      }
    }
  }
}

TEST(LoaderTest, RanksTogetherLoadTheGlobalBatch) {
  const FakeDataset dataset = MakeImages();
  const std::vector<Copy> whole = Train(dataset, Options());
  for (const uint32_t world : {2u, 3u, 16u}) {
    std::vector<Copy> joined;
    for (uint32_t rank = 0; rank < world; ++rank) {
      LoaderOptions options = Options();
      options.rank = rank;
      options.world_size = world;
      const std::vector<Copy> slices = Train(dataset, options);
      ASSERT_EQ(slices.size(), kSteps);
      for (size_t i = 0; i < slices.size(); ++i) {
        if (rank == 0) {
          joined.push_back(slices[i]);
        } else {
          EXPECT_EQ(slices[i].first_sample, joined[i].labels.size());
          joined[i].Append(slices[i]);
        }
      }
    }
    EXPECT_EQ(joined, whole) << world << " ranks";
  }
}

// Images of one pixel whose brightness is the sample's index.
class NumberedDataset : public FakeDataset {
 public:
  explicit NumberedDataset(size_t samples) : FakeDataset(samples, {{1, 1}}, 1) {}
  std::unique_ptr<ImageReader> NewReader() const override { return std::make_unique<Reader>(); }

 private:
  class Reader : public ImageReader {
   public:
    absl::StatusOr<ImageSize> Open(size_t sample) override {
      pixel_ = static_cast<uint8_t>(sample);
      return ImageSize{1, 1};
    }
    absl::StatusOr<DecodedRegion> Decode(const Region& wanted, ImageSize) override {
      return DecodedRegion{{1, 1, 1, 1, &pixel_}, wanted};
    }

   private:
    uint8_t pixel_ = 0;
  };
};

std::vector<uint8_t> Numbers(size_t samples) {
  std::vector<uint8_t> numbers(samples);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(LoaderTest, ReturnsEachSampleOncePerEpoch) {
  for (const size_t samples : {57u, 60u, 5u, 1u}) {
    const NumberedDataset dataset(samples);
    const StepMap steps = *StepMap::Create(samples, kGlobalBatch, false);
    for (const uint32_t world : {1u, 2u, 3u}) {
      std::vector<std::vector<uint8_t>> epochs(4);
      for (uint32_t rank = 0; rank < world; ++rank) {
        LoaderOptions options;
        options.seed = 9;
        options.end_step = epochs.size() * steps.steps_per_epoch();
        options.rank = rank;
        options.world_size = world;
        options.threads = 2;
        const auto loader = Loader::ForTraining(&dataset, steps, options);
        for (const Copy& batch : All(*loader)) {
          std::vector<uint8_t>& epoch = epochs[batch.epoch];
          epoch.insert(epoch.end(), batch.pixels.begin(), batch.pixels.end());
          for (size_t i = 0; i < batch.labels.size(); ++i) {
            EXPECT_EQ(batch.labels[i], dataset.label(batch.pixels[i]));
          }
        }
      }
      if (samples > 5) EXPECT_NE(epochs[0], epochs[1]);
      for (std::vector<uint8_t>& epoch : epochs) {
        std::sort(epoch.begin(), epoch.end());
        EXPECT_EQ(epoch, Numbers(samples)) << world << " ranks";
      }
    }
  }
}

TEST(LoaderTest, EvaluationReturnsEachSampleOnceInOrder) {
  const NumberedDataset dataset(kSamples);
  for (const uint32_t world : {1u, 2u, 3u, 100u}) {
    for (const uint32_t max_samples : {1u, 7u, 200u}) {
      std::vector<uint8_t> seen;
      for (uint32_t rank = 0; rank < world; ++rank) {
        LoaderOptions options;
        options.rank = rank;
        options.world_size = world;
        options.threads = 2;
        const auto loader = Loader::ForEvaluation(&dataset, max_samples, options);
        for (const Copy& batch : All(*loader)) {
          EXPECT_LE(batch.labels.size(), max_samples);
          EXPECT_EQ(batch.first_sample, seen.size());
          EXPECT_EQ(batch.global_samples, kSamples);
          seen.insert(seen.end(), batch.pixels.begin(), batch.pixels.end());
        }
      }
      EXPECT_EQ(seen, Numbers(kSamples)) << world << " ranks, batch size " << max_samples;
    }
  }
}

TEST(LoaderTest, EvaluationIsNotAugmented) {
  const FakeDataset dataset = MakeImages();
  LoaderOptions plain;
  plain.transform.size = {12, 12};
  const auto expected = All(*Loader::ForEvaluation(&dataset, 10, plain));
  EXPECT_EQ(All(*Loader::ForEvaluation(&dataset, 10, Options())), expected);
  EXPECT_EQ(expected.size(), 6);
  for (const Corners& erased : expected[0].erasures) EXPECT_EQ(erased, Corners());
}

TEST(LoaderTest, CanStartAtAnyStep) {
  const FakeDataset dataset = MakeImages();
  const std::vector<Copy> whole = Train(dataset, Options());
  for (uint64_t first = 0; first <= kSteps; ++first) {
    LoaderOptions options = Options();
    options.first_step = first;
    options.threads = 1 + first % 3;
    EXPECT_EQ(Train(dataset, options), std::vector<Copy>(whole.begin() + first, whole.end()));
  }
}

TEST(LoaderTest, ViewsOfASampleAreConsecutive) {
  const FakeDataset dataset = MakeImages();
  const std::vector<Copy> single = Train(dataset, Options());
  LoaderOptions options = Options();
  options.views = 2;
  const std::vector<Copy> doubled = Train(dataset, options);
  const size_t image_bytes = 12 * 12 * 3;
  for (size_t i = 0; i < single.size(); ++i) {
    ASSERT_EQ(doubled[i].labels.size(), 2 * single[i].labels.size());
    EXPECT_EQ(doubled[i].global_samples, single[i].global_samples);
    for (size_t sample = 0; sample < single[i].labels.size(); ++sample) {
      const auto image = [&](const Copy& batch, size_t sample) {
        return absl::MakeConstSpan(batch.pixels).subspan(sample * image_bytes, image_bytes);
      };
      EXPECT_EQ(image(doubled[i], 2 * sample), image(single[i], sample));
      EXPECT_NE(image(doubled[i], 2 * sample + 1), image(single[i], sample));
      EXPECT_EQ(doubled[i].erasures[2 * sample], single[i].erasures[sample]);
      EXPECT_EQ(doubled[i].labels[2 * sample], single[i].labels[sample]);
      EXPECT_EQ(doubled[i].labels[2 * sample + 1], single[i].labels[sample]);
    }
  }
}

TEST(LoaderTest, SlicesOfABatchMakeUpTheBatch) {
  const FakeDataset dataset = MakeImages();
  LoaderOptions options = Options();
  options.views = 2;
  options.rank = 1;
  options.world_size = 2;
  const auto loader =
      Loader::ForTraining(&dataset, *StepMap::Create(kSamples, kGlobalBatch, false), options);
  const Batch& batch = **loader->Next();
  ASSERT_EQ(batch.samples, 10);
  for (const uint32_t slices : {1u, 2u, 3u, 8u}) {
    Copy joined(batch.Slice(0, slices));
    for (uint32_t slice = 1; slice < slices; ++slice) {
      const Batch piece = batch.Slice(slice, slices);
      EXPECT_EQ(piece.samples % 2, 0);
      EXPECT_EQ(piece.first_sample, batch.first_sample + joined.labels.size() / 2);
      joined.Append(Copy(piece));
    }
    EXPECT_EQ(joined, Copy(batch)) << slices << " slices";
  }
}

// Labels have the same order without images, even with images of different sizes and unreadable
// ones.
TEST(LoaderTest, ReturnsLabelsOnly) {
  FakeDataset dataset = MakeImages();
  LoaderOptions options = Options();
  const std::vector<Copy> expected = Train(dataset, options);
  dataset.set_damaged(33);
  options.labels_only = true;
  const std::vector<Copy> labels = Train(dataset, options);
  ASSERT_EQ(labels.size(), expected.size());
  for (size_t i = 0; i < labels.size(); ++i) {
    EXPECT_EQ(labels[i].labels, expected[i].labels);
    EXPECT_EQ(labels[i].first_sample, expected[i].first_sample);
    EXPECT_TRUE(labels[i].pixels.empty());
    EXPECT_TRUE(labels[i].erasures.empty());
  }
  const auto loader =
      Loader::ForTraining(&dataset, *StepMap::Create(dataset.size(), kGlobalBatch, false), options);
  const auto batch = loader->Next();
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ((*batch)->Slice(1, 3).labels[0], expected[0].labels[3]);
}

TEST(LoaderTest, DamagedImageEndsTheStreamAtItsBatch) {
  FakeDataset dataset = MakeImages();
  dataset.set_damaged(23);
  const std::vector<uint32_t> order = EpochOrder(4, 0, kSamples);
  const auto position = std::find(order.begin(), order.end(), 23) - order.begin();
  const auto bad_step = static_cast<uint64_t>(position) / kGlobalBatch;
  for (const uint32_t threads : {1u, 4u}) {
    LoaderOptions options = Options();
    options.threads = threads;
    const auto loader =
        Loader::ForTraining(&dataset, *StepMap::Create(kSamples, kGlobalBatch, false), options);
    for (uint64_t step = 0; step < bad_step; ++step) {
      const auto batch = loader->Next();
      ASSERT_TRUE(batch.ok()) << batch.status();
      EXPECT_EQ((*batch)->step, step);
    }
    for (int again = 0; again < 2; ++again) {
      const absl::Status status = loader->Next().status();
      EXPECT_EQ(status.ToString(absl::StatusToStringMode::kWithNoExtraData),
                "DATA_LOSS: image 23 is damaged");
      EXPECT_EQ(train::ExitCodeOf(status), kExitNoInput);
    }
  }
}

// A device whose events complete only when the test calls Finish.
class SlowDevice final : public kernels::HostMemoryDevice {
 public:
  class Event final : public kernels::DeviceEvent {
   public:
    explicit Event(SlowDevice* device) : device_(device) {}
    void Record() override {
      absl::MutexLock lock(&device_->mutex_);
      place_ = ++device_->recorded_;
    }
    bool Done() override {
      absl::MutexLock lock(&device_->mutex_);
      return place_ <= device_->done_;
    }
    absl::Status Wait() override {
      absl::MutexLock lock(&device_->mutex_);
      if (place_ > device_->done_) device_->waits_ = true;
      while (place_ > device_->done_) device_->changed_.Wait(&device_->mutex_);
      return absl::OkStatus();
    }

   private:
    SlowDevice* const device_;
    int place_ = 0;
  };

  std::string name() const override { return "slow"; }
  bool host_memory() const override { return false; }
  const kernels::KernelTable& kernels() const override { return kernels::CpuKernels(); }
  absl::StatusOr<std::unique_ptr<kernels::Convolution>> MakeConvolution(
      const kernels::ConvolutionShape&, const kernels::ConvolutionOptions&) override {
    return absl::UnimplementedError("none here");
  }
  std::unique_ptr<kernels::DeviceEvent> MakeEvent() override {
    return std::make_unique<Event>(this);
  }

  // Blocks until a thread waits for an event that is not done.
  void AwaitWaiting() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&waits_));
  }
  void Finish(int events) {
    absl::MutexLock lock(&mutex_);
    done_ = events;
    changed_.SignalAll();
  }

 private:
  absl::Mutex mutex_;
  absl::CondVar changed_;
  int recorded_ = 0;
  int done_ = 0;
  bool waits_ = false;
};

TEST(LoaderTest, DoesNotReuseABatchBeforeItIsCopied) {
  const FakeDataset dataset = MakeImages();
  SlowDevice device;
  LoaderOptions options = Options();
  options.end_step = 4;
  options.prefetch = 1;
  const std::vector<Copy> expected = Train(dataset, options);
  options.device = &device;
  const auto loader =
      Loader::ForTraining(&dataset, *StepMap::Create(kSamples, kGlobalBatch, false), options);
  const Batch first = **loader->Next();
  EXPECT_EQ(Copy(first), expected[0]);
  first.copied->Record();
  // Its slot is free except for the copy, and batch 2 will use it.
  const Batch second = **loader->Next();
  device.AwaitWaiting();
  EXPECT_EQ(Copy(second), expected[1]);
  EXPECT_EQ(first.pixels, absl::MakeConstSpan(expected[0].pixels));
  EXPECT_EQ(first.labels, absl::MakeConstSpan(expected[0].labels));
  second.copied->Record();
  device.Finish(1);
  EXPECT_EQ(Copy(**loader->Next()), expected[2]);
  EXPECT_EQ(second.pixels, absl::MakeConstSpan(expected[1].pixels));
  device.Finish(2);
  EXPECT_EQ(Copy(**loader->Next()), expected[3]);
}

// A device with enough memory for a number of allocations.
class FullDevice final : public kernels::HostMemoryDevice {
 public:
  explicit FullDevice(int allocations) : left_(allocations) {}
  std::string name() const override { return "full"; }
  bool host_memory() const override { return false; }
  const kernels::KernelTable& kernels() const override { return kernels::CpuKernels(); }
  absl::StatusOr<std::unique_ptr<kernels::Convolution>> MakeConvolution(
      const kernels::ConvolutionShape&, const kernels::ConvolutionOptions&) override {
    return absl::UnimplementedError("none here");
  }

 private:
  absl::StatusOr<void*> AllocateHostBytes(size_t bytes) override {
    if (left_-- == 0) return absl::ResourceExhaustedError("full");
    return HostMemoryDevice::AllocateHostBytes(bytes);
  }

  int left_;
};

TEST(LoaderTest, ReturnsResourceExhaustedWithoutMemoryForBatches) {
  const FakeDataset dataset = MakeImages();
  const StepMap steps = *StepMap::Create(kSamples, kGlobalBatch, false);
  for (const int allocations : {0, 1, 2, 4}) {
    FullDevice device(allocations);
    LoaderOptions options = Options();
    options.device = &device;
    const auto training = Loader::ForTraining(&dataset, steps, options);
    EXPECT_TRUE(absl::IsResourceExhausted(training->Next().status())) << allocations;
    EXPECT_TRUE(absl::IsResourceExhausted(training->Next().status())) << allocations;
  }
}

// A dataset whose images cannot be read until the gate is opened; for loaders with one thread.
class GatedDataset : public FakeDataset {
 public:
  GatedDataset() : FakeDataset(kSamples, {{12, 12}}, 3) {}
  void Open() {
    if (!opened_.HasBeenNotified()) opened_.Notify();
  }
  // The loader's thread destroys its reader after it has prepared the last batch.
  void AwaitAllPrepared() const { reader_destroyed_.WaitForNotification(); }
  std::unique_ptr<ImageReader> NewReader() const override {
    return std::make_unique<Reader>(FakeDataset::NewReader(), opened_, reader_destroyed_);
  }

 private:
  class Reader : public ImageReader {
   public:
    Reader(std::unique_ptr<ImageReader> reader, const absl::Notification& opened,
           absl::Notification& destroyed)
        : reader_(std::move(reader)), opened_(opened), destroyed_(destroyed) {}
    ~Reader() override { destroyed_.Notify(); }
    absl::StatusOr<ImageSize> Open(size_t sample) override {
      opened_.WaitForNotification();
      return reader_->Open(sample);
    }
    absl::StatusOr<DecodedRegion> Decode(const Region& wanted, ImageSize at_least) override {
      return reader_->Decode(wanted, at_least);
    }

   private:
    const std::unique_ptr<ImageReader> reader_;
    const absl::Notification& opened_;
    absl::Notification& destroyed_;
  };

  absl::Notification opened_;
  mutable absl::Notification reader_destroyed_;
};

TEST(LoaderTest, WaitedExcludesWaitingForTheDevice) {
  GatedDataset dataset;
  dataset.Open();
  SlowDevice device;
  LoaderOptions options = Options();
  options.device = &device;
  options.end_step = 3;
  const auto loader =
      Loader::ForTraining(&dataset, *StepMap::Create(kSamples, kGlobalBatch, false), options);
  dataset.AwaitAllPrepared();
  for (int i = 0; i < 2; ++i) (**loader->Next()).copied->Record();
  std::thread training([&] { EXPECT_EQ((**loader->Next()).step, 2); });
  device.AwaitWaiting();
  device.Finish(1);
  training.join();
  EXPECT_EQ(loader->waited(), absl::ZeroDuration());
  device.Finish(2);  // the loader must outlive the device's reads
}

TEST(LoaderTest, WaitedIncludesWaitingForThreads) {
  GatedDataset dataset;
  LoaderOptions options = Options();
  // Called by Next during its wait.
  options.cancelled = [&dataset] {
    dataset.Open();
    return false;
  };
  const auto loader =
      Loader::ForTraining(&dataset, *StepMap::Create(kSamples, kGlobalBatch, false), options);
  EXPECT_TRUE(loader->Next().ok());
  EXPECT_GT(loader->waited(), absl::ZeroDuration());
}

TEST(LoaderTest, WaitCanBeCancelled) {
  GatedDataset dataset;
  std::atomic<bool> cancelled = false;
  LoaderOptions options = Options();
  options.cancelled = [&] { return cancelled.load(); };
  const auto loader =
      Loader::ForTraining(&dataset, *StepMap::Create(kSamples, kGlobalBatch, false), options);
  cancelled = true;
  EXPECT_TRUE(absl::IsAborted(loader->Next().status()));
  dataset.Open();
}

TEST(LoaderTest, CanBeDestroyedWithUnusedBatches) {
  const FakeDataset dataset = MakeImages();
  LoaderOptions options = Options();
  options.threads = 3;
  options.end_step = 1000000;
  const auto loader =
      Loader::ForTraining(&dataset, *StepMap::Create(kSamples, kGlobalBatch, false), options);
  EXPECT_EQ((**loader->Next()).step, 0);
}

}  // namespace
}  // namespace muster::data
