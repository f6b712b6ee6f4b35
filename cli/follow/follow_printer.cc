#include "cli/follow/follow_printer.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "cli/exit_code.h"
#include "cli/output/words.h"
#include "cli/text/job_text.h"
#include "common/text/checkpoint_texts.h"
#include "common/time/proto_time.h"

namespace muster::cli {
namespace {

std::string OnNode(const v1::CheckpointStatus& status) {
  return status.node().empty() ? "" : absl::StrCat(" on ", status.node());
}

constexpr absl::Duration kProgressInterval = absl::Seconds(2);

// "queued: position 2, waiting for resources (node-1: 0 of 1 slots free)".
std::string StateLine(const v1::Job& job) {
  std::string detail;
  const auto add = [&detail](absl::string_view text) {
    if (!text.empty()) absl::StrAppend(&detail, detail.empty() ? ": " : ", ", text);
  };
  if (job.state() == v1::QUEUED && job.queue_position() > 0) {
    add(absl::StrCat("position ", job.queue_position()));
  }
  if (job.state() == v1::STARTING || job.state() == v1::RUNNING) {
    add(absl::StrCat("generation ", job.generation()));
  } else if (job.state() == v1::STOPPING) {
    // The line about the restart or the result has the cause.
  } else if (!job.message().empty()) {
    add(job.message());
  } else {
    add(job.reason());
  }
  if (job.state() == v1::QUEUED || job.state() == v1::HELD) {
    const std::string waits = WaitsText(job);
    if (!waits.empty()) add(absl::StrCat("waiting for ", waits));
  }
  return absl::StrCat(StateWord(job.state()), Printable(detail));
}

}  // namespace

std::string CheckpointText(const v1::Job& job) {
  const v1::CheckpointStatus& status = job.checkpoint();
  if (job.state() == v1::SUCCEEDED && !job.summary().checkpoint().empty()) {
    return Printable(absl::StrCat("checkpoint: ", job.summary().checkpoint(), OnNode(status)));
  }
  const std::string path = NewestCheckpointPath(status);
  if (path.empty()) return "";
  return Printable(
      absl::StrCat("newest checkpoint: step ", status.step(), ", ", path, OnNode(status)));
}

std::string BestCheckpointText(const v1::Job& job) {
  const v1::CheckpointStatus& status = job.checkpoint();
  const std::string path = BestCheckpointPath(status);
  if (path.empty()) return "";
  return Printable(absl::StrCat("best checkpoint by ", job.spec().train().checkpoint().keep_best(),
                                ": step ", status.best_step(), ", ", path, OnNode(status)));
}

std::string CheckpointFailureText(const v1::Job& job) {
  const std::string failures = CheckpointFailures(job.checkpoint());
  return failures.empty() ? "" : Printable(absl::StrCat("warning: checkpoints: ", failures));
}

std::string ResumeText(const v1::Job& job) {
  const v1::CheckpointStatus& status = job.checkpoint();
  if (status.resumed_from().empty()) {
    const bool restarted =
        job.spec().has_train() && job.generation() > 1 && job.state() == v1::RUNNING;
    return restarted
               ? "begins at step 0: there is no checkpoint; set a shorter train.checkpoint.every"
               : "";
  }
  std::string text = absl::StrCat("resumes from step ", status.resumed_step());
  if (status.resumed_job_id() != job.job_id()) {
    absl::StrAppend(&text, " of job ", status.resumed_job_id(), ", ", status.resumed_from());
  }
  return Printable(text);
}

std::string ContinuedText(const v1::Job& job) {
  const v1::CheckpointStatus& status = job.checkpoint();
  if (status.continued_from().empty()) return "";
  return Printable(
      absl::StrCat("continued job ", status.continued_job_id(), " from ", status.continued_from()));
}

std::string CheckpointWarning(const v1::Job& job) {
  const v1::CheckpointStatus& status = job.checkpoint();
  const bool on_one_of_several = job.spec().has_train() && !status.dir().empty() &&
                                 !status.shared() && job.spec().resources().nodes().max() > 1;
  if (!on_one_of_several) return "";
  return Printable(absl::StrCat(
      "warning: checkpoints are only on ", status.node(),
      "; without it a restart begins at step 0; set train.checkpoint.dir to a directory that all "
      "nodes share, or the coordinator's --checkpoint-dir"));
}

void FollowPrinter::OnJob(const v1::Job& job) {
  PrintState(job);
  if (IsOver(job.state())) return;
  ShowReason(job);
  PrintHang(job);
  PrintCheckpoints(job);
  PrintProgress(job);
}

void FollowPrinter::PrintState(const v1::Job& job) {
  // The result names the failure of the last generation.
  const uint64_t failed = job.first_failure().generation();
  const bool restarts = job.state() == v1::QUEUED || job.generation() > failed;
  if (failed > last_failure_ && restarts && !IsOver(job.state())) {
    last_failure_ = failed;
    console_.Note(console_.Paint("failure", Color::kRed), " of generation ", last_failure_, ": ",
                  Printable(FailureText(job.first_failure())));
  }
  // The waits of a queued job change often; only a new position or reason is printed.
  const std::string state = absl::StrCat(job.state(), " ", job.generation(), " ", job.reason(), " ",
                                         job.queue_position());
  if (state == last_state_ || IsOver(job.state())) return;
  last_state_ = state;
  if (job.generation() != last_generation_) {
    last_generation_ = job.generation();
    last_phase_.clear();
    last_resume_.clear();
    last_step_ = 0;
    next_progress_ = SteadyTime();
  }
  console_.ClearStatus();
  console_.Note(console_.Paint(StateLine(job), StateColor(job.state())));
}

void FollowPrinter::ShowReason(const v1::Job& job) {
  if (job.state() == v1::STOPPING) console_.Status(Printable(job.message()));
  if (job.state() != v1::QUEUED) return;
  const std::string waits = WaitsText(job);
  if (!waits.empty()) console_.Status(Printable(absl::StrCat("waiting for ", waits)));
}

void FollowPrinter::PrintHang(const v1::Job& job) {
  if (job.has_hang() == (hung_generation_ > 0)) return;
  // A stop ends a hang, too; the line about the restart or the result has its cause.
  const bool active_again = job.state() == v1::RUNNING && job.generation() == hung_generation_;
  hung_generation_ = job.has_hang() ? job.generation() : 0;
  if (!job.has_hang() && !active_again) return;
  console_.ClearStatus();
  if (!job.has_hang()) return console_.Note("hangs no longer: a rank was active again");
  const std::string& message = job.hang().message();
  console_.Note(console_.Paint(
      Printable(absl::StrCat("hangs: all ranks silent for ", Age(FromProto(job.hang().silence())),
                             message.empty() ? "" : ": ", message, "; see muster why ",
                             job.job_id())),
      Color::kYellow));
}

void FollowPrinter::PrintCheckpoints(const v1::Job& job) {
  const auto print_new = [this](std::string text, std::string& last) {
    if (text == last) return;
    last = std::move(text);
    if (last.empty()) return;
    console_.ClearStatus();
    console_.Note(last);
  };
  print_new(CheckpointWarning(job), last_warning_);
  print_new(ResumeText(job), last_resume_);
  // One line for repeated failures with the same error.
  if (job.checkpoint().failure() == last_checkpoint_failure_) return;
  last_checkpoint_failure_ = job.checkpoint().failure();
  std::string shown;
  print_new(CheckpointFailureText(job), shown);
}

void FollowPrinter::PrintProgress(const v1::Job& job) {
  const std::string text = Printable(ProgressText(job));
  if (text.empty() || (job.state() != v1::STARTING && job.state() != v1::RUNNING)) return;
  console_.Status(text);
  if (console_.err_is_terminal()) return;
  const SteadyTime now = clock_().steady;
  const bool new_phase = job.progress().phase() != last_phase_;
  const bool moved = job.progress().step() != last_step_ ||
                     job.progress().phase_progress() != last_phase_progress_;
  if (!new_phase && !(moved && now >= next_progress_)) return;
  last_phase_ = job.progress().phase();
  last_step_ = job.progress().step();
  last_phase_progress_ = job.progress().phase_progress();
  next_progress_ = now + kProgressInterval;
  console_.Note(text);
}

void FollowPrinter::OnCoordinatorAway(const absl::Status& status) {
  console_.ClearStatus();
  console_.Note(console_.Paint("coordinator unreachable; retrying", Color::kYellow));
}

void FollowPrinter::OnCoordinatorBack() { console_.Note("coordinator reachable again"); }

void NoteFailure(const v1::Job& job, bool output_shown, Console& console) {
  if (job.state() == v1::SUCCEEDED || !job.has_first_failure()) return;
  const v1::FirstFailure& failure = job.first_failure();
  // Usually the job's message contains it already.
  if (failure.message().empty() || !absl::StrContains(job.message(), failure.message())) {
    console.Note("  ", Printable(FailureText(failure)));
  }
  const std::string detail = FailureDetailText(failure, /*with_output=*/!output_shown);
  if (!detail.empty()) console.Note(absl::StripSuffix(detail, "\n"));
}

void PrintResult(const v1::Job& job, bool quiet_out, bool output_shown, Console& console) {
  console.ClearStatus();
  std::string line = StateWord(job.state());
  // "cancelled by alice".
  const bool message_has_state =
      job.state() == v1::CANCELLED && absl::StartsWith(job.message(), line);
  if (message_has_state) line = Printable(job.message());
  if (job.has_submit_time() && job.has_finish_time()) {
    absl::StrAppend(&line, " after ",
                    Elapsed(FromProto(job.finish_time()) - FromProto(job.submit_time())));
  }
  if (job.restarts() > 0) {
    absl::StrAppend(&line, ", ", job.restarts(), job.restarts() == 1 ? " restart" : " restarts");
  }
  if (job.state() != v1::SUCCEEDED && !job.reason().empty() && !message_has_state) {
    absl::StrAppend(&line, ": ", job.reason());
    if (!job.message().empty()) absl::StrAppend(&line, ": ", Printable(job.message()));
  }
  console.Note(console.Paint(line, StateColor(job.state())));
  NoteFailure(job, output_shown, console);
  const bool trained = job.state() == v1::SUCCEEDED && job.has_summary();
  if (trained) console.Note(SummaryText(job.summary()));
  for (const std::string& text : {ContinuedText(job), CheckpointText(job), BestCheckpointText(job),
                                  CheckpointFailureText(job)}) {
    if (!text.empty()) console.Note(text);
  }
  if (trained && !quiet_out) {
    console.Out(absl::StrFormat("test accuracy %.4f\n", job.summary().test_accuracy()));
  }
}

}  // namespace muster::cli
