#include "worker/data/loader.h"

#include <algorithm>

namespace muster::data {

Loader::Loader(const ImageDataset* dataset, const StepMap& steps, const LoaderOptions& options)
    : dataset_(dataset),
      steps_(steps),
      options_(options),
      next_to_fill_(options.first_step),
      next_to_use_(options.first_step),
      // One more than is ready ahead: the one in use.
      slots_(std::max(1u, options.prefetch) + 1) {
  const size_t rows = LargestShare(steps_.global_batch(), options_.world_size);
  for (Slot& slot : slots_) {
    slot.pixels.resize(rows * dataset_->image_bytes());
    slot.labels.resize(rows);
  }
  for (uint32_t i = 0; i < std::max(1u, options_.threads); ++i) {
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

const Batch& Loader::Next() {
  absl::MutexLock lock(&mutex_);
  if (in_use_) {
    SlotOf(next_to_use_ - 1).ready = false;
    in_use_ = false;
    slot_free_.Signal();
  }
  Slot& slot = SlotOf(next_to_use_);
  while (!slot.ready) slot_ready_.Wait(&mutex_);
  in_use_ = true;
  ++next_to_use_;
  return slot.batch;
}

void Loader::Run() {
  while (true) {
    uint64_t step;
    {
      absl::MutexLock lock(&mutex_);
      while (!stopping_ && next_to_fill_ < options_.end_step &&
             next_to_fill_ - next_to_use_ + (in_use_ ? 1 : 0) >= slots_.size()) {
        slot_free_.Wait(&mutex_);
      }
      if (stopping_ || next_to_fill_ >= options_.end_step) return;
      step = next_to_fill_++;
    }
    Slot& slot = SlotOf(step);
    Fill(step, slot);
    {
      absl::MutexLock lock(&mutex_);
      slot.ready = true;
    }
    slot_ready_.Signal();
  }
}

void Loader::Fill(uint64_t step, Slot& slot) const {
  const GlobalBatch global = steps_.At(step);
  const RowRange share = Share(global.rows, options_.rank, options_.world_size);
  const Order order = OrderOf(global.epoch);
  const size_t image_bytes = dataset_->image_bytes();
  for (uint64_t row = share.begin; row < share.end; ++row) {
    const uint32_t sample = (*order)[global.first + row];
    const size_t i = row - share.begin;
    PlaceImage(dataset_->image(sample), dataset_->info(),
               DrawPlacement(options_.augment, global.epoch, sample),
               slot.pixels.data() + i * image_bytes);
    slot.labels[i] = dataset_->label(sample);
  }
  Batch& batch = slot.batch;
  batch.step = step;
  batch.epoch = global.epoch;
  batch.global_rows = global.rows;
  batch.first_row = share.begin;
  batch.rows = share.size();
  batch.pixels = absl::MakeConstSpan(slot.pixels).first(batch.rows * image_bytes);
  batch.labels = absl::MakeConstSpan(slot.labels).first(batch.rows);
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
