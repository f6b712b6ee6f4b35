// The one thread of a process that calls MPI, and what the others give it to do.
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

namespace muster::collectives {

// Messages of one group that are under way together.
class MpiExchange {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }

 private:
  friend class MpiProgressThread;

  // The owner's thread uses these until it is done.
  MusterMpiGroup* group_ = nullptr;
  std::vector<MusterMpiMessage> messages_;
  MusterMpiBatch* batch_ = nullptr;
  absl::Status status_;  // before done_
  std::atomic<bool> done_{false};
  std::atomic<uint32_t> left_{0};  // messages that are not done
};

// MPI is started once in a process and cannot be started again; a failure of one group ends it for
// the whole process, as nothing takes messages back: MPI would go on to write to memory that is
// somebody else's by then. Thread-safe.
class MpiProgressThread {
 public:
  // The process's one. The first call opens the library and starts MPI, which waits for all
  // processes of the MPI job. When the process exits in order MPI is finished, for which they wait
  // for one another too, a few seconds at most. NOT_FOUND and FAILED_PRECONDITION as of
  // OpenMpiLibrary; FAILED_PRECONDITION where nothing like mpirun has started the process;
  // DEADLINE_EXCEEDED; UNAVAILABLE where MPI has failed here.
  static absl::StatusOr<MpiProgressThread*> Get(absl::Duration timeout);

  // In MPI_COMM_WORLD.
  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }
  const std::string& version() const { return version_; }

  // Blocks until all of `members`, of MPI_COMM_WORLD, have called with the same. DEADLINE_EXCEEDED,
  // UNAVAILABLE.
  absl::StatusOr<MusterMpiGroup*> MakeGroup(std::vector<uint32_t> members, uint32_t tag,
                                            absl::Duration timeout);

  // What the messages point to stays until the exchange is done or Await has returned.
  std::shared_ptr<MpiExchange> Begin(MusterMpiGroup* group, std::vector<MusterMpiMessage> messages);

  // OK when it is done. DEADLINE_EXCEEDED when no message has been done for so long, time in which
  // the process was stopped apart: `waiting_for` are the peers whose messages are not, and the
  // exchange goes on. UNAVAILABLE with MPI's words, or soon after End: MPI has ended in this
  // process.
  absl::Status Await(MpiExchange& exchange, absl::Duration timeout,
                     std::vector<uint32_t>* waiting_for) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends MPI here: `why`, a clause, is part of what everybody gets from now on. Never blocks.
  void End(absl::string_view why) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  explicit MpiProgressThread(const MusterMpiApi* api) : api_(*api), version_(api->version()) {}

  static absl::StatusOr<MpiProgressThread*> Make(absl::Duration timeout);
  // Of std::atexit.
  static void FinishAtExit();

  // Has the thread call `call`; its status, or DEADLINE_EXCEEDED if that takes too long.
  absl::Status Call(std::function<absl::Status()> call, absl::Duration timeout,
                    absl::string_view what) ABSL_LOCKS_EXCLUDED(mutex_);
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);
  // Begins or moves it -> whether something was done.
  bool Move(MpiExchange& exchange);
  void Finish(MpiExchange& exchange, absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  void Fail(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits until the thread is out of MPI, if that is soon.
  void AwaitThreadOut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const MusterMpiApi& api_;
  const std::string version_;
  uint32_t rank_ = 0;
  uint32_t size_ = 0;

  absl::Mutex mutex_;
  absl::CondVar given_;    // for the thread
  absl::CondVar changed_;  // for those that wait for it
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool calling_ ABSL_GUARDED_BY(mutex_) = false;  // the thread is in MPI
  std::vector<std::shared_ptr<MpiExchange>> begun_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> calls_ ABSL_GUARDED_BY(mutex_);
  // The thread's own.
  bool started_ = false;
  std::vector<std::shared_ptr<MpiExchange>> active_;
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_MPI_MPI_PROGRESS_THREAD_H_
