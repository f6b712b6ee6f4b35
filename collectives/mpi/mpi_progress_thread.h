// The single thread of a process that calls MPI, and the queue of its work.
#ifndef MUSTER_COLLECTIVES_MPI_MPI_PROGRESS_THREAD_H_
#define MUSTER_COLLECTIVES_MPI_MPI_PROGRESS_THREAD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "collectives/mpi/plugin.h"
#include "common/steady_cond_var.h"

namespace muster::collectives {

// Messages of one group that are in flight together.
class MpiExchange {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }

 private:
  friend class MpiProgressThread;

  // Used by the progress thread until the exchange is done.
  MusterMpiGroup* group_ = nullptr;
  std::vector<MusterMpiMessage> messages_;
  MusterMpiBatch* batch_ = nullptr;
  absl::Status status_;  // written before done_
  std::atomic<bool> done_{false};
  std::atomic<uint32_t> left_{0};  // messages that are not done
};

// MPI can be initialized only once per process. A failure of one group ends MPI for the whole
// process, because messages cannot be cancelled: MPI would keep writing to memory that its owner
// may have reused. Thread-safe.
class MpiProgressThread {
 public:
  // Returns the process's instance. The first call opens the library and initializes MPI, which
  // waits for all processes of the MPI job. At normal exit MPI is finalized, which waits for the
  // other processes, too, for a few seconds at most. NOT_FOUND and FAILED_PRECONDITION as of
  // OpenMpiLibrary; FAILED_PRECONDITION if the process was not started by a launcher such as
  // mpirun; DEADLINE_EXCEEDED; UNAVAILABLE if MPI has failed in this process.
  static absl::StatusOr<MpiProgressThread*> Get(absl::Duration timeout);

  // Rank and size in MPI_COMM_WORLD.
  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }
  const std::string& version() const { return version_; }

  // Blocks until all of `members` (ranks in MPI_COMM_WORLD) have called with the same arguments.
  // DEADLINE_EXCEEDED, UNAVAILABLE.
  absl::StatusOr<MusterMpiGroup*> MakeGroup(std::vector<uint32_t> members, uint32_t tag,
                                            absl::Duration timeout);

  // Starts an exchange. The messages' buffers must stay valid until the exchange is done or Await
  // has returned.
  std::shared_ptr<MpiExchange> Begin(MusterMpiGroup* group, std::vector<MusterMpiMessage> messages);

  // Waits for the exchange. Returns OK when it is done. DEADLINE_EXCEEDED if no message completes
  // for `timeout`, not counting time during which the process was stopped; `waiting_for` then lists
  // the peers of the incomplete messages, and the exchange continues. UNAVAILABLE with MPI's
  // message, or soon after End: MPI has ended in this process.
  absl::Status Await(MpiExchange& exchange, absl::Duration timeout,
                     std::vector<uint32_t>* waiting_for) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends MPI in this process. `why`, a clause, is part of all later error messages. Never blocks.
  void End(absl::string_view why) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  explicit MpiProgressThread(const MusterMpiApi* api) : api_(*api), version_(api->version()) {}

  static absl::StatusOr<MpiProgressThread*> Make(absl::Duration timeout);
  // Registered with std::atexit.
  static void FinishAtExit();

  // Runs `call` on the thread and returns its status, or DEADLINE_EXCEEDED if it takes too long.
  absl::Status Call(std::function<absl::Status()> call, absl::Duration timeout,
                    absl::string_view what) ABSL_LOCKS_EXCLUDED(mutex_);
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);
  // Starts or advances the exchange. Returns whether anything progressed.
  bool Move(MpiExchange& exchange);
  void Finish(MpiExchange& exchange, absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  void Fail(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits a limited time until the thread has returned from MPI.
  void AwaitThreadOut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const MusterMpiApi& api_;
  const std::string version_;
  uint32_t rank_ = 0;
  uint32_t size_ = 0;

  absl::Mutex mutex_;
  SteadyCondVar given_;    // signals the thread
  SteadyCondVar changed_;  // signals callers that wait for the thread
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool calling_ ABSL_GUARDED_BY(mutex_) = false;  // the thread is inside MPI
  std::vector<std::shared_ptr<MpiExchange>> begun_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> calls_ ABSL_GUARDED_BY(mutex_);
  // Used by the thread only.
  bool started_ = false;
  std::vector<std::shared_ptr<MpiExchange>> active_;
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_MPI_MPI_PROGRESS_THREAD_H_
