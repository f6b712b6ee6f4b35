// Progress of this node's ranks and the slots that they occupy, for heartbeats and metrics.
#ifndef MUSTER_WORKER_AGENT_RANK_PROGRESS_BOARD_H_
#define MUSTER_WORKER_AGENT_RANK_PROGRESS_BOARD_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/time.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::agent {

// Thread-safe; the lock is only held to copy entries, so that heartbeats are not delayed.
class ProgressBoard {
 public:
  struct Entry {
    uint64_t generation = 0;
    v1::RankReport report;  // without summary and exit
  };
  using Key = std::pair<std::string, uint32_t>;  // job, rank

  void Update(const std::string& job_id, uint64_t generation, const v1::RankReport& report)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Keeps the entry for a few more minutes, so that its last values are scraped.
  void MarkExited(const std::string& job_id, uint64_t generation, uint32_t rank, SteadyTime now)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the reports that changed since the previous call, by generation.
  std::vector<v1::GenerationReport> TakeChanged() ABSL_LOCKS_EXCLUDED(mutex_);
  std::map<Key, Entry> Snapshot(SteadyTime now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Numbers of occupied slots by kind.
  void SetSlotsInUse(std::map<std::string, uint32_t> slots) ABSL_LOCKS_EXCLUDED(mutex_);
  std::map<std::string, uint32_t> SlotsInUse() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct State {
    Entry entry;
    bool changed = false;
    SteadyTime forget_at = SteadyTime::Infinite();
  };
  absl::Mutex mutex_;
  std::map<Key, State> states_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint32_t> slots_in_use_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_RANK_PROGRESS_BOARD_H_
