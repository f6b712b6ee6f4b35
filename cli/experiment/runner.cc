#include "cli/experiment/runner.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "cli/exit_code.h"
#include "cli/experiment/metrics.h"
#include "cli/experiment/plots.h"
#include "cli/experiment/tables.h"
#include "cli/follow/follow.h"
#include "cli/follow/follow_printer.h"
#include "cli/follow/signals.h"
#include "cli/output/words.h"
#include "cli/text/job_text.h"
#include "common/now.h"
#include "common/status.h"
#include "common/time.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

// Interval of progress lines without a terminal: a cell takes minutes.
constexpr absl::Duration kProgressInterval = absl::Seconds(30);

// Prints one line for the running job: "[3/8] precision=O2: step 120/500  loss 0.42 …".
class CellProgress : public FollowObserver {
 public:
  CellProgress(Console& console, std::string prefix)
      : console_(console), prefix_(std::move(prefix)), next_(Now().steady + kProgressInterval) {}

  void OnJob(const v1::Job& job) override {
    if (IsOver(job.state())) return;
    const std::string waits = WaitsText(job);
    const std::string progress = ProgressText(job);
    std::string text = StateWord(job.state());
    if (job.state() == v1::QUEUED && !waits.empty()) {
      absl::StrAppend(&text, ": waiting for ", waits);
    } else if (!progress.empty()) {
      text = progress;
    }
    text = absl::StrCat(prefix_, Printable(text));
    console_.Status(text);
    if (console_.err_is_terminal() || Now().steady < next_) return;
    next_ = Now().steady + kProgressInterval;
    console_.Note(text);
  }
  void OnCoordinatorAway(const absl::Status& status) override {
    console_.ClearStatus();
    console_.Note(absl::StrCat(prefix_, "coordinator unreachable; retrying"));
  }
  void OnCoordinatorBack() override {
    console_.Note(absl::StrCat(prefix_, "coordinator reachable again"));
  }

 private:
  Console& console_;
  const std::string prefix_;
  SteadyTime next_;
};

// Handles signals: the first one cancels the running job, the second one ends the waiting for it.
class Interruption {
 public:
  Interruption(Console& console, ClusterClient& client, Stopper& stopper)
      : console_(console),
        client_(client),
        stopper_(stopper),
        watcher_([this](int) { OnSignal(); }) {}

  bool interrupted() const {
    absl::MutexLock lock(&mutex_);
    return interrupted_;
  }
  // Sets the running job, or "" for none. A job that starts after a signal is cancelled at once.
  void SetJob(const std::string& job_id) {
    {
      absl::MutexLock lock(&mutex_);
      job_id_ = job_id;
      if (!interrupted_) return;
    }
    Cancel(job_id);
  }

 private:
  void OnSignal() {
    std::string job_id;
    bool again;
    {
      absl::MutexLock lock(&mutex_);
      again = std::exchange(interrupted_, true);
      job_id = job_id_;
    }
    if (again) return stopper_.Stop();
    console_.ClearStatus();
    console_.Note("interrupted; cancelling the running job (again: stop waiting for its end)");
    Cancel(job_id);
  }
  void Cancel(const std::string& job_id) {
    if (job_id.empty()) return;
    v1::CancelJobRequest request;
    request.set_job_id(job_id);
    const absl::StatusOr<v1::Job> job = client_.CancelJob(request);
    if (!job.ok()) console_.Note(absl::StrCat("muster: ", Printable(job.status().message())));
  }

  Console& console_;
  ClusterClient& client_;
  Stopper& stopper_;
  mutable absl::Mutex mutex_;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  std::string job_id_ ABSL_GUARDED_BY(mutex_);
  SignalWatcher watcher_;  // the last member: its thread uses the others
};

struct Task {
  const Cell* cell;
  uint32_t repetition;
};

class Runner {
 public:
  Runner(Context& context, ClusterClient& client, const Experiment& experiment,
         const std::vector<Cell>& cells, RunStore& store, Stopper& stopper)
      : context_(context),
        client_(client),
        experiment_(experiment),
        cells_(cells),
        store_(store),
        stopper_(stopper),
        interruption_(context.console, client, stopper) {}

