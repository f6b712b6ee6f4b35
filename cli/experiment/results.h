// What the jobs of an experiment came to, kept in a file from which a later call goes on.
#ifndef MUSTER_CLI_EXPERIMENT_RESULTS_H_
#define MUSTER_CLI_EXPERIMENT_RESULTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cli/experiment/cells.h"
#include "cli/experiment/experiment.h"
#include "cli/experiment/metrics.h"
#include "nlohmann/json_fwd.hpp"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// One job for one repetition of a cell. What a job is about is its digest: a cell whose label
// changed, and another cell with an equal spec, have the same run.
struct JobRun {
  std::string digest;
  uint32_t repetition = 0;  // from 0
  uint32_t attempt = 1;     // counts the jobs, the ones that did not succeed included
  std::string cell;         // its name, for people
  v1::Job
      job;  // id, state, reason, message, times, summary without losses; no state: not submitted
};

// The runs of one experiment, in DIR/results.json. One process at a time has a directory. Not
// thread-safe.
class RunStore {
 public:
  // Makes the directory where it is missing, and reads what is there. FAILED_PRECONDITION when it
  // is another experiment's, no file of ours, or another process's; what the system says otherwise.
  static absl::StatusOr<RunStore> Open(const std::string& directory, const std::string& experiment);
  ~RunStore();
  RunStore(RunStore&& other) noexcept;
  RunStore& operator=(RunStore&&) = delete;

  // Null when it was never begun. Valid until the next Put.
  const JobRun* Find(const std::string& digest, uint32_t repetition) const;
  // In place of the one with the same digest and repetition.
  void Put(JobRun run);

  // The key under which a run's job is submitted: a process that was killed finds its job again.
  std::string IdempotencyKey(const JobRun& run) const;

  // Puts `document`, with the runs, in place of results.json, whole or not at all.
  absl::Status Save(nlohmann::ordered_json document) const;
  // Another file of the directory, the same way.
  absl::Status SaveFile(const std::string& name, const std::string& text) const;

  const std::string& directory() const { return directory_; }

 private:
  explicit RunStore(std::string directory) : directory_(std::move(directory)) {}
  absl::Status Load(const std::string& experiment);

  std::string directory_;
  std::string series_;  // random; drawn when the directory was first used
  std::vector<JobRun> runs_;
  int lock_fd_ = -1;
};

// What of a job is kept.
v1::Job Kept(const v1::Job& job);

enum class CellState { kPending, kSucceeded, kFailed, kSkipped };

// One row of the results.
struct CellResult {
  Cell cell;
  CellState state = CellState::kPending;
  std::string reason;  // failed: of the first repetition that did; skipped
  uint32_t runs = 0;   // that succeeded
  uint32_t devices = 0;
  Measurements medians;
  v1::TrainSummary summary;  // of the first repetition that succeeded
};

// Cells with what is known of them (nothing, without a store), speed-up and scaling efficiency
// included. The speed-up is over the cell that has the baseline's labels and otherwise the same
// ones. Scaling efficiency is images per second over devices times those of the cell that trains
// the same with one device: same model, data and precision, and the same batch; else the same batch
// for each device.
std::vector<CellResult> Collect(const Experiment& experiment, const std::vector<Cell>& cells,
                                const RunStore* store);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_RESULTS_H_
