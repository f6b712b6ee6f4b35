#include "cli/logs/stream_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/exit_code.h"
#include "cli/follow/follow.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/proto_time.h"

namespace muster::cli {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Seconds(1);

}  // namespace

void AwayNotice::Away(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (!std::exchange(away_, true)) {
    console_.Note("log unreachable; retrying: ", status.message());
  }
}

void AwayNotice::Back() {
  absl::MutexLock lock(&mutex_);
  away_ = false;
}

void AwayNotice::Missing(const std::string& notice) {
  absl::MutexLock lock(&mutex_);
  if (missing_.insert(notice).second) console_.Note(notice);
}

StreamReader::StreamReader(ClusterClient& client, StreamOptions options, Stopper& stopper,
                           AwayNotice& notice)
    : client_(client),
      follow_(options.follow),
      may_lack_rank_(options.may_lack_rank),
      patience_(options.patience),
      stopper_(stopper),
      notice_(notice),
      pause_(kFirstPause),
      give_up_(Now().steady + options.patience) {
  request_.set_job_id(std::move(options.job_id));
  request_.set_generation(options.generation);
  request_.set_rank(options.rank);
  request_.set_stream(options.is_stderr ? v1::STDERR : v1::STDOUT);
  request_.set_tail_lines(options.tail_lines);
  // Repeated with each request: it has no effect on what comes after that time.
  if (options.since.has_value()) *request_.mutable_since() = ToProto(*options.since);
}

void StreamReader::Start() { call_ = client_.ReadLog(request_, stopper_); }

absl::StatusOr<bool> StreamReader::NextUntilNow(v1::LogChunk& chunk) { return Next(false, chunk); }

absl::StatusOr<bool> StreamReader::NextUntilExit(v1::LogChunk& chunk) { return Next(true, chunk); }

absl::StatusOr<bool> StreamReader::Next(bool follow, v1::LogChunk& chunk) {
  if (request_.follow() != follow) {
    call_.reset();
    pause_ = kFirstPause;
    give_up_ = Now().steady + patience_;
    request_.set_follow(follow);
  }
  while (!ended_) {
    if (stopper_.stopped()) return absl::CancelledError("interrupted");
    if (call_ == nullptr) Start();
    if (call_->Next(chunk)) {
      notice_.Back();
      pause_ = kFirstPause;
      give_up_ = Now().steady + patience_;
      ended_ = chunk.end();
      if (!chunk.notice().empty()) notice_.Missing(chunk.notice());
      Trim(chunk);
      if (chunk.data().empty()) continue;
      return true;
    }
    const absl::Status status = call_->Finish();
    call_.reset();
    ended_ = may_lack_rank_ && absl::IsOutOfRange(status);
    if (ended_ || (status.ok() && !follow)) return false;
    ASSIGN_OR_RETURN(const bool again, Retry(status));
    if (!again) return false;
  }
  call_.reset();
  return false;
}

absl::StatusOr<bool> StreamReader::Retry(const absl::Status& status) {
  if (stopper_.stopped()) return absl::CancelledError("interrupted");
  const bool missing = absl::IsNotFound(status);
  if (!status.ok() && !missing && !IsTransient(status)) return Fail(status);
  if (request_.follow()) {
    // While the rank may still write or start, the retries do not end.
    const absl::StatusOr<bool> over = GenerationIsOver();
    if (!over.ok() || !*over) give_up_ = Now().steady + patience_;
    if (over.ok() && *over && status.ok()) return false;
    if (over.ok() && *over && missing) {
      const absl::StatusOr<bool> again = AcceptTailOrFail(status);
      return again.ok() && *again;
    }
  } else if (follow_) {
    return Fail(status);
  } else if (missing) {
    return AcceptTailOrFail(status);
  }
  if (Now().steady + pause_ >= give_up_) {
    if (status.ok()) return false;
    return AcceptTailOrFail(status);
  }
  if (!status.ok() && !missing) notice_.Away(status);
  if (!stopper_.SleepFor(pause_)) return absl::CancelledError("interrupted");
  pause_ = std::min(2 * pause_, kLongestPause);
  return true;
}

void StreamReader::Trim(v1::LogChunk& chunk) {
  const uint64_t end = chunk.offset() + chunk.data().size();
  const uint64_t wanted = request_.tail_lines() > 0 ? 0 : request_.offset();
  if (chunk.offset() < wanted) {
    const uint64_t start = std::min(wanted, end);
    chunk.mutable_data()->erase(0, start - chunk.offset());
    chunk.set_offset(start);
  }
  request_.clear_tail_lines();
  request_.set_offset(std::max(wanted, end));
}

absl::StatusOr<bool> StreamReader::GenerationIsOver() {
  const absl::StatusOr<v1::Job> job = client_.GetJob(request_.job_id(), &stopper_);
  if (!job.ok()) return job.status();
  return IsOver(job->state()) || job->generation() > request_.generation();
}

absl::StatusOr<bool> StreamReader::AcceptTailOrFail(const absl::Status& status) {
  if (request_.accept_tail()) return Fail(status);
  request_.set_accept_tail(true);
  return true;
}

absl::Status StreamReader::Fail(const absl::Status& status) const {
  if (absl::IsPermissionDenied(status)) return status;  // it is about the job
  return Annotate(status, absl::StrCat("rank ", request_.rank(), ", ",
                                       request_.stream() == v1::STDOUT ? "stdout" : "stderr"));
}

}  // namespace muster::cli