  int Run(const RunnerOptions& options) {
    const std::vector<Task> tasks = Tasks(options.rerun);
    // Also rewrites the results of an earlier call, which may have selected fewer cells.
    const absl::Status saved = Save();
    if (!saved.ok()) return context_.Fail(saved, kExitCannotCreate);
    for (size_t i = 0; i < tasks.size() && !interruption_.interrupted(); ++i) {
      if (stopper_.stopped()) return kExitFailure;
      const int exit_code = RunTask(tasks[i], i, tasks.size());
      if (exit_code != kExitSuccess) {
        return interruption_.interrupted() ? kExitInterrupted : exit_code;
      }
    }
    if (interruption_.interrupted()) return kExitInterrupted;
    const std::vector<CellResult> results = Collect(experiment_, cells_, &store_);
    const bool failed = std::any_of(results.begin(), results.end(), [](const CellResult& result) {
      return result.state == CellState::kFailed || result.state == CellState::kPending;
    });
    return failed ? kExitFailure : kExitSuccess;
  }

 private:
  // Repetitions are the outer loop, so that a drift of the machine does not affect only one cell.
  std::vector<Task> Tasks(bool rerun) {
    std::vector<Task> tasks;
    std::set<std::pair<std::string, uint32_t>> seen;
    size_t done = 0;
    for (uint32_t i = 0; i < experiment_.repeat; ++i) {
      for (const Cell& cell : cells_) {
        if (!cell.skip_reason.empty() || !seen.insert({cell.digest, i}).second) continue;
        const JobRun* before = store_.Find(cell.digest, i);
        if (!rerun && before != nullptr && before->job.state() == v1::SUCCEEDED) {
          ++done;
        } else {
          tasks.push_back({&cell, i});
        }
      }
    }
    context_.console.Note(
        absl::StrCat(tasks.size(), tasks.size() == 1 ? " job" : " jobs", " to run",
                     done == 0 ? "" : absl::StrCat("; ", done, " already succeeded"),
                     "; results in ", store_.directory()));
    return tasks;
  }

  // Returns 0 unless the run cannot continue.
  int RunTask(const Task& task, size_t index, size_t count) {
    std::string prefix = absl::StrCat("[", index + 1, "/", count, "] ", task.cell->name);
    if (experiment_.repeat > 1) absl::StrAppend(&prefix, " run ", task.repetition + 1);
    prefix += ": ";
    const absl::StatusOr<v1::Job> submitted = Submit(task);
    if (!submitted.ok()) {
      return context_.Fail(submitted.status(), save_failed_ ? static_cast<int>(kExitCannotCreate)
                                                            : ExitCodeOf(submitted.status()));
    }
    if (IsOver(submitted->state())) return Finish(task, prefix, *submitted);

    std::string line = absl::StrCat(prefix, submitted->job_id());
    if (index > 0) {
      const absl::Duration each = (absl::Now() - start_) / static_cast<int64_t>(index);
      absl::StrAppend(&line, ", about ", Age(each * static_cast<int64_t>(count - index)),
                      " left for all jobs");
    }
    context_.console.Note(line);
    interruption_.SetJob(submitted->job_id());
    CellProgress progress(context_.console, prefix);
    const absl::StatusOr<v1::Job> job =
        FollowJob(client_, submitted->job_id(), FollowOptions(), stopper_, progress);
    interruption_.SetJob("");
    context_.console.ClearStatus();
    if (!job.ok()) {
      return stopper_.stopped() ? static_cast<int>(kExitFailure) : context_.Fail(job.status());
    }
    return Finish(task, prefix, *job);
  }

