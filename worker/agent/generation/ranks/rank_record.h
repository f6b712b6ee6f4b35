// The report of one rank to the coordinator, which the worker keeps on disk for its successor.
#ifndef MUSTER_WORKER_AGENT_GENERATION_RANKS_RANK_RECORD_H_
#define MUSTER_WORKER_AGENT_GENERATION_RANKS_RANK_RECORD_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/time/time.h"
#include "proto/muster/v1/rank.pb.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/generation/generation_context.h"
#include "worker/shim/log/lost_output.h"

namespace muster::agent {

// Merges the request without its progress, which is not kept on disk. Returns whether `report` has
// changed.
bool MergeReport(const v1::ReportRequest& request, v1::RankReport& report);

// Bounds the reports of the rank, and shows them on the progress board. Must be used on the loop's
// thread.
class RankRecord {
 public:
  // `on_change` is called when the report has changed and is to be sent. Context and launch must
  // outlive the record.
  RankRecord(const GenerationContext& context, const v1::Launch& launch, uint32_t rank,
             std::function<void()> on_change);

  const v1::RankReport& report() const { return report_; }
  uint32_t rank() const { return report_.rank(); }
  bool exited() const { return report_.phase() == v1::EXITED; }
  // The report as sent: with the present silence.
  v1::RankReport Described() const;
  // Zero if the rank is active.
  absl::Duration Silence() const;

  // The directory of the rank is in use from now on: later changes are stored in it.
  void Begin() { begun_ = true; }
  bool begun() const { return begun_; }
  // Begins with what an earlier worker stored.
  void Load();

  void SetStarted(pid_t pid);
  // Stores the report. Errors: of the system.
  absl::Status SetJoined(const v1::JoinRequest& request);
  // Merges a rank's report without its progress, and stores it. Errors: of the system.
  absl::Status Merge(const v1::ReportRequest& request);
  void SetProgress(const v1::Progress& progress);
  // As SetProgress and AddWarning for the end of the rank, which reports the change.
  void SetLast(const std::optional<v1::Progress>& progress, const std::string& warning);
  void SetSilence(absl::Duration silence);
  // Reported with the next heartbeat.
  void SetMemory(uint64_t bytes);
  void SetLostOutput(const shim::LostOutput& lost);
  // `survivor`: a process that outlives SIGKILL; 0: unknown.
  void SetUnkillable(pid_t survivor);
  void SetExited(v1::ExitInfo exit);
  // Returns whether the warning is new. It is sent with the next change.
  bool AddWarning(const std::string& warning);
  // Reports a change.
  void Changed();

 private:
  absl::Status Store(bool sync) const;
  std::string Directory() const;

  const GenerationContext& context_;
  const v1::Launch& launch_;
  const std::function<void()> on_change_;
  v1::RankReport report_;
  bool begun_ = false;
  std::optional<SteadyTime> silent_since_;  // while silent, as reported by its shim
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_RANKS_RANK_RECORD_H_
