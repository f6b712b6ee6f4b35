#include "cli/follow/follow_run.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "cli/exit_code.h"
#include "cli/files/script.h"
#include "cli/follow/follow.h"
#include "cli/follow/follow_printer.h"
#include "cli/logs/log_reader.h"
#include "cli/output/json.h"
#include "nlohmann/json.hpp"
#include "spec/spec.h"

namespace muster::cli {
namespace {

// Each printed rank needs two streams and threads, and the output of more ranks is not readable.
constexpr uint32_t kPrintedRanks = 64;

// Prints the output of a job's ranks while the job runs.
class RankOutput {
 public:
  RankOutput(Context& context, ClusterClient& client, const v1::Job& job, Stopper& stopper)
      : stop_(stopper, [this] { ended_.Stop(); }) {
    const uint32_t ranks = spec::MaxWorldSize(job.spec());
    if (ranks > kPrintedRanks) {
      context.console.Note("not printing the output of ", ranks, " ranks; use muster logs ",
                           job.job_id(), " -f --rank 0");
      return;
    }
    options_.job_id = job.job_id();
    options_.follow = true;
    options_.style.split = true;
    options_.lines_only = true;  // the FollowPrinter prints the rest
    thread_ = std::thread([this, &context, &client] {
      const absl::Status status = PrintLogs(client, options_, ended_, context.console);
      if (!status.ok() && !ended_.stopped()) context.Fail(status);
    });
  }
  // Waits until all output is printed: the job has finished or the following was ended.
  ~RankOutput() {
    if (thread_.joinable()) thread_.join();
  }
  void End() { ended_.Stop(); }
  // Whether the output is printed, rather than left out because there are too many ranks.
  bool shown() const { return thread_.joinable(); }

 private:
  LogOptions options_;
  Stopper ended_;
  Stopper::Registration stop_;
  std::thread thread_;
};

}  // namespace

RunInterrupt::RunInterrupt(Console& console, Stopper& stopper, bool may_detach,
                           std::function<void()> cancel)
    : console_(console),
      stopper_(stopper),
      may_detach_(may_detach),
      cancel_(std::move(cancel)),
      end_fd_(eventfd(0, EFD_CLOEXEC)),
      watcher_(std::make_unique<SignalWatcher>([this](int signal) { OnSignal(signal); })) {}

RunInterrupt::~RunInterrupt() {
  watcher_.reset();
  EndAsking();
  close(end_fd_);
}

bool RunInterrupt::interrupted() const {
  absl::MutexLock lock(&mutex_);
  return interrupted_;
}

void RunInterrupt::OnSignal(int signal) {
  bool cancelled, asking;
  {
    absl::MutexLock lock(&mutex_);
    cancelled = cancelled_;
    asking = asking_;
  }
  if (cancelled || (may_detach_ && signal != SIGINT)) return Detach();
  if (asking) EndAsking();
  if (!asking && may_detach_ && console_.interactive()) return StartAsking();
  console_.EraseEcho();
  console_.Note("interrupted; cancelling the job (again: stop waiting for its end)");
  Cancel();
}

void RunInterrupt::StartAsking() {
  EndAsking();  // joins the thread of an earlier, answered question
  {
    absl::MutexLock lock(&mutex_);
    asking_ = true;
  }
  ask_ = std::thread([this] { Ask(); });
}

void RunInterrupt::EndAsking() {
  if (!ask_.joinable()) return;
  eventfd_write(end_fd_, 1);
  ask_.join();
  eventfd_t value;
  eventfd_read(end_fd_, &value);
}

void RunInterrupt::Ask() {
  console_.ClearStatus();
  console_.EraseEcho();
  console_.Note("interrupted: c cancels the job, d detaches, Enter continues");
  pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {end_fd_, POLLIN, 0}};
  while (poll(fds, 2, -1) < 0) {
  }
  if (fds[1].revents != 0) return;
  char answer[256];
  const ssize_t size = read(STDIN_FILENO, answer, sizeof(answer));
  {
    absl::MutexLock lock(&mutex_);
    asking_ = false;
  }
  if (size > 0 && (answer[0] == 'c' || answer[0] == 'C')) return Cancel();
  // End of input: the user is gone.
  if (size <= 0 || answer[0] == 'd' || answer[0] == 'D') return Detach();
  console_.Note("continuing");
}

void RunInterrupt::Cancel() {
  {
    absl::MutexLock lock(&mutex_);
    interrupted_ = true;
    cancelled_ = true;
  }
  cancel_();
}

void RunInterrupt::Detach() {
  {
    absl::MutexLock lock(&mutex_);
    interrupted_ = true;
  }
  stopper_.Stop();
}

int FollowRun(Context& context, ClusterClient& client, const v1::Job& submitted,
              const FollowRunOptions& options, Stopper& stopper) {
  const std::string job_id = submitted.job_id();
  const RunInterrupt interrupt(context.console, stopper, options.may_detach, [&] {
    v1::CancelJobRequest request;
    request.set_job_id(job_id);
    const absl::StatusOr<v1::Job> job = client.Call<v1::Job>(request);
    if (!job.ok()) context.Fail(job.status());
  });
  const bool quiet_out = context.structured() || context.output == Output::kName;
  FollowPrinter printer(context.console);
  absl::StatusOr<v1::Job> job;
  bool output_shown = false;
  {
    std::unique_ptr<RankOutput> output;
    if (!quiet_out && !submitted.spec().command().empty()) {
      output = std::make_unique<RankOutput>(context, client, submitted, stopper);
    }
    job = FollowJob(client, job_id, FollowOptions(), stopper, printer);
    output_shown = output != nullptr && output->shown();
    if (!job.ok() && output != nullptr) output->End();
  }
  if (!job.ok()) {
    if (!stopper.stopped()) return context.Fail(job.status());
    context.console.ClearStatus();
    if (options.may_detach) {
      context.console.Note("detached from ", job_id, "; it keeps running\n", "muster wait ", job_id,
                           "      # wait until it has finished\n", "muster logs ", job_id,
                           " -f   # follow its logs\n", "muster cancel ", job_id);
    }
    return kExitInterrupted;
  }
  PrintResult(*job, quiet_out, output_shown, context.console);
  const std::string hint = MissingModuleHint(*job);
  if (!hint.empty()) context.console.Note(hint);
  const bool in_own_folder = !job->spec().has_train() && job->spec().workdir().empty();
  if (job->state() == v1::SUCCEEDED && in_own_folder && options.may_detach && !quiet_out) {
    context.console.Note("results: muster cp ", job_id, ":. ", job_id);
  }
  if (context.structured()) context.Print(JobToJson(*job, options.losses));
  return interrupt.interrupted() ? static_cast<int>(kExitInterrupted) : ExitCodeOf(*job);
}

}  // namespace muster::cli
