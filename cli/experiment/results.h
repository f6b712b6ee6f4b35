// Results of an experiment's jobs, stored in a file from which a later call continues.
#ifndef MUSTER_CLI_EXPERIMENT_RESULTS_H_
#define MUSTER_CLI_EXPERIMENT_RESULTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cli/experiment/cells.h"
#include "cli/experiment/experiment.h"
#include "cli/experiment/metrics.h"
#include "nlohmann/json_fwd.hpp"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// The job of one repetition of a cell. A run is identified by its digest: a cell whose label
// changed and another cell with an equal spec have the same run.
struct JobRun {
  std::string digest;
  uint32_t repetition = 0;  // from 0
  uint32_t attempt = 1;     // number of jobs, including those that did not succeed
  std::string cell;         // name of the cell, for information only
  // Ids, state, reason, message, times, summary without losses; no id: not submitted.
  v1::Job job;
};

// The runs of one experiment, stored in DIR/results.json. A directory can be used by one process at
// a time. Not thread-safe.
class RunStore {
 public:
  // Creates the directory if needed and loads existing results. FAILED_PRECONDITION if it belongs
  // to another experiment, is used by another process, or its file is not one of Muster's;
  // otherwise system errors.
  static absl::StatusOr<RunStore> Open(const std::string& directory, const std::string& experiment);
  ~RunStore();
  RunStore(RunStore&& other) noexcept;
  RunStore& operator=(RunStore&&) = delete;

  // Null if the run was never started. Valid until the next Put.
  const JobRun* Find(const std::string& digest, uint32_t repetition) const;
  // Adds the run, or replaces the one with the same digest and repetition.
  void Put(JobRun run);

  // An idempotency key that is equal for equal requests of this experiment, with which a new
  // process finds what a process that was killed has submitted.
  std::string IdempotencyKey(absl::string_view request) const;

  // Replaces results.json by `document` with the runs, atomically.
  absl::Status Save(nlohmann::ordered_json document) const;
  // Replaces another file of the directory, atomically.
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

// The fields of a job that are stored.
v1::Job Kept(const v1::Job& job);

enum class CellState { kPending, kSucceeded, kFailed, kSkipped };

// One row of the results.
struct CellResult {
  Cell cell;
  CellState state = CellState::kPending;
  std::string reason;  // why the first failed repetition failed, or why the cell is skipped
  uint32_t runs = 0;   // number of runs that succeeded
  uint32_t devices = 0;
  Measurements medians;
  v1::TrainSummary summary;  // summary of the first repetition that succeeded
};

// Cells with their results (none without a store), including speed-up and scaling efficiency. The
// speed-up compares with the cell that has the baseline's labels and otherwise the same labels.
// Scaling efficiency is images per second divided by the number of devices times those of the cell
// that trains the same on one device: same model, data and precision, and the same batch or else
// the same batch per device.
std::vector<CellResult> Collect(const Experiment& experiment, const std::vector<Cell>& cells,
                                const RunStore* store);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_RESULTS_H_
