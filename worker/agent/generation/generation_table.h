// The generations that this worker holds.
#ifndef MUSTER_WORKER_AGENT_GENERATION_GENERATION_TABLE_H_
#define MUSTER_WORKER_AGENT_GENERATION_GENERATION_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/generation/generation.h"
#include "worker/agent/generation/worker_stops.h"

namespace muster::agent {

// Must be used on the loop's thread.
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
  // The address at which other nodes reach this one, and its network interface; may be empty.
  void SetAddress(const std::string& address, const std::string& interface);
  // Periodic work: reads the progress files of commands, and what hosted stores report.
  void Tick();

  WorkerStops& stops() { return stops_; }

  Generation* Find(const std::string& job_id, uint64_t generation);
  // The generations that are not over.
  std::vector<Generation*> Live();
  // 0 if none is known.
  uint64_t NewestGeneration(const std::string& job_id) const;

 private:
  Generation& Add(const v1::Launch& launch);
  void OnLaunch(const v1::Launch& launch);
  void OnForget(const v1::ForgetGeneration& message);
  void StartIfFree(const std::string& job_id);
  void OnSettled(const std::string& job_id);
  // The generation; null if the worker does not hold it, which is reported.
  Generation* FindOrReport(const std::string& job_id, uint64_t generation);
  void CountSlots();

  GenerationContext context_;
  Generations generations_;
  std::vector<v1::ForgetGeneration> forgotten_;  // to be forgotten once they are closed
  // The newest launched generation of each job, to detect late launches.
  std::map<std::string, uint64_t> newest_;
  WorkerStops stops_;
  // For closures that outlive this object.
  const std::shared_ptr<GenerationTable*> self_ = std::make_shared<GenerationTable*>(this);
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_GENERATION_TABLE_H_
