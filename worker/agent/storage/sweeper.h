// Deletes what jobs have left on this node: logs, directories, and state in memory.
#ifndef MUSTER_WORKER_AGENT_STORAGE_SWEEPER_H_
#define MUSTER_WORKER_AGENT_STORAGE_SWEEPER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "common/time/file_clock.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/storage/data_directory.h"
#include "worker/agent/storage/memory_directory.h"
#include "worker/agent/storage/retention.h"

namespace muster::agent {

// Has a thread of its own, because deletions can take long. Failures are logged. Must be used on
// the agent's loop, except Drain and Stop.
class Sweeper {
 public:
  // The (job, generation) pairs that must not be touched.
  using Held = std::set<std::pair<std::string, uint64_t>>;

  // `memory`: null if ranks leave no state there. The directory must outlive the sweeper.
  Sweeper(const DataDirectory& directory, std::unique_ptr<MemoryDirectory> memory, Retention keep)
      : directory_(directory), memory_(std::move(memory)), keep_(std::move(keep)) {}

  // Path of the memory directory; empty if there is none.
  std::string memory_path() const { return memory_ == nullptr ? "" : memory_->path(); }

  // Applies the retention, if that is due.
  void SweepIfDue(SteadyTime now, const std::function<Held()>& held);
  // Deletes the logs and directories of a job, which must have no ranks on this node.
  void DeleteFiles(const std::string& job_id);
  // Deletes the state that the ranks of a finished job have left in memory.
  void DiscardMemory(const std::string& job_id);
  // Runs `f` on the thread of the sweeper.
  void Post(std::function<void()> f) { loop_->Post(std::move(f)); }

  // Waits for the posted closures.
  void Drain() {
    loop_->RunAndWait([] {});
  }
  // Ends the thread. Only SweepMemory may be called afterwards.
  void Stop() { loop_.reset(); }
  // Deletes the state in memory of jobs that are not held. `hands_over`: a later worker continues,
  // so recent state is kept.
  void SweepMemory(const Held& held, bool hands_over) const;

 private:
  const DataDirectory& directory_;
  const std::unique_ptr<MemoryDirectory> memory_;
  const Retention keep_;
  const FileClock file_clock_{Now()};
  SteadyTime next_sweep_;
  std::unique_ptr<EventLoop> loop_ = std::make_unique<EventLoop>("sweeper");
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_STORAGE_SWEEPER_H_
