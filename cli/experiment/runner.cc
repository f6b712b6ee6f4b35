#include "cli/experiment/runner.h"

#include <algorithm>
#include <csignal>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "cli/exit_code.h"
#include "cli/experiment/metrics.h"
#include "cli/experiment/tables.h"
#include "cli/files/upload.h"
#include "cli/follow/follow.h"
#include "cli/follow/follow_printer.h"
#include "cli/follow/signals.h"
#include "cli/output/words.h"
#include "cli/text/job_text.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "nlohmann/json.hpp"
#include "spec/spec.h"

namespace muster::cli {
namespace {

// Interval of progress lines without a terminal: a cell takes minutes.
constexpr absl::Duration kProgressInterval = absl::Seconds(30);

constexpr size_t kMaxTasks = limits::kTasksPerArray;
// An upper bound on the serialized size of a task without its values.
constexpr size_t kTaskOverhead = 8;

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

// Handles signals: Ctrl-C cancels what has been submitted, a second one ends the waiting for its
// end. Other signals, which a closing shell or login sends, end the waiting at once.
class Interruption {
 public:
  Interruption(Console& console, ClusterClient& client, Stopper& stopper)
      : console_(console),
        client_(client),
        stopper_(stopper),
        watcher_([this](int signal) { OnSignal(signal); }) {}

  bool interrupted() const {
    absl::MutexLock lock(&mutex_);
    return interrupted_;
  }
  // The array of the job, or a job that is not part of one. Cancelled at once after a Ctrl-C.
  void Submitted(const v1::Job& job) {
    const Target target = {job.array_id().empty() ? job.job_id() : job.array_id(),
                           !job.array_id().empty()};
    {
      absl::MutexLock lock(&mutex_);
      if (!targets_.insert(target).second || !cancelled_) return;
    }
    Cancel(target);
  }

 private:
  using Target = std::pair<std::string, bool>;  // id, and whether it is an array

  void OnSignal(int signal) {
    std::set<Target> targets;
    bool detach;
    {
      absl::MutexLock lock(&mutex_);
      detach = interrupted_ || signal != SIGINT;
      interrupted_ = true;
      cancelled_ = cancelled_ || !detach;
      targets = targets_;
    }
    if (detach) return stopper_.Stop();
    console_.ClearStatus();
    console_.Note(
        "interrupted; cancelling the jobs of the experiment (again: stop waiting for their end)");
    for (const Target& target : targets) Cancel(target);
  }
  void Cancel(const Target& target) {
    absl::Status status;
    if (target.second) {
      v1::CancelArrayRequest request;
      request.set_array_id(target.first);
      status = client_.Call<v1::JobArray>(request).status();
    } else {
      v1::CancelJobRequest request;
      request.set_job_id(target.first);
      status = client_.Call<v1::Job>(request).status();
    }
    if (!status.ok()) console_.Note(absl::StrCat("muster: ", Printable(status.message())));
  }

