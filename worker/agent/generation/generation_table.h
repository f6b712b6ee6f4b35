// Every generation that this worker still holds.
#ifndef MUSTER_WORKER_AGENT_GENERATION_GENERATION_TABLE_H_
#define MUSTER_WORKER_AGENT_GENERATION_GENERATION_TABLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/muster/v1/rank.pb.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/generation/generation.h"

namespace muster::agent {

// On the loop's thread only, but for SlotsInUse.
class GenerationTable {
 public:
  explicit GenerationTable(GenerationContext context);
  ~GenerationTable();
  GenerationTable(const GenerationTable&) = delete;
  GenerationTable& operator=(const GenerationTable&) = delete;

  // Finds what an earlier worker left on disk: running ranks, finished ones, lost ones.
  void Recover();

  // ---- The coordinator's words. What is malformed, stale or unknown is logged and dropped.
  void OnLaunch(const v1::Launch& launch);
  void OnWorld(const v1::World& world);
  void OnStop(const v1::StopGeneration& stop);
  void OnKeyValue(const v1::KeyValue& message);
  void OnReleaseBarrier(const v1::ReleaseBarrier& message);
  void OnForget(const v1::ForgetGeneration& message);
  void OnWaitNotice(const v1::WaitNotice& message);

  std::vector<v1::GenerationReport> Inventory();
  // Every (job, generation) held.
  std::set<std::pair<std::string, uint64_t>> Held() const;
  // What waits for an answer, after a new session's Welcome.
  void Resend();
  // From now on nobody hears us: jobs that asked for it are stopped after a while, unless
  // CoordinatorBack is called.
  void CoordinatorAway();
  // `address`: where other nodes reach this one. `interface`: which carries it; may be empty.
  void CoordinatorBack(const std::string& address, const std::string& interface);
  // Now and then: reads what commands say of their progress.
  void Tick();

  // Ends every rank, each with its job's grace or the given one; `done` is called when nothing is
  // left. A second call with a shorter grace hastens the first.
  void StopAll(std::optional<absl::Duration> grace, std::function<void()> done);
  // Takes no new ones; `done` is called when the coordinator has ended every rank, or the ranks
  // have themselves. What it has not begun to end by `patience` is ended as by StopAll.
  void AwaitEnd(absl::Duration patience, std::function<void()> done);

  // The generation that a rank belongs to. ABORTED when it is over or not here, UNAUTHENTICATED.
  absl::StatusOr<Generation*> Authenticate(const v1::RankIdentity& identity);
  Generation* Find(const std::string& job_id, uint64_t generation);
  // 0 when none is known.
  uint64_t NewestGeneration(const std::string& job_id) const;

  // Slots that a rank occupies, by kind. Thread-safe.
  std::map<std::string, uint32_t> SlotsInUse() const;

 private:
  using Key = std::pair<std::string, uint64_t>;

  Generation& Add(const v1::Launch& launch);
  void StartIfFree(const std::string& job_id);
  void OnOver(const std::string& job_id);
  void CheckAllStopped();
  void CountSlots();

  GenerationContext context_;
  std::map<Key, std::unique_ptr<Generation>> generations_;
  // The newest launched of each job, so that a launch that comes late is known as such.
  std::map<std::string, uint64_t> newest_;
  std::vector<EventLoop::TimerId> away_timers_;
  bool coordinator_away_ = false;
  bool stopping_ = false;
  std::optional<EventLoop::TimerId> patience_timer_;
  std::function<void()> on_all_stopped_;
  mutable absl::Mutex counts_mutex_;
  std::map<std::string, uint32_t> slots_in_use_ ABSL_GUARDED_BY(counts_mutex_);
};

// INVALID_ARGUMENT says what is wrong with it.
absl::Status CheckLaunch(const v1::Launch& launch);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_GENERATION_TABLE_H_
