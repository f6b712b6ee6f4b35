#include "worker/agent/generation/ranks/rank.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/limits.h"
#include "common/process/environment_value.h"
#include "common/process/stop_signal.h"
#include "common/random_id.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/proto_time.h"
#include "glog/logging.h"
#include "spec/units.h"
#include "worker/agent/generation/launcher.h"
#include "worker/agent/generation/rank_launch.h"
#include "worker/agent/generation/ranks/exit_info.h"
#include "worker/agent/logs/log_file_reader.h"
#include "worker/shim/fields.h"

namespace muster::agent {
namespace {

std::vector<uint32_t> SlotsOf(const v1::RankPlacement& placement) {
  return {placement.slots().begin(), placement.slots().end()};
}

// Whether a native rank, which reports periodically even while it waits, has advanced.
bool IsAdvance(const v1::Progress& before, const v1::Progress& progress) {
  return progress.step() != before.step() || progress.samples() != before.samples() ||
         progress.phase() != before.phase() ||
         progress.phase_progress() != before.phase_progress() ||
         progress.collective_sequence() != before.collective_sequence();
}

}  // namespace

Rank::Rank(const GenerationContext& context, const v1::Launch& launch,
           const v1::RankPlacement& placement, const Events& events)
    : context_(context),
      launch_(launch),
      placement_(placement),
      events_(events),
      record_(context, launch, placement.rank(), [this] { events_.on_change(*this); }) {}

std::string Rank::Directory() const {
  return context_.directory->Rank(launch_.job_id(), launch_.generation(), placement_.rank());
}

absl::Status Rank::Start(const Address& master, const std::optional<JobUser>& user,
                         const std::vector<std::string>& secrets) {
  token_ = RandomHexId(128);
  const shim::Instructions instructions =
      MakeInstructions(context_, launch_, placement_, token_, master, user);
  RETURN_IF_ERROR(MakeLauncher(context_, launch_)->CheckNode(placement_, instructions));
  RETURN_IF_ERROR(CheckTracked(context_, instructions));
  record_.AddWarning(UnenforcedLimits(context_, launch_.spec().resources()));
  if (launch_.spec().workdir().empty() && !user.has_value()) {
    RETURN_IF_ERROR(MakeDirectories(instructions.workdir));
  }
  OpenReports(instructions);
  const std::vector<uint32_t> slots = SlotsOf(placement_);
  context_.devices->Occupy(slots, /*adopted=*/false);
  auto shim = ShimProcess::Start(*context_.loop, context_.shim_binary, Directory(), instructions,
                                 SecretsFor(instructions, secrets), ShimEvents());
  if (!shim.ok()) {
    context_.devices->Release(slots, [] {});
    return shim.status();
  }
  shim_ = *std::move(shim);
  KeepLease(context_, launch_, shim_->line());
  return absl::OkStatus();
}

std::optional<Address> Rank::Adopt() {
  record_.Load();
  if (record_.exited()) return std::nullopt;  // it never had a shim
  const auto text = shim::ReadFile(absl::StrCat(Directory(), "/", shim::kInstructionsFile));
  std::optional<shim::Instructions> instructions;
  if (text.has_value()) instructions = shim::DecodeInstructions(*text);
  if (!instructions.has_value()) {
    record_.SetExited(
        LaunchFailure(absl::AbortedError("the worker ended before starting the rank")));
    return std::nullopt;
  }
  token_ = TokenIn(*instructions);
  OpenReports(*instructions);
  context_.devices->Occupy(SlotsOf(placement_), /*adopted=*/true);
  shim_ = ShimProcess::Adopt(*context_.loop, Directory(), *instructions, ShimEvents());
  KeepLease(context_, launch_, shim_->line());
  return MasterIn(*instructions);
}

void Rank::OpenReports(const shim::Instructions& instructions) {
  if (launch_.spec().has_train()) return;
  if (instructions.user.has_value()) uid_ = instructions.user->uid;
  // As this or an earlier worker has named them to the rank.
  progress_file_ = std::make_unique<ProgressFile>(
      std::string(EnvironmentValue(instructions.environment, "MUSTER_PROGRESS")), uid_);
  error_file_ = std::string(EnvironmentValue(instructions.environment, "TORCHELASTIC_ERROR_FILE"));
}

void Rank::Stop(const v1::StopGeneration& stop, bool is_repeated) {
  if (shim_ != nullptr) {
    // The trainer logs this itself.
    if (!launch_.spec().has_train() && !stop.reason().empty() && !is_repeated) {
      shim_->Note(absl::StrCat("muster: stopping: ", stop.reason()));
    }
    const absl::Duration grace = FromProto(stop.grace_period());
    stop.dump_stacks() ? shim_->Abort(grace) : shim_->Stop(grace);
  } else if (!record_.exited() && !ended_) {
    v1::ExitInfo exit;
    exit.set_signal(FindStopSignal(launch_.spec().stop_signal()).number);
    exit.set_stopped_by_worker(true);
    *exit.mutable_time() = ToProto(absl::Now());
    record_.SetExited(std::move(exit));
  }
}

void Rank::SetLeaseDeadline(int64_t boot_ms) {
  if (shim_ != nullptr) shim_->SetLeaseDeadline(boot_ms);
}

void Rank::Note(const std::string& line) {
  if (shim_ != nullptr) shim_->Note(line);
}

void Rank::Inspect() {
  if (shim_ != nullptr) shim_->Inspect();
}

void Rank::ReadProgress() {
  if (progress_file_ == nullptr || shim_ == nullptr) return;
  const std::optional<v1::Progress> progress = progress_file_->Read(Now());
  if (progress.has_value()) TakeProgress(*progress);
  if (record_.AddWarning(progress_file_->TakeWarning())) record_.Changed();
}

absl::Status Rank::Report(const v1::ReportRequest& request) {
  if (record_.exited()) return absl::AbortedError("the rank is over");
  if (request.has_progress()) TakeProgress(request.progress());
  return record_.Merge(request);
}

void Rank::TakeProgress(const v1::Progress& progress) {
  // A command has written a line.
  const bool is_activity =
      progress_file_ != nullptr || IsAdvance(record_.report().progress(), progress);
  if (shim_ != nullptr && is_activity) shim_->MarkActive();
  record_.SetProgress(progress);
}

void Rank::Warn(const std::string& warning) {
  if (!record_.AddWarning(warning)) return;
  Note(absl::StrCat("muster: ", warning));
  record_.Changed();
}

void Rank::SendLogTail() const {
  const v1::RankReport& report = record_.report();
  if (!record_.begun() || !record_.exited()) return;
  const bool failed = report.exit().exit_code() != 0 || report.exit().signal() != 0;
  if (launch_.world_size() > limits::kLogTailRanks && report.rank() != 0 &&
      (!failed || report.exit().stopped_by_worker())) {
    return;
  }
  v1::WorkerMessage message;
  v1::LogTail& tail = *message.mutable_log_tail();
  tail.set_job_id(launch_.job_id());
  tail.set_generation(launch_.generation());
  tail.set_rank(report.rank());
  const auto read = [&](v1::LogStream stream) {
    return ReadLogTail(
        context_.directory->Log(launch_.job_id(), launch_.generation(), report.rank(), stream));
  };
  std::optional<v1::LogChunk> out = read(v1::STDOUT);
  std::optional<v1::LogChunk> err = read(v1::STDERR);
  if (!out.has_value() && !err.has_value()) return;
  if (out.has_value()) *tail.mutable_stdout_end() = *std::move(out);
  if (err.has_value()) *tail.mutable_stderr_end() = *std::move(err);
  context_.send(std::move(message));
}

ShimProcess::Events Rank::ShimEvents() {
  ShimProcess::Events events;
  events.on_started = [this](pid_t pid) { record_.SetStarted(pid); };
  events.on_ended = [this](const std::optional<shim::ExitRecord>& record) { OnEnded(record); };
  events.on_silence = [this](absl::Duration silence) { record_.SetSilence(silence); };
  events.on_memory = [this](uint64_t bytes) { record_.SetMemory(bytes); };
  events.on_unkillable = [this](pid_t survivor) {
    LOG(ERROR) << launch_.job_id() << " rank " << placement_.rank()
               << ": processes outlive SIGKILL";
    record_.SetUnkillable(survivor);
    events_.on_unkillable();
  };
  events.on_inspected = [this](const std::optional<shim::Inspection>& inspection) {
    // Without an answer, the coordinator does not wait long.
    if (inspection.has_value()) OnInspected(*inspection);
  };
  events.on_log_limit = [this](const std::string& stream, const std::string& dropped) {
    const bool is_new = record_.AddWarning(absl::StrCat(
        "the ", stream, " log has reached the limit of ", spec::SizeText(context_.rank_log_bytes),
        " (--rank-log-bytes of the worker); its ", dropped, " output is dropped"));
    if (is_new) record_.Changed();
  };
  events.on_lost_output = [this](const shim::LostOutput& lost) { record_.SetLostOutput(lost); };
  return events;
}

void Rank::OnEnded(const std::optional<shim::ExitRecord>& record) {
  shim_.reset();
  ended_ = true;
  events_.on_ended();
  if (record.has_value() && record->lost_output.bytes > 0) {
    LOG(WARNING) << launch_.job_id() << " rank " << placement_.rank() << ": "
                 << record->lost_output.bytes
                 << " bytes of its logs could not be written: " << record->lost_output.reason;
    record_.SetLostOutput(record->lost_output);
  }
  v1::ExitInfo exit = ToExitInfo(record);
  if (!launch_.spec().has_train()) AddProgramError(error_file_, exit, uid_);
  if (progress_file_ != nullptr) {
    const std::optional<v1::Progress> last = progress_file_->Read(Now());
    record_.SetLast(last, progress_file_->TakeWarning());
  }
  // Release the slots first: the coordinator may place another rank there as soon as it receives
  // the exit.
  const std::vector<uint32_t> slots = SlotsOf(placement_);
  context_.devices->Release(slots, [this, self = self_, slots, exit]() mutable {
    if (*self == nullptr) return;
    AddDeviceEvidence(context_.devices->Evidence(slots), exit);
    record_.SetExited(std::move(exit));
    events_.on_exited();
  });
}

void Rank::OnInspected(const shim::Inspection& inspection) const {
  v1::WorkerMessage message;
  v1::InspectionReport& report = *message.mutable_inspection();
  report.set_job_id(launch_.job_id());
  report.set_generation(launch_.generation());
  v1::RankInspection& seen = *report.add_ranks();
  seen.set_rank(placement_.rank());
  seen.set_state(inspection.state);
  *seen.mutable_silence() = ToProto(record_.Silence());
  seen.set_cpu_ratio(inspection.cpu_ratio);
  seen.set_waits_in(inspection.waits_in);
  seen.set_stack(inspection.stack);
  context_.send(std::move(message));
}

}  // namespace muster::agent
