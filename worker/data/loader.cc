#include "worker/data/loader.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "common/status.h"

namespace muster::data {
namespace {

// Enough work at a time that taking it costs nothing beside; a picture of 224x224 is more.
constexpr size_t kPortionBytes = 64 << 10;

LoaderOptions Complete(const ImageDataset& dataset, LoaderOptions options) {
  ImageSize& size = options.transform.size;
  if (size.height == 0) size = {dataset.info().height, dataset.info().width};
  options.views = std::max(1u, options.views);
  options.threads = std::max(1u, options.threads);
  options.prefetch = std::max(1u, options.prefetch);
  return options;
}

}  // namespace

std::unique_ptr<Loader> Loader::ForTraining(const ImageDataset* dataset, const StepMap& steps,
                                            const LoaderOptions& options) {
  return absl::WrapUnique(
      new Loader(dataset, RankBatches::OfTraining(steps, options.rank, options.world_size),
                 /*shuffle=*/true, Complete(*dataset, options)));
}

std::unique_ptr<Loader> Loader::ForEvaluation(const ImageDataset* dataset, uint32_t max_rows,
                                              const LoaderOptions& options) {
  const RankBatches batches = RankBatches::OfEvaluation(dataset->size(), std::max(1u, max_rows),
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
      image_bytes_(static_cast<size_t>(options.transform.size.height *
                                       options.transform.size.width * dataset->info().channels)),
      portion_samples_(std::max<size_t>(1, kPortionBytes / (options.views * image_bytes_))),
      claimed_step_(options.first_step),
      next_to_use_(options.first_step),
      // One more than is ready ahead: the one in use.
      slots_(options.prefetch + size_t{1}) {
  const size_t rows = batches_.max_rows() * options_.views;
  for (Slot& slot : slots_) {
    slot.pixels.resize(rows * image_bytes_);
    slot.labels.resize(rows);
    if (options_.transform.augment.random_erasing.has_value()) slot.erasures.resize(rows);
  }
  for (uint32_t i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

Loader::~Loader() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  slot_free_.SignalAll();
  for (std::thread& thread : threads_) thread.join();
}

absl::StatusOr<const Batch*> Loader::Next() {
  absl::MutexLock lock(&mutex_);
  if (in_use_) {
    SlotOf(next_to_use_ - 1).ready = false;
    in_use_ = false;
    slot_free_.SignalAll();
  }
  if (!status_.ok()) return status_;
  if (next_to_use_ >= options_.end_step) return nullptr;
  Slot& slot = SlotOf(next_to_use_);
  while (!slot.ready) slot_ready_.Wait(&mutex_);
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
  const RowRange& all = slot.source.positions;
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
  const size_t rows = slot.source.positions.size() * options_.views;
  Batch& batch = slot.batch;
  batch.step = step;
  batch.epoch = slot.source.epoch;
  batch.global_rows = slot.source.global_rows;
  batch.first_row = slot.source.first_row;
  batch.rows = rows;
  batch.views = options_.views;
  batch.size = options_.transform.size;
  batch.pixels = absl::MakeConstSpan(slot.pixels).first(rows * image_bytes_);
  batch.labels = absl::MakeConstSpan(slot.labels).first(rows);
  batch.erasures = absl::MakeConstSpan(slot.erasures).first(slot.erasures.empty() ? 0 : rows);
}

absl::Status Loader::Prepare(const Portion& portion, ImageTransform& transform) const {
  Slot& slot = *portion.slot;
  const uint64_t epoch = slot.source.epoch;
  const Order order = shuffle_ ? OrderOf(epoch) : nullptr;
  for (uint64_t i = portion.positions.begin; i < portion.positions.end; ++i) {
    const auto sample = shuffle_ ? (*order)[i] : static_cast<uint32_t>(i);
    const size_t row = (i - slot.source.positions.begin) * options_.views;
    RETURN_IF_ERROR(transform.Apply(epoch, sample, options_.views,
                                    slot.pixels.data() + row * image_bytes_,
                                    slot.erasures.empty() ? nullptr : &slot.erasures[row]));
    std::fill_n(&slot.labels[row], options_.views, dataset_->label(sample));
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
