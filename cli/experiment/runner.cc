#include "cli/experiment/runner.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "cli/exit_code.h"
#include "cli/experiment/metrics.h"
#include "cli/experiment/plots.h"
#include "cli/experiment/tables.h"
#include "cli/files/upload.h"
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

// Prints one line for a running job: "[3/8] precision=O2: step 120/500  loss 0.42 …".
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

// Handles signals: the first one cancels the running jobs, the second one ends the waiting for
// them.
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
  // A job that starts after a signal is cancelled at once.
  void JobStarted(const std::string& job_id) {
    {
      absl::MutexLock lock(&mutex_);
      job_ids_.insert(job_id);
      if (!interrupted_) return;
    }
    Cancel(job_id);
  }
  void JobEnded(const std::string& job_id) {
    absl::MutexLock lock(&mutex_);
    job_ids_.erase(job_id);
  }

 private:
  void OnSignal() {
    std::set<std::string> job_ids;
    bool again;
    {
      absl::MutexLock lock(&mutex_);
      again = std::exchange(interrupted_, true);
      job_ids = job_ids_;
    }
    if (again) return stopper_.Stop();
    console_.ClearStatus();
    console_.Note(absl::StrCat("interrupted; cancelling the running ",
                               job_ids.size() > 1 ? "jobs" : "job",
                               " (again: stop waiting for the end)"));
    for (const std::string& job_id : job_ids) Cancel(job_id);
  }
  void Cancel(const std::string& job_id) {
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
  std::set<std::string> job_ids_ ABSL_GUARDED_BY(mutex_);  // ids of the running jobs
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
        stopper_(stopper),
        store_(store),
        interruption_(context.console, client, stopper) {}

  int Run(const RunnerOptions& options) {
    {
      absl::MutexLock lock(&mutex_);
      tasks_ = Tasks(options.rerun);
      // Also rewrites the results of an earlier call, which may have selected fewer cells.
      const absl::Status saved = Save();
      if (!saved.ok()) return context_.Fail(saved, kExitCannotCreate);
      parallel_ = std::max<size_t>(1, std::min<size_t>(options.parallel, tasks_.size()));
    }
    std::vector<std::thread> threads;
    for (size_t i = 1; i < parallel_; ++i) threads.emplace_back([this] { RunTasks(); });
    RunTasks();
    for (std::thread& thread : threads) thread.join();

    if (interruption_.interrupted()) return kExitInterrupted;
    absl::MutexLock lock(&mutex_);
    if (exit_code_ != kExitSuccess) return exit_code_;
    const std::vector<CellResult> results = Collect(experiment_, cells_, &store_);
    const bool failed = std::any_of(results.begin(), results.end(), [](const CellResult& result) {
      return result.state == CellState::kFailed || result.state == CellState::kPending;
    });
    return failed ? kExitFailure : kExitSuccess;
  }

 private:
  // Runs the tasks that no other thread has begun.
  void RunTasks() ABSL_LOCKS_EXCLUDED(mutex_) {
    while (true) {
      size_t index;
      {
        absl::MutexLock lock(&mutex_);
        if (next_task_ == tasks_.size() || exit_code_ != kExitSuccess) return;
        if (interruption_.interrupted()) return;
        if (stopper_.stopped()) {
          exit_code_ = kExitFailure;
          return;
        }
        index = next_task_++;
      }
      const int exit_code = RunTask(tasks_[index], index, tasks_.size());
      if (exit_code == kExitSuccess) continue;
      absl::MutexLock lock(&mutex_);
      if (exit_code_ == kExitSuccess) exit_code_ = exit_code;
      return;
    }
  }

  // Repetitions are the outer loop, so that a drift of the machine does not affect only one cell.
  std::vector<Task> Tasks(bool rerun) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
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
  int RunTask(const Task& task, size_t index, size_t count) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::string prefix = absl::StrCat("[", index + 1, "/", count, "] ", task.cell->name);
    if (experiment_.repeat > 1) absl::StrAppend(&prefix, " run ", task.repetition + 1);
    prefix += ": ";
    const absl::StatusOr<v1::Job> submitted = Submit(task);
    if (!submitted.ok())
      return context_.Fail(submitted.status(), SubmitExitCode(submitted.status()));
    if (IsOver(submitted->state())) return Finish(task, prefix, *submitted);

    std::string line = absl::StrCat(prefix, submitted->job_id());
    // As many jobs have ended as have started beyond the first `parallel_`.
    if (const size_t ended = index + 1 - std::min(index + 1, parallel_); ended > 0) {
      const absl::Duration each = (absl::Now() - start_) / static_cast<int64_t>(ended);
      absl::StrAppend(&line, ", about ", Age(each * static_cast<int64_t>(count - index)),
                      " left for all jobs");
    }
    context_.console.Note(line);
    interruption_.JobStarted(submitted->job_id());
    CellProgress progress(context_.console, prefix);
    const absl::StatusOr<v1::Job> job =
        FollowJob(client_, submitted->job_id(), FollowOptions(), stopper_, progress);
    interruption_.JobEnded(submitted->job_id());
    context_.console.ClearStatus();
    if (!job.ok()) {
      return stopper_.stopped() ? static_cast<int>(kExitFailure) : context_.Fail(job.status());
    }
    return Finish(task, prefix, *job);
  }

  // Submits the job of the run, or finds it if an earlier process submitted it. The run is saved
  // before the job is submitted, so that the next process knows about it. A job that the
  // coordinator rejects is returned as a failed job.
  absl::StatusOr<v1::Job> Submit(const Task& task) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(Upload(*task.cell));
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

  // Uploads the cell's files unless an earlier cell had the same ones.
  absl::Status Upload(const Cell& cell) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::set<std::string> digests;
    for (const v1::FileSpec& file : cell.spec.files()) digests.insert(file.sha256());
    if (!uploaded_.insert(digests).second) return absl::OkStatus();
    return UploadFiles(cell.files, client_, context_.console);
  }

  int Finish(const Task& task, const std::string& prefix, const v1::Job& job)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
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

  int SubmitExitCode(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return save_failed_ ? static_cast<int>(kExitCannotCreate) : ExitCodeOf(status);
  }

  absl::Status Save() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const absl::Status status =
        WriteResults(experiment_, Collect(experiment_, cells_, &store_), store_);
    save_failed_ = !status.ok();
    return status;
  }

  Context& context_;
  ClusterClient& client_;
  const Experiment& experiment_;
  const std::vector<Cell>& cells_;
  Stopper& stopper_;
  const absl::Time start_ = absl::Now();
  std::vector<Task> tasks_;  // set before the threads start, like the next member
  size_t parallel_ = 1;
  absl::Mutex mutex_;
  RunStore& store_ ABSL_GUARDED_BY(mutex_);
  size_t next_task_ ABSL_GUARDED_BY(mutex_) = 0;
  int exit_code_ ABSL_GUARDED_BY(mutex_) = kExitSuccess;  // set by the first task that ends the run
  bool save_failed_ ABSL_GUARDED_BY(mutex_) = false;      // in the last call
  // Sets of files by their digests.
  std::set<std::set<std::string>> uploaded_ ABSL_GUARDED_BY(mutex_);
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
