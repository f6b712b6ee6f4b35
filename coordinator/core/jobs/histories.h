// The history of jobs' runs, kept beside the jobs themselves: curves, and the software and hardware
// of the nodes. It outlives the nodes and is deleted with the job.
//
// A history is written when a generation begins or ends, and at most once a minute in between, so
// that progress reports cost no commits. Bounded in total (limits::kHistoryBytesInTotal); beyond
// that, those of the oldest jobs are deleted. Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_HISTORIES_H_
#define MUSTER_COORDINATOR_CORE_JOBS_HISTORIES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/limits.h"
#include "common/time.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/curves.h"
#include "coordinator/core/jobs/job.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

class Histories {
 public:
  // `max_bytes` is smaller in tests only.
  explicit Histories(Context& context, size_t max_bytes = limits::kHistoryBytesInTotal)
      : context_(context), max_bytes_(max_bytes) {}

  // The job's newest generation begins on these nodes.
  void BeginGeneration(const Job& job, std::vector<v1::NodeEnvironmentRecord> nodes);
  void EndGeneration(const Job& job);
  // Adds the progress that rank 0 of the living generation has reported.
  void AddProgress(const Job& job);

  // Without the job. Empty for a job without a history.
  v1::JobHistory View(const Job& job, size_t max_points) const;

  // ---- Records
  void Restore(const Job& job, const v1::HistoryRecord& record);
  // Removes the history of a job that is being deleted; returns the key of its record, if it has
  // one.
  std::optional<std::string> Remove(const Job& job);
  void WriteChanges();

 private:
  struct History {
    std::string job_id;
    v1::HistoryRecord nodes;  // without the curves
    Curves curves;
    SteadyTime next_write;
    size_t bytes = 0;  // as counted in bytes_
  };
  using Table = std::map<uint64_t, History>;  // by queue sequence number: older jobs come first

  // Call after each change.
  void NoteChange(Table::iterator entry);
  void DeleteOldest();

  Context& context_;
  const size_t max_bytes_;
  Table histories_;
  std::set<uint64_t> due_;  // to be written in this step
  size_t bytes_ = 0;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_HISTORIES_H_