  Console& console_;
  ClusterClient& client_;
  Stopper& stopper_;
  mutable absl::Mutex mutex_;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<Target> targets_ ABSL_GUARDED_BY(mutex_);
  SignalWatcher watcher_;  // the last member: its thread uses the others
};

// One repetition of a cell.
struct Task {
  const Cell* cell;
  uint32_t repetition;
  std::string job_id;  // empty: the coordinator has rejected the job
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
      parallel_ =
          std::clamp<size_t>(options.parallel, 1, std::clamp<size_t>(tasks_.size(), 1, kMaxTasks));
      const absl::Status submitted = SubmitAll();
      if (!submitted.ok()) return context_.Fail(submitted, SubmitExitCode(submitted));
    }
    // An array starts its tasks in this order, at most parallel_ at a time.
    std::vector<std::thread> threads;
    for (size_t i = 1; i < parallel_; ++i) threads.emplace_back([this] { FollowTasks(); });
    FollowTasks();
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
          tasks.push_back({&cell, i, ""});
        }
      }
    }
    context_.console.Note(
        absl::StrCat(tasks.size(), tasks.size() == 1 ? " job" : " jobs", " to run",
                     done == 0 ? "" : absl::StrCat("; ", done, " already succeeded"),
                     "; results in ", store_.directory()));
    return tasks;
  }

  // Takes over the jobs that an earlier call has submitted, and submits the others: successive
  // tasks whose cells share a spec as one array, which starts when the ones before have ended.
  absl::Status SubmitAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::set<std::string> earlier;  // arrays and jobs that have not ended
    for (Task& task : tasks_) RETURN_IF_ERROR(TakeOver(task, earlier));
    const auto missing = std::stable_partition(
        tasks_.begin(), tasks_.end(), [](const Task& task) { return !task.job_id.empty(); });
    absl::Span<Task> left(tasks_.data() + (missing - tasks_.begin()), tasks_.end() - missing);
    while (!left.empty()) {
      if (interruption_.interrupted() || stopper_.stopped()) return absl::OkStatus();
      const size_t size = ArraySize(left);
      RETURN_IF_ERROR(SubmitArray(left.first(size), earlier));
      left.remove_prefix(size);
    }
    return absl::OkStatus();
  }

  // Sets the task's job id if its job of an earlier call runs, waits or has succeeded. A job that
  // ended otherwise, perhaps because it was interrupted, is not a measurement.
  absl::Status TakeOver(Task& task, std::set<std::string>& earlier)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const JobRun* run = store_.Find(task.cell->digest, task.repetition);
    if (run == nullptr || run->job.job_id().empty() || IsOver(run->job.state())) {
      return absl::OkStatus();
    }
    const absl::StatusOr<v1::Job> job = client_.GetJob(run->job.job_id(), &stopper_);
    // InvalidArgument: the job was deleted, and its id is the beginning of several others.
    if (absl::IsNotFound(job.status()) || absl::IsInvalidArgument(job.status())) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(job.status());
    if (job->job_id() != run->job.job_id()) return absl::OkStatus();
    if (IsOver(job->state()) && job->state() != v1::SUCCEEDED) return absl::OkStatus();
    task.job_id = job->job_id();
    if (IsOver(job->state())) return absl::OkStatus();
    earlier.insert(job->array_id().empty() ? job->job_id() : job->array_id());
    interruption_.Submitted(*job);
    return absl::OkStatus();
  }

  // How many of the first tasks fit into one array, with a margin for the defaults.
  static size_t ArraySize(absl::Span<const Task> tasks) {
    const Cell& first = *tasks.front().cell;
    const size_t task_bytes = first.defaulted.SpaceUsedLong();  // at least its serialized size
    size_t values_bytes = 0;
    size_t size = 0;
    while (size < tasks.size() && size < kMaxTasks) {
      const Cell& cell = *tasks[size].cell;
      values_bytes += cell.values.ByteSizeLong() + kTaskOverhead;
      const bool fits = 2 * (task_bytes + values_bytes) <= limits::kSpecBytes &&
                        2 * (size + 1) * task_bytes <= limits::kArrayBytes;
      if (cell.shared_digest != first.shared_digest || (size > 0 && !fits)) break;
      ++size;
    }
    return size;
  }

  // The runs are saved before they are submitted, so that the next process knows about them. If the
  // coordinator rejects the array, its jobs count as failed. `earlier` is what the array waits for,
  // and is replaced by the array.
  absl::Status SubmitArray(absl::Span<Task> tasks, std::set<std::string>& earlier)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    v1::SubmitJobRequest request;
    v1::JobSpec& spec = *request.mutable_spec();
    spec = tasks.front().cell->shared;
    spec.mutable_array()->set_concurrency(static_cast<uint32_t>(parallel_));
    for (const std::string& id : earlier) spec.mutable_after()->add_any(id);
    std::string runs_text;
    std::vector<JobRun> runs;
    for (const Task& task : tasks) {
      RETURN_IF_ERROR(Upload(*task.cell));
      *spec.mutable_array()->add_tasks() = task.cell->values;
      JobRun& run = runs.emplace_back();
      run.digest = task.cell->digest;
      run.repetition = task.repetition;
      run.cell = task.cell->name;
      const JobRun* before = store_.Find(run.digest, run.repetition);
      if (before != nullptr) {
        const bool submitted = !before->job.job_id().empty() || IsOver(before->job.state());
        run.attempt = before->attempt + (submitted ? 1 : 0);
      }
      store_.Put(run);
      absl::StrAppend(&runs_text, run.digest, " ", run.repetition, " ", run.attempt, "\n");
    }
    RETURN_IF_ERROR(Save());
    request.set_idempotency_key(
        store_.IdempotencyKey(absl::StrCat(runs_text, spec::ToYaml(request.spec()))));
    const absl::StatusOr<v1::SubmitJobResponse> response = client_.SubmitJob(request);
    if (!response.ok() && !absl::IsInvalidArgument(response.status())) return response.status();
    for (size_t i = 0; i < tasks.size(); ++i) {
      v1::Job& job = runs[i].job;
      if (response.ok()) {
        const std::string& array_id = response->array().array_id();
        job.set_array_id(array_id);
        job.set_job_id(absl::StrCat(array_id, "-", i));
        job.set_state(v1::QUEUED);
        tasks[i].job_id = job.job_id();
      } else {
        job.set_state(v1::FAILED);
        job.set_reason("Refused");
        job.set_message(std::string(response.status().message()));
      }
      store_.Put(runs[i]);
    }
    if (response.ok()) {
      interruption_.Submitted(runs.front().job);
      earlier = {response->array().array_id()};
    }
    return Save();
  }

  // Uploads the cell's files unless an earlier cell had the same ones.
  absl::Status Upload(const Cell& cell) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::set<std::string> digests;
    for (const v1::FileSpec& file : cell.spec.files()) digests.insert(file.sha256());
    if (!uploaded_.insert(digests).second) return absl::OkStatus();
    return UploadFiles(cell.files, client_, context_.console);
  }

  // Follows the tasks that no other thread follows.
  void FollowTasks() ABSL_LOCKS_EXCLUDED(mutex_) {
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
      const int exit_code = FollowTask(tasks_[index], index, tasks_.size());
      if (exit_code == kExitSuccess) continue;
      absl::MutexLock lock(&mutex_);
      if (exit_code_ == kExitSuccess) exit_code_ = exit_code;
      return;
    }
  }

  // Returns 0 unless the run cannot continue.
  int FollowTask(const Task& task, size_t index, size_t count) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::string prefix = absl::StrCat("[", index + 1, "/", count, "] ", task.cell->name);
    if (experiment_.repeat > 1) absl::StrAppend(&prefix, " run ", task.repetition + 1);
    prefix += ": ";
    if (task.job_id.empty()) return Finish(task, prefix, std::nullopt);

    std::string line = absl::StrCat(prefix, task.job_id);
    // As many jobs have ended as have started beyond the first `parallel_`.
    if (const size_t ended = index + 1 - std::min(index + 1, parallel_); ended > 0) {
      const absl::Duration each = (SteadyNow() - start_) / static_cast<int64_t>(ended);
      absl::StrAppend(&line, ", about ", Age(each * static_cast<int64_t>(count - index)),
                      " left for all jobs");
    }
    context_.console.Note(line);
    CellProgress progress(context_.console, prefix);
    const absl::StatusOr<v1::Job> job =
        FollowJob(client_, task.job_id, FollowOptions(), stopper_, progress);
    context_.console.ClearStatus();
    if (!job.ok()) {
      return stopper_.stopped() ? static_cast<int>(kExitFailure) : context_.Fail(job.status());
    }
    return Finish(task, prefix, *job);
  }

  // `job`: the finished job; none if the coordinator has rejected it.
  int Finish(const Task& task, const std::string& prefix, const std::optional<v1::Job>& job)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    JobRun run = *store_.Find(task.cell->digest, task.repetition);
    // An interrupted run is left unchanged and does not count as a result.
    const bool cancelled =
        job.has_value() && job->state() == v1::CANCELLED && interruption_.interrupted();
    if (job.has_value() && !cancelled) run.job = Kept(*job);
    store_.Put(run);
    const absl::Status saved = Save();
    PrintJobResult(prefix, job.value_or(run.job));
    return saved.ok() ? static_cast<int>(kExitSuccess) : context_.Fail(saved, kExitCannotCreate);
  }

  void PrintJobResult(const std::string& prefix, const v1::Job& job) {
    std::string line = absl::StrCat(prefix, StateWord(job.state()));
    const Measurements values = MeasurementsOf(job);
    const auto add = [&](const char* before, const char* name, Unit unit, const char* after) {
      const auto value = values.find(name);
      if (value == values.end()) return;
      absl::StrAppend(&line, before, MetricText(unit, value->second), after);
    };
    add(" after ", "job_seconds", Unit::kSeconds, "");
    add(", ", "images_per_second", Unit::kPerSecond, " images/s");
    add(", ", "test_accuracy", Unit::kRatio, " accuracy");
    if (job.state() != v1::SUCCEEDED) {
      absl::StrAppend(&line, ": ", job.reason(), job.message().empty() ? "" : ": ",
                      Printable(job.message()));
    }
    context_.console.Note(context_.console.Paint(line, StateColor(job.state())));
    NoteFailure(job, /*output_shown=*/false, context_.console);
  }

  int SubmitExitCode(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
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
  const SteadyTime start_ = SteadyNow();
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
  RETURN_IF_ERROR(store.SaveFile("results.csv", ResultCsv(experiment, results)));
  return store.SaveFile("results.md", ResultMarkdown(experiment, results));
}

int RunCells(Context& context, ClusterClient& client, const Experiment& experiment,
             const std::vector<Cell>& cells, const RunnerOptions& options, RunStore& store,
             Stopper& stopper) {
  return Runner(context, client, experiment, cells, store, stopper).Run(options);
}

}  // namespace muster::cli