  // Submits the job of the run, or finds it if an earlier process submitted it. The run is saved
  // before the job is submitted, so that the next process knows about it. A job that the
  // coordinator rejects is returned as a failed job.
  absl::StatusOr<v1::Job> Submit(const Task& task) {
    JobRun run;
    run.digest = task.cell->digest;
    run.repetition = task.repetition;
    run.cell = task.cell->name;
    const JobRun* before = store_.Find(run.digest, run.repetition);
    if (before != nullptr) run.attempt = before->attempt + (IsOver(before->job.state()) ? 1 : 0);
    while (true) {
      run.job.Clear();
      store_.Put(run);
      RETURN_IF_ERROR(Save());
      v1::SubmitJobRequest request;
      *request.mutable_spec() = task.cell->spec;
      request.set_idempotency_key(store_.IdempotencyKey(run));
      const absl::StatusOr<v1::SubmitJobResponse> response = client_.SubmitJob(request);
      if (absl::IsInvalidArgument(response.status())) {
        v1::Job rejected;
        rejected.set_state(v1::FAILED);
        rejected.set_reason("Refused");
        rejected.set_message(std::string(response.status().message()));
        return rejected;
      }
      if (!response.ok()) return response.status();
      const v1::JobState state = response->job().state();
      // A job that was interrupted before is not a measurement.
      if (response->already_existed() && IsOver(state) && state != v1::SUCCEEDED) {
        ++run.attempt;
        continue;
      }
      run.job = Kept(response->job());
      store_.Put(run);
      RETURN_IF_ERROR(Save());
      return response->job();
    }
  }

  int Finish(const Task& task, const std::string& prefix, const v1::Job& job) {
    JobRun run = *store_.Find(task.cell->digest, task.repetition);
    // An interrupted run is left unchanged and does not count as a result.
    const bool cancelled = job.state() == v1::CANCELLED && interruption_.interrupted();
    if (!cancelled) run.job = Kept(job);
    store_.Put(run);
    const absl::Status saved = Save();
    PrintJobResult(prefix, job);
    return saved.ok() ? static_cast<int>(kExitSuccess) : context_.Fail(saved, kExitCannotCreate);
  }

  void PrintJobResult(const std::string& prefix, const v1::Job& job) {
    std::string line = absl::StrCat(prefix, StateWord(job.state()));
    const Measurements values = MeasurementsOf(job);
    for (const char* name : {"job_seconds", "images_per_second", "test_accuracy"}) {
      const auto value = values.find(name);
      if (value == values.end()) continue;
      absl::StrAppend(&line, name == std::string("job_seconds") ? " after " : ", ",
                      MetricText(FindMetric(name)->unit, value->second),
                      name == std::string("images_per_second") ? " images/s" : "",
                      name == std::string("test_accuracy") ? " accuracy" : "");
    }
    if (job.state() != v1::SUCCEEDED) {
      absl::StrAppend(&line, ": ", job.reason(), job.message().empty() ? "" : ": ",
                      Printable(job.message()));
    }
    context_.console.Note(context_.console.Paint(line, StateColor(job.state())));
    NoteFailure(job, /*output_shown=*/false, context_.console);
  }

  absl::Status Save() {
    const absl::Status status =
        WriteResults(experiment_, Collect(experiment_, cells_, &store_), store_);
    save_failed_ = !status.ok();
    return status;
  }

  Context& context_;
  ClusterClient& client_;
  const Experiment& experiment_;
  const std::vector<Cell>& cells_;
  RunStore& store_;
  Stopper& stopper_;
  const absl::Time start_ = absl::Now();
  bool save_failed_ = false;  // in the last call
  Interruption interruption_;
};

}  // namespace

absl::Status WriteResults(const Experiment& experiment, const std::vector<CellResult>& results,
                          const RunStore& store) {
  RETURN_IF_ERROR(store.Save(ResultDocument(experiment, results)));
  std::vector<std::string> names;
  for (const PlotFile& plot : DrawPlots(experiment, results)) {
    RETURN_IF_ERROR(store.SaveFile(plot.name, plot.svg));
    names.push_back(plot.name);
  }
  RETURN_IF_ERROR(store.SaveFile("results.csv", ResultCsv(experiment, results)));
  return store.SaveFile("results.md", ResultMarkdown(experiment, results, names));
}

int RunCells(Context& context, ClusterClient& client, const Experiment& experiment,
             const std::vector<Cell>& cells, const RunnerOptions& options, RunStore& store,
             Stopper& stopper) {
  return Runner(context, client, experiment, cells, store, stopper).Run(options);
}

}  // namespace muster::cli
