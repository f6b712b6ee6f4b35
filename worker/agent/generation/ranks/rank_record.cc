#include "worker/agent/generation/ranks/rank_record.h"

#include <algorithm>
#include <utility>

#include "common/report_bounds.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/proto_time.h"
#include "glog/logging.h"
#include "worker/agent/generation/rank_launch.h"

namespace muster::agent {
namespace {

constexpr char kReportFile[] = "/report.pb";

}  // namespace

bool MergeReport(const v1::ReportRequest& request, v1::RankReport& report) {
  // Each report repeats the latest status.
  const bool saved = request.has_checkpoint() && request.checkpoint().SerializeAsString() !=
                                                     report.checkpoint().SerializeAsString();
  if (request.phase() == v1::CONNECTED) report.set_phase(v1::CONNECTED);
  if (request.has_failure()) *report.mutable_failure() = request.failure();
  if (request.has_summary()) *report.mutable_summary() = request.summary();
  if (saved) *report.mutable_checkpoint() = request.checkpoint();
  return request.phase() == v1::CONNECTED || request.has_failure() || request.has_summary() ||
         saved;
}

RankRecord::RankRecord(const GenerationContext& context, const v1::Launch& launch, uint32_t rank,
                       std::function<void()> on_change)
    : context_(context), launch_(launch), on_change_(std::move(on_change)) {
  report_.set_rank(rank);
  report_.set_phase(v1::PLACED);
  if (rank == 0 && !launch.spec().has_train()) {
    *report_.mutable_checkpoint() = CommandCheckpoint(context, launch);
  }
}

v1::RankReport RankRecord::Described() const {
  v1::RankReport report = report_;
  if (FromProto(launch_.spec().hang_timeout()) == absl::ZeroDuration()) return report;
  *report.mutable_silence() = ToProto(Silence());
  return report;
}

absl::Duration RankRecord::Silence() const {
  if (!silent_since_.has_value()) return absl::ZeroDuration();
  // Zero would mean activity.
  return std::max(absl::Milliseconds(1),
                  absl::Trunc(Now().steady - *silent_since_, absl::Milliseconds(1)));
}

void RankRecord::Load() {
  Begin();
  v1::RankReport report;
  const bool readable = ReadMessage(Directory() + kReportFile, report).ok();
  if (readable && report.rank() == rank()) report_ = report;
  // An earlier version may have stored more than it may send.
  Clamp(report_);
}

void RankRecord::SetStarted(pid_t pid) {
  report_.set_pid(pid);
  report_.set_phase(std::max(report_.phase(), v1::STARTED));
  Changed();
}

absl::Status RankRecord::SetJoined(const v1::JoinRequest& request) {
  *report_.mutable_join() = request.info();
  Clamp(report_);
  if (report_.phase() < v1::JOINED) {
    report_.set_phase(v1::JOINED);
    report_.set_pid(request.pid());
    RETURN_IF_ERROR(Store(false));
  }
  Changed();
  return absl::OkStatus();
}

absl::Status RankRecord::Merge(const v1::ReportRequest& request) {
  if (!MergeReport(request, report_)) return absl::OkStatus();
  Clamp(report_);
  RETURN_IF_ERROR(Store(request.has_summary()));
  Changed();
  return absl::OkStatus();
}

void RankRecord::SetProgress(const v1::Progress& progress) {
  // Report changes of phase at once; other changes can wait for the next heartbeat.
  const v1::Progress& before = report_.progress();
  const bool is_new_phase = progress.phase() != before.phase() ||
                            (progress.has_first_step_time() && !before.has_first_step_time());
  *report_.mutable_progress() = progress;
  const int warnings = report_.warnings_size();
  Clamp(report_);
  context_.progress->Update(launch_.job_id(), launch_.generation(), report_);
  if (is_new_phase || report_.warnings_size() > warnings) Changed();
}

void RankRecord::SetLast(const std::optional<v1::Progress>& progress, const std::string& warning) {
  if (progress.has_value()) *report_.mutable_progress() = *progress;
  AddWarning(warning);
}

void RankRecord::SetSilence(absl::Duration silence) {
  silent_since_.reset();
  if (silence > absl::ZeroDuration()) silent_since_ = Now().steady - silence;
  Changed();
}

void RankRecord::SetMemory(uint64_t bytes) {
  report_.set_memory_bytes(bytes);
  context_.progress->Update(launch_.job_id(), launch_.generation(), report_);
}

void RankRecord::SetLostOutput(const shim::LostOutput& lost) {
  v1::LostOutput& reported = *report_.mutable_lost_output();
  reported.set_lines(lost.lines);
  reported.set_bytes(lost.bytes);
  reported.set_reason(lost.reason);
  Changed();
}

void RankRecord::SetUnkillable(pid_t survivor) {
  if (survivor > 0) report_.set_pid(survivor);
  report_.set_unkillable(true);
  Changed();
}

void RankRecord::SetExited(v1::ExitInfo exit) {
  if (!exit.has_failure() && report_.has_failure()) *exit.mutable_failure() = report_.failure();
  *report_.mutable_exit() = std::move(exit);
  report_.set_phase(v1::EXITED);
  Clamp(report_);
  report_.clear_unkillable();
  report_.clear_memory_bytes();
  if (begun_) {
    // Best effort: on failure, the next worker reads the shim's record.
    const absl::Status stored = Store(false);
    LOG_IF(WARNING, !stored.ok()) << stored;
  }
  Changed();
  context_.progress->MarkExited(launch_.job_id(), launch_.generation(), rank(), Now().steady);
  context_.on_rank_exited(launch_.job_id(), launch_.generation(), rank());
}

bool RankRecord::AddWarning(const std::string& warning) {
  return muster::AddWarning(warning, report_);
}

void RankRecord::Changed() {
  context_.progress->Update(launch_.job_id(), launch_.generation(), report_);
  on_change_();
}

absl::Status RankRecord::Store(bool sync) const {
  return WriteMessage(Directory() + kReportFile, report_, sync);
}

std::string RankRecord::Directory() const {
  return context_.directory->Rank(launch_.job_id(), launch_.generation(), rank());
}

}  // namespace muster::agent
