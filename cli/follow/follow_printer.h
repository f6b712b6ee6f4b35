// Output of `muster run`: one line on stderr per change of state, and one line of progress.
#ifndef MUSTER_CLI_FOLLOW_FOLLOW_PRINTER_H_
#define MUSTER_CLI_FOLLOW_FOLLOW_PRINTER_H_

#include <functional>
#include <string>

#include "cli/follow/follow.h"
#include "cli/output/console.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// Where the job's newest checkpoint is: "checkpoint: /c/step-00000080 on node-1", or, unless the
// job has succeeded, "newest checkpoint: step 60, /c/step-00000060.g2 on node-1". Empty if there is
// none.
std::string CheckpointText(const v1::Job& job);

// "best checkpoint by test_loss: step 40, /c/step-00000040.g1 on node-1". Empty if there is none.
std::string BestCheckpointText(const v1::Job& job);

// A warning about checkpoints that could not be written in the newest generation; otherwise empty.
std::string CheckpointFailureText(const v1::Job& job);

// The checkpoint that the newest generation resumed from: "resumes from step 60 of job mnist-x7k2,
// /c/step-00000060", or, if the job wrote it itself, "resumes from step 60". If there is none: that
// a restarted job begins at step 0; otherwise empty.
std::string ResumeText(const v1::Job& job);

// The job and checkpoint that this one continued from: "continued job mnist-x7k2 from
// /c/step-00000060". Empty if it continued from none.
std::string ContinuedText(const v1::Job& job);

// A warning if a job of several nodes has its checkpoints on one of them; otherwise empty.
std::string CheckpointWarning(const v1::Job& job);

// On a terminal the progress line is redrawn with every update; elsewhere a line is printed at most
// every two seconds, and whenever the phase changes. Not thread-safe.
class FollowPrinter : public FollowObserver {
 public:
  explicit FollowPrinter(Console& console, std::function<Time()> clock = Now)
      : console_(console), clock_(std::move(clock)) {}

  void OnJob(const v1::Job& job) override;
  void OnCoordinatorAway(const absl::Status& status) override;
  void OnCoordinatorBack() override;

 private:
  void PrintState(const v1::Job& job);
  // Shows in the status line of a terminal why the job stops or what it waits for.
  void ShowReason(const v1::Job& job);
  // Prints once that the job hangs, and once that it no longer does.
  void PrintHang(const v1::Job& job);
  // Prints what the job resumes from, and a warning if its checkpoints may be lost.
  void PrintCheckpoints(const v1::Job& job);
  void PrintProgress(const v1::Job& job);

  Console& console_;
  const std::function<Time()> clock_;
  std::string last_state_;     // key of the last state line
  uint64_t last_failure_ = 0;  // generation of the last failure that was printed
  uint64_t last_generation_ = 0;
  uint64_t hung_generation_ = 0;  // generation whose hang was printed; 0: none hangs
  std::string last_warning_;
  std::string last_checkpoint_failure_;
  std::string last_resume_;
  std::string last_phase_;
  uint64_t last_step_ = 0;
  uint64_t last_phase_progress_ = 0;
  SteadyTime next_progress_;
};

// Prints the first failure of a job that finished without success to stderr. `output_shown`:
// whether the output of the ranks was printed, so that the end of it is not repeated.
void NoteFailure(const v1::Job& job, bool output_shown, Console& console);

// Prints how a finished job ended: its state on stderr, with the first failure unless it succeeded;
// and, unless `quiet_out`, `test accuracy 0.9123` of a train job on stdout.
void PrintResult(const v1::Job& job, bool quiet_out, bool output_shown, Console& console);

}  // namespace muster::cli

#endif  // MUSTER_CLI_FOLLOW_FOLLOW_PRINTER_H_
