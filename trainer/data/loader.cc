#include "trainer/data/loader.h"

#include <algorithm>
#include <cstring>

#include "absl/memory/memory.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "trainer/exit_code.h"

namespace muster::data {
namespace {

// Large enough that the overhead of claiming work is negligible; an image of 224x224 is larger.
constexpr size_t kPortionBytes = 64 << 10;
// Batches whose steps are queued on a device: the one being computed and the next.
constexpr uint32_t kLeastInFlight = 2;
// Interval between two calls of LoaderOptions::cancelled.
constexpr absl::Duration kCancelInterval = absl::Milliseconds(100);

LoaderOptions Complete(const ImageDataset& dataset, LoaderOptions options) {
  ImageSize& size = options.transform.size;
  if (size.height == 0) size = {dataset.info().height, dataset.info().width};
  options.views = std::max(1u, options.views);
  options.threads = std::max(1u, options.threads);
  options.prefetch = std::max(1u, options.prefetch);
  return options;
}

size_t Bytes(ImageSize size, const ImageDataset& dataset) {
  return static_cast<size_t>(size.height * size.width * dataset.info().channels);
}

}  // namespace

std::unique_ptr<Loader> Loader::ForTraining(const ImageDataset* dataset, const StepMap& steps,
                                            const LoaderOptions& options) {
  return absl::WrapUnique(new Loader(
      dataset, RankBatches::OfTraining(steps, options.rank, options.world_size, options.slices),
      /*shuffle=*/true, Complete(*dataset, options)));
}

std::unique_ptr<Loader> Loader::ForEvaluation(const ImageDataset* dataset, uint32_t max_samples,
                                              const LoaderOptions& options) {
  const RankBatches batches = RankBatches::OfEvaluation(dataset->size(), std::max(1u, max_samples),
                                                        options.rank, options.world_size);
  LoaderOptions complete = Complete(*dataset, options);
  complete.transform.augment = AugmentOptions();
  complete.first_step = 0;
  complete.end_step = batches.pieces();
  complete.views = 1;
  return absl::WrapUnique(new Loader(dataset, batches, /*shuffle=*/false, complete));
}

Loader::Loader(const ImageDataset* dataset, const RankBatches& batches, bool shuffle,
               const LoaderOptions& options)
    : dataset_(dataset),
      batches_(batches),
      shuffle_(shuffle),
      options_(options),
      form_(FormFor(*dataset, options)),
      sample_bytes_(form_ == Form::kFinished
                        ? options.views * Bytes(options.transform.size, *dataset)
                        : Bytes({dataset->info().height, dataset->info().width}, *dataset)),
      // With labels only, any number is cheap; images of different sizes have no sample_bytes_.
      portion_samples_(std::max<size_t>(1, kPortionBytes / std::max<size_t>(1, sample_bytes_))),
      claimed_step_(options.first_step),
      next_to_use_(options.first_step),
      // One more than is prefetched: the batch in use.
      slots_(options.prefetch + size_t{1}) {
  status_ = AllocateSlots();
  if (!status_.ok()) return;
  for (uint32_t i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

absl::Status Loader::AllocateSlots() {
  const size_t samples = batches_.max_samples();
  const size_t inputs = samples * options_.views;
  kernels::Device& device = *options_.device;
  constexpr char kUse[] = "batches of the loader";
  for (Slot& slot : slots_) {
    slot.copied = device.MakeEvent();
    if (HasPixels()) {
      ASSIGN_OR_RETURN(slot.pixels, device.AllocateHost(samples * sample_bytes_, kUse));
    }
    ASSIGN_OR_RETURN(slot.labels, device.AllocateHost(inputs * sizeof(int32_t), kUse));
    if (form_ != Form::kNone) {
      ASSIGN_OR_RETURN(slot.images,
                       device.AllocateHost(inputs * sizeof(kernels::ImageTransformParams), kUse));
    }
  }
  return absl::OkStatus();
}

Loader::~Loader() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  slot_free_.SignalAll();
  for (std::thread& thread : threads_) thread.join();
  // The device reports its errors itself.
  for (const Slot& slot : slots_) {
    if (slot.copied != nullptr) slot.copied->Wait().IgnoreError();
  }
}

Loader::Form Loader::FormFor(const ImageDataset& dataset, const LoaderOptions& options) {
  if (options.labels_only) return Form::kNone;
  if (options.device->host_memory()) return Form::kFinished;
  if (options.resident != nullptr) return Form::kResident;
  const bool decoded = dataset.size() > 0 && dataset.image(0) != nullptr;
  return decoded ? Form::kStored : Form::kFinished;
}

absl::Status Loader::WaitForDevice() {
  const uint64_t most_in_flight = std::max(kLeastInFlight, options_.prefetch / 2);
  kernels::DeviceEvent* begun = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    if (in_use_) {
      SlotOf(next_to_use_ - 1).ready = false;
      in_use_ = false;
      slot_free_.SignalAll();
    }
    if (next_to_use_ < options_.first_step + most_in_flight) return absl::OkStatus();
    begun = SlotOf(next_to_use_ - most_in_flight).copied.get();
  }
  return begun->Wait();
}

absl::StatusOr<const Batch*> Loader::Next() {
  waited_ = absl::ZeroDuration();
  RETURN_IF_ERROR(WaitForDevice());
  absl::MutexLock lock(&mutex_);
  if (!status_.ok()) return status_;
  if (next_to_use_ >= options_.end_step) return nullptr;
  Slot& slot = SlotOf(next_to_use_);
  if (!slot.ready) {
    const SteadyTime start = Now().steady;
    while (!slot.ready) {
      const bool expired = slot_ready_.WaitFor(&mutex_, kCancelInterval);
      if (expired && options_.cancelled()) return absl::AbortedError("the wait was cancelled");
    }
    waited_ = Now().steady - start;
  }
  if (!slot.status.ok()) {
    status_ = slot.status;
    stopping_ = true;
    slot_free_.SignalAll();
    return status_;
  }
  in_use_ = true;
  ++next_to_use_;
  return &slot.batch;
}

void Loader::Run() {
  ImageTransform transform(dataset_, options_.transform);
  while (const std::optional<Portion> portion = Claim()) {
    Finish(*portion, Prepare(*portion, transform));
  }
}

std::optional<Loader::Portion> Loader::Claim() {
  absl::MutexLock lock(&mutex_);
  while (!stopping_ && claimed_step_ < options_.end_step &&
         claimed_step_ - next_to_use_ + (in_use_ ? 1 : 0) >= slots_.size()) {
    slot_free_.Wait(&mutex_);
  }
  if (stopping_ || claimed_step_ >= options_.end_step) return std::nullopt;
  Slot& slot = SlotOf(claimed_step_);
  if (claimed_samples_ == 0) BeginBatch(claimed_step_, slot);
  const SampleRange& all = slot.source.positions;
  const uint64_t begin = all.begin + claimed_samples_;
  const uint64_t end = std::min(all.end, begin + portion_samples_);
  claimed_samples_ += end - begin;
  if (end == all.end) {
    ++claimed_step_;
    claimed_samples_ = 0;
  }
  return Portion{&slot, {begin, end}};
}

void Loader::BeginBatch(uint64_t step, Slot& slot) const {
  slot.source = batches_.At(step);
  slot.done = 0;
  slot.status = absl::OkStatus();
  const size_t inputs = slot.source.positions.size() * options_.views;
  Batch& batch = slot.batch;
  batch.step = step;
  batch.epoch = slot.source.epoch;
  batch.global_samples = slot.source.global_samples;
  batch.first_sample = slot.source.first_sample;
  batch.samples = inputs;
  batch.views = options_.views;
  batch.size = options_.transform.size;
  batch.images = {};
  if (form_ != Form::kNone) {
    batch.images = {slot.images.as<kernels::ImageTransformParams>(), inputs};
  }
  batch.labels = {slot.labels.as<int32_t>(), inputs};
  batch.pixels = {};
  if (HasPixels()) {
    batch.pixels = {slot.pixels.as<uint8_t>(), slot.source.positions.size() * sample_bytes_};
  }
  batch.resident = options_.resident;
  batch.copied = slot.copied.get();
}

absl::Status Loader::Prepare(const Portion& portion, ImageTransform& transform) const {
  // The device may still be reading the previous batch of this slot.
  RETURN_IF_ERROR(portion.slot->copied->Wait());
  const Order order = shuffle_ ? OrderOf(portion.slot->source.epoch) : nullptr;
  for (uint64_t i = portion.positions.begin; i < portion.positions.end; ++i) {
    const auto sample = shuffle_ ? (*order)[i] : static_cast<uint32_t>(i);
    RETURN_IF_ERROR(PrepareSample(*portion.slot, i, sample, transform));
  }
  return absl::OkStatus();
}

absl::Status Loader::PrepareSample(const Slot& slot, uint64_t position, uint32_t sample,
                                   ImageTransform& transform) const {
  const uint64_t epoch = slot.source.epoch;
  const uint32_t views = options_.views;
  const size_t place = position - slot.source.positions.begin;
  std::fill_n(slot.labels.as<int32_t>() + place * views, views, dataset_->label(sample));
  if (form_ == Form::kNone) return absl::OkStatus();
  kernels::ImageTransformParams* const images =
      slot.images.as<kernels::ImageTransformParams>() + place * views;
  size_t first_byte = place * sample_bytes_;
  if (form_ == Form::kFinished) {
    RETURN_IF_ERROR(train::WithExitCode(
        transform.Apply(epoch, sample, views, slot.pixels.as<uint8_t>() + first_byte, images),
        kExitNoInput));
  } else {
    RETURN_IF_ERROR(transform.Describe(epoch, sample, views, images));
    if (form_ == Form::kStored) {
      std::memcpy(slot.pixels.as<uint8_t>() + first_byte, dataset_->image(sample), sample_bytes_);
    } else {
      first_byte = sample * sample_bytes_;
    }
  }
  for (uint32_t view = 0; view < views; ++view) {
    images[view].image += static_cast<int64_t>(first_byte);
  }
  return absl::OkStatus();
}

void Loader::Finish(const Portion& portion, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  Slot& slot = *portion.slot;
  if (!status.ok() && (slot.status.ok() || portion.positions.begin < slot.failed_position)) {
    slot.status = status;
    slot.failed_position = portion.positions.begin;
  }
  slot.done += portion.positions.size();
  if (slot.done < slot.source.positions.size()) return;
  slot.ready = true;
  slot_ready_.Signal();
}

Loader::Order Loader::OrderOf(uint64_t epoch) const {
  absl::MutexLock lock(&orders_mutex_);
  auto& cached = orders_[epoch % 2];
  if (cached.second == nullptr || cached.first != epoch) {
    cached = {epoch, std::make_shared<const std::vector<uint32_t>>(EpochOrder(
                         options_.seed, epoch, static_cast<uint32_t>(dataset_->size())))};
  }
  return cached.second;
}

}  // namespace muster::data
