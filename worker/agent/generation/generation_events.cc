// The part of Generation that receives the events of shims, and what concerns ranks' logs.
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/report_bounds.h"
#include "spec/units.h"
#include "worker/agent/generation/generation.h"
#include "worker/agent/logs/log_tail.h"

namespace muster::agent {

ShimProcess::Events Generation::EventsOf(uint32_t rank) {
  ShimProcess::Events events;
  events.on_started = [this, rank](pid_t pid) { OnStarted(ranks_[rank], pid); };
  events.on_ended = [this, rank](std::optional<shim::ExitRecord> record) {
    OnEnded(ranks_[rank], record);
  };
  events.on_silence = [this, rank](absl::Duration silence) { OnSilence(ranks_[rank], silence); };
  events.on_memory = [this, rank](uint64_t bytes) { OnMemory(ranks_[rank], bytes); };
  events.on_unkillable = [this, rank](pid_t survivor) { OnUnkillable(ranks_[rank], survivor); };
  events.on_inspected = [this, rank](const std::optional<shim::Inspection>& inspection) {
    OnInspected(ranks_[rank], inspection);
  };
  events.on_log_limit = [this, rank](const std::string& stream, const std::string& dropped) {
    OnLogLimit(ranks_[rank], stream, dropped);
  };
  events.on_lost_output = [this, rank](const shim::LostOutput& lost) {
    OnLostOutput(ranks_[rank], lost);
  };
  return events;
}

void Generation::OnLostOutput(RankState& rank, const shim::LostOutput& lost) {
  v1::LostOutput& reported = *rank.report.mutable_lost_output();
  reported.set_lines(lost.lines);
  reported.set_bytes(lost.bytes);
  reported.set_reason(lost.reason);
  Changed(rank);
}

void Generation::OnLogLimit(RankState& rank, const std::string& stream,
                            const std::string& dropped) {
  const bool is_new = AddWarning(
      absl::StrCat("the ", stream, " log has reached the limit of ",
                   spec::SizeText(context_.rank_log_bytes),
                   " (--rank-log-bytes of the worker); its ", dropped, " output is dropped"),
      rank.report);
  if (is_new) Changed(rank);
}

void Generation::OnMemory(RankState& rank, uint64_t bytes) {
  rank.report.set_memory_bytes(bytes);
  // Sent with the next heartbeat.
  context_.progress->Update(job_id(), number(), rank.report);
}

void Generation::SendLogTail(const RankState& rank) const {
  const v1::RankReport& report = rank.report;
  if (!started_ || report.phase() != v1::EXITED) return;
  const bool failed = report.exit().exit_code() != 0 || report.exit().signal() != 0;
  if (launch_.world_size() > limits::kLogTailRanks && report.rank() != 0 &&
      (!failed || report.exit().stopped_by_worker())) {
    return;
  }
  v1::WorkerMessage message;
  v1::LogTail& tail = *message.mutable_log_tail();
  tail.set_job_id(job_id());
  tail.set_generation(number());
  tail.set_rank(report.rank());
  const auto read = [&](v1::LogStream stream) {
    return ReadLogTail(context_.directory->Log(job_id(), number(), report.rank(), stream));
  };
  std::optional<v1::LogChunk> out = read(v1::STDOUT);
  std::optional<v1::LogChunk> err = read(v1::STDERR);
  if (!out.has_value() && !err.has_value()) return;
  if (out.has_value()) *tail.mutable_stdout_end() = *std::move(out);
  if (err.has_value()) *tail.mutable_stderr_end() = *std::move(err);
  context_.send(std::move(message));
}

}  // namespace muster::agent
