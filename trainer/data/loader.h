// Prepares a rank's batches in background threads, ahead of its steps.
#ifndef MUSTER_TRAINER_DATA_LOADER_H_
#define MUSTER_TRAINER_DATA_LOADER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/steady_cond_var.h"
#include "kernels/device.h"
#include "trainer/data/batch.h"
#include "trainer/data/image_dataset.h"
#include "trainer/data/sampler.h"
#include "trainer/data/transform.h"

namespace muster::data {

struct LoaderOptions {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint32_t slices = 1;  // for training: consecutive slices of each batch, from slice `rank` on
  uint32_t threads = 1;
  uint32_t prefetch = 4;  // batches ready ahead
  TransformOptions transform;
  // Device whose thread calls the loader and which must outlive it; determines the form and the
  // memory of batches.
  kernels::Device* device = &kernels::CpuDevice();
  // The dataset's images in device memory (MakeResident), or null.
  const uint8_t* resident = nullptr;
  // Batches contain only labels, and no image is read.
  bool labels_only = false;
  // Ends a wait for a batch; called on the thread that waits.
  std::function<bool()> cancelled = [] { return false; };
  // For training only:
  uint64_t seed = 0;  // seed of the sample order
  uint64_t first_step = 0;
  uint64_t end_step = 0;  // one past the last
  uint32_t views = 1;     // consecutive views per sample
};

// The results of Next depend only on the options, not on thread timing. All threads work on the
// oldest unfinished batch, each on some of its samples. Next must be called from one thread.
class Loader {
 public:
  // If there is no memory for the batches, Next returns RESOURCE_EXHAUSTED.
  //
  // Each sample once per epoch in that epoch's order, augmented. `dataset` must outlive the loader.
  static std::unique_ptr<Loader> ForTraining(const ImageDataset* dataset, const StepMap& steps,
                                             const LoaderOptions& options);
  // Each sample once in the dataset's order, divided among the ranks, in batches of at most
  // `max_samples` samples; transform.augment is not used. Ranks may have different numbers of
  // batches.
  static std::unique_ptr<Loader> ForEvaluation(const ImageDataset* dataset, uint32_t max_samples,
                                               const LoaderOptions& options);
  // Stops the threads, even if batches are still to be prepared.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Waits for the next batch and returns it, or null after the last. It is valid until the next
  // call (see Batch::copied for its arrays). An image that cannot be read ends the stream: the call
  // for its batch and all later calls return the error, which names the file. ABORTED if the wait
  // is cancelled.
  absl::StatusOr<const Batch*> Next() ABSL_LOCKS_EXCLUDED(mutex_);
  // How long the last Next waited for the loader's threads. Excludes waiting for the device, which
  // limits the number of batches in flight there.
  absl::Duration waited() const { return waited_; }

 private:
  struct Slot {
    kernels::HostMemory pixels;  // uint8
    kernels::HostMemory labels;  // int32
    kernels::HostMemory images;  // ImageTransformParams
    std::unique_ptr<kernels::DeviceEvent> copied;
    RankBatch source;
    Batch batch;
    uint64_t done = 0;    // samples
    absl::Status status;  // error of the earliest portion that failed
    uint64_t failed_position = 0;
    bool ready = false;
  };
  // Samples of a batch that one thread prepares.
  struct Portion {
    Slot* slot;
    SampleRange positions;
  };
  using Order = std::shared_ptr<const std::vector<uint32_t>>;

  // The image data in batches: finished images; stored images, each once; only descriptions of
  // resident images; or nothing.
  enum class Form { kFinished, kStored, kResident, kNone };
  static Form FormFor(const ImageDataset& dataset, const LoaderOptions& options);
  bool HasPixels() const { return form_ == Form::kFinished || form_ == Form::kStored; }

  Loader(const ImageDataset* dataset, const RankBatches& batches, bool shuffle,
         const LoaderOptions& options);

  // Allocates the memory of all slots. Errors: RESOURCE_EXHAUSTED.
  absl::Status AllocateSlots();
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Releases the batch in use, and waits until the device has begun all previous batches except the
  // newest, so that the threads have free slots in the meantime.
  absl::Status WaitForDevice() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for samples to prepare; none if nothing is left.
  std::optional<Portion> Claim() ABSL_LOCKS_EXCLUDED(mutex_);
  void BeginBatch(uint64_t step, Slot& slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Prepare(const Portion& portion, ImageTransform& transform) const;
  absl::Status PrepareSample(const Slot& slot, uint64_t position, uint32_t sample,
                             ImageTransform& transform) const;
  void Finish(const Portion& portion, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  Order OrderOf(uint64_t epoch) const ABSL_LOCKS_EXCLUDED(orders_mutex_);
  Slot& SlotOf(uint64_t step) { return slots_[(step - options_.first_step) % slots_.size()]; }

  const ImageDataset* const dataset_;
  const RankBatches batches_;
  const bool shuffle_;
  const LoaderOptions options_;
  const Form form_;
  const size_t sample_bytes_;  // size of a stored image, or of all views of a finished one
  const uint64_t portion_samples_;
  absl::Duration waited_;  // total wait of the thread that calls Next

  absl::Mutex mutex_;
  absl::CondVar slot_free_;
  SteadyCondVar slot_ready_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // error that ended the stream
  uint64_t claimed_step_ ABSL_GUARDED_BY(mutex_);
  uint64_t claimed_samples_ ABSL_GUARDED_BY(mutex_) = 0;  // number of samples claimed in that step
  uint64_t next_to_use_ ABSL_GUARDED_BY(mutex_);
  bool in_use_ ABSL_GUARDED_BY(mutex_) = false;  // the caller holds the batch before next_to_use_
  // A slot's arrays belong to the threads that fill it, each its own samples, and then to the
  // consumer; its other fields are guarded by mutex_, except `batch` while it is in use.
  std::vector<Slot> slots_;

  mutable absl::Mutex orders_mutex_;
  // Orders of the two most recent epochs, because threads may work on both sides of an epoch's end.
  mutable std::pair<uint64_t, Order> orders_[2] ABSL_GUARDED_BY(orders_mutex_);

  std::vector<std::thread> threads_;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_LOADER_H_
