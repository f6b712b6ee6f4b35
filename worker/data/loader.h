// Prepares a rank's batches ahead of its steps, in threads of its own.
#ifndef MUSTER_WORKER_DATA_LOADER_H_
#define MUSTER_WORKER_DATA_LOADER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "worker/data/augment.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"

namespace muster::data {

struct LoaderOptions {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint64_t seed = 0;
  uint64_t first_step = 0;
  uint64_t end_step = 0;  // one past the last
  uint32_t threads = 1;
  uint32_t prefetch = 4;  // batches ready ahead
  AugmentOptions augment;
};

// One rank's rows of a global batch, augmented but not yet normalised: a quarter of the memory, and
// the step's own thread turns them into floats where they are needed.
struct Batch {
  uint64_t step = 0;
  uint64_t epoch = 0;
  uint64_t global_rows = 0;
  uint64_t first_row = 0;  // of this rank's rows in the global batch
  size_t rows = 0;
  absl::Span<const uint8_t> pixels;
  absl::Span<const int32_t> labels;
};

// What Next returns depends on the options alone, never on the timing of threads. Next is for one
// thread.
class Loader {
 public:
  // `dataset` outlives the loader.
  Loader(const ImageDataset* dataset, const StepMap& steps, const LoaderOptions& options);
  // Ends the threads, whatever is still to be prepared.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Waits for the next step's batch; valid until the next call. To be called end_step - first_step
  // times at most.
  const Batch& Next() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Slot {
    std::vector<uint8_t> pixels;
    std::vector<int32_t> labels;
    Batch batch;
    bool ready = false;
  };
  using Order = std::shared_ptr<const std::vector<uint32_t>>;

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void Fill(uint64_t step, Slot& slot) const;
  Order OrderOf(uint64_t epoch) const ABSL_LOCKS_EXCLUDED(orders_mutex_);
  Slot& SlotOf(uint64_t step) { return slots_[(step - options_.first_step) % slots_.size()]; }

  const ImageDataset* const dataset_;
  const StepMap steps_;
  const LoaderOptions options_;

  absl::Mutex mutex_;
  absl::CondVar slot_free_;
  absl::CondVar slot_ready_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_to_fill_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_to_use_ ABSL_GUARDED_BY(mutex_);
  bool in_use_ ABSL_GUARDED_BY(mutex_) = false;  // the caller holds the batch before next_to_use_
  // A slot's content belongs to one thread at a time: who fills it, then who uses it; `ready` is
  // under mutex_.
  std::vector<Slot> slots_;

  mutable absl::Mutex orders_mutex_;
  // Of the two newest epochs asked for: threads straddle an epoch's end.
  mutable std::pair<uint64_t, Order> orders_[2] ABSL_GUARDED_BY(orders_mutex_);

  std::vector<std::thread> threads_;
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_LOADER_H_
