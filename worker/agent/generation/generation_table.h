// The generations that this worker holds.
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
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "proto/muster/v1/rank.pb.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/generation/generation.h"

namespace muster::agent {

// Must be used on the loop's thread, except SlotsInUse.
class GenerationTable {
 public:
  explicit GenerationTable(GenerationContext context);
  ~GenerationTable();
  GenerationTable(const GenerationTable&) = delete;
  GenerationTable& operator=(const GenerationTable&) = delete;

  // Recovers the state of an earlier worker from disk: running, finished and lost ranks.
  void Recover();

  // A message about a generation: to launch, stop or forget it, or for its ranks. Malformed, stale
  // and unknown ones are logged and dropped; other messages are ignored.
  void OnMessage(const v1::CoordinatorMessage& message);

  std::vector<v1::GenerationReport> Inventory();
  // Whether a rank runs or is about to be started.
  bool HasLiveRanks() const;
  // Records from which a coordinator can rebuild the jobs, one message per generation; the last one
  // is marked.
  std::vector<v1::JobRecords> Records();
  // Every (job, generation) in the table.
  std::set<std::pair<std::string, uint64_t>> Held() const;
  // Resends unanswered calls after a new session's Welcome.
  void Resend();
  // The coordinator is lost: jobs whose spec requires it are stopped after a while unless
  // OnCoordinatorConnected is called.
  void OnCoordinatorLost();
  // `address` is the address at which other nodes reach this one, `interface` its network
  // interface; may be empty.
  void OnCoordinatorConnected(const std::string& address, const std::string& interface);
  // Periodic work: reads the progress files of commands, and what hosted stores report.
  void Tick();

  // Stops all ranks with their jobs' grace periods or the given one; calls `done` when none is
  // left. A second call with a shorter grace period shortens the first.
  void StopAll(std::optional<absl::Duration> grace, std::function<void()> done);
  // Accepts no new ranks; calls `done` when the coordinator has stopped all ranks or they have
  // ended. Ranks that are not being stopped after `patience` are stopped as by StopAll.
  void AwaitEnd(absl::Duration patience, std::function<void()> done);

  // The generation that a rank belongs to. ABORTED if it is over or not on this node,
  // UNAUTHENTICATED for a wrong token.
  absl::StatusOr<Generation*> Authenticate(const v1::RankIdentity& identity);
  Generation* Find(const std::string& job_id, uint64_t generation);
  // The generations that are not over.
  std::vector<Generation*> Live();
  // Ends the generation's ranks at once, without a grace period.
  void End(const std::string& job_id, uint64_t generation, absl::string_view reason,
           absl::string_view message);
  // 0 if none is known.
  uint64_t NewestGeneration(const std::string& job_id) const;

  // Number of occupied slots by kind. Thread-safe.
  std::map<std::string, uint32_t> SlotsInUse() const;

 private:
  using Key = std::pair<std::string, uint64_t>;

  Generation& Add(const v1::Launch& launch);
  void OnLaunch(const v1::Launch& launch);
  void OnStop(const v1::StopGeneration& stop);
  void OnForget(const v1::ForgetGeneration& message);
  // Reports the ranks of a launch that comes too late as failed.
  void RefuseLaunch(const v1::Launch& launch);
  void StartIfFree(const std::string& job_id);
  void OnSettled(const std::string& job_id);
  // The generation; null if the worker does not hold it, which is reported.
  Generation* FindOrReport(const std::string& job_id, uint64_t generation);
  void CheckAllStopped();
  // Calls `f` later on the loop, unless this object is gone by then.
  void Post(std::function<void()> f);
  void CountSlots();

  GenerationContext context_;
  std::map<Key, std::unique_ptr<Generation>> generations_;
  std::vector<v1::ForgetGeneration> forgotten_;  // to be forgotten once they are closed
  // The newest launched generation of each job, to detect late launches.
  std::map<std::string, uint64_t> newest_;
  std::vector<EventLoop::TimerId> away_timers_;
  bool coordinator_away_ = false;
  bool stopping_ = false;
  std::optional<EventLoop::TimerId> patience_timer_;
  std::function<void()> on_all_stopped_;
  mutable absl::Mutex counts_mutex_;
  std::map<std::string, uint32_t> slots_in_use_ ABSL_GUARDED_BY(counts_mutex_);
  // For closures that outlive this object.
  const std::shared_ptr<GenerationTable*> self_ = std::make_shared<GenerationTable*>(this);
};

// Validates a launch; INVALID_ARGUMENT.
absl::Status CheckLaunch(const v1::Launch& launch);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_GENERATION_TABLE_H_
