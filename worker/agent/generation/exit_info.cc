#include "worker/agent/generation/exit_info.h"

#include <signal.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/exit_code.h"
#include "common/limits.h"
#include "common/proto_time.h"
#include "common/utf8.h"
#include "worker/agent/generation/error_file.h"
#include "worker/shim/log_file.h"

namespace muster::agent {
namespace {

// The coordinator keeps as much of a message, and would cut off the rest of a longer one.
constexpr size_t kMessageBytes = 4 << 10;
constexpr size_t kOmissionBytes = 64;  // of the text in place of the middle

// Shortens a long text in the middle: the end of an exception may be all that it says.
std::string BoundedText(absl::string_view bytes) {
  if (bytes.size() <= kMessageBytes) {
    std::string text = ToUtf8(bytes);
    KeepFirst(kMessageBytes, text);
    return text;
  }
  constexpr size_t kEndBytes = (kMessageBytes - kOmissionBytes) / 2;
  std::string begin(bytes.substr(0, kEndBytes + 4));
  std::string end(bytes.substr(bytes.size() - kEndBytes - 4));
  KeepFirst(kEndBytes, begin);
  KeepLast(kEndBytes, end);
  return absl::StrCat(ToUtf8(begin), " ... [", bytes.size() - begin.size() - end.size(),
                      " bytes omitted] ... ", ToUtf8(end));
}

void SetFailure(v1::ExitInfo& exit, absl::StatusCode code, absl::string_view phase,
                absl::string_view message, bool not_retryable) {
  v1::FailureReport& failure = *exit.mutable_failure();
  failure.set_code(static_cast<int32_t>(code));
  failure.set_phase(std::string(phase));
  failure.set_message(BoundedText(message));
  failure.set_not_retryable(not_retryable);
}

}  // namespace

v1::ExitInfo ToExitInfo(const std::optional<shim::ExitRecord>& record) {
  v1::ExitInfo exit;
  if (!record.has_value()) {
    exit.set_signal(SIGKILL);
    *exit.mutable_time() = ToProto(absl::Now());
    SetFailure(exit, absl::StatusCode::kInternal, "running", "shim lost", false);
    return exit;
  }
  exit.set_exit_code(record->exit_code);
  exit.set_signal(record->signal);
  exit.set_out_of_memory(record->out_of_memory);
  exit.set_stopped_by_worker(record->stopped || record->abandoned);
  exit.set_lease_expired(record->lease_expired);
  exit.set_stderr_tail(
      ToUtf8(absl::string_view(record->stderr_tail).substr(0, limits::kStderrTailBytes)));
  *exit.mutable_time() = ToProto(absl::FromUnixMillis(record->time_unix_ms));
  if (record->exec_errno != 0) {
    const bool lasting = record->exec_errno == ENOENT || record->exec_errno == EACCES ||
                         record->exec_errno == ENOEXEC || record->exec_errno == ENOTDIR ||
                         record->exec_errno == ELOOP || record->exec_errno == ENAMETOOLONG ||
                         record->exec_errno == E2BIG || record->exit_code == kExitCannotCreate;
    SetFailure(exit, absl::ErrnoToStatusCode(record->exec_errno), "launching", record->exec_error,
               lasting);
  } else if (record->abandoned) {
    SetFailure(exit, absl::StatusCode::kUnavailable, "running",
               "no worker returned within the failure timeout", false);
  }
  return exit;
}

void AddProgramError(const std::string& error_file, v1::ExitInfo& exit, std::optional<uid_t> uid) {
  if (exit.has_failure() || (exit.exit_code() == 0 && exit.signal() == 0)) return;
  const std::optional<ProgramError> error = ReadErrorFile(error_file, uid);
  std::string message;
  if (error.has_value()) {
    message = error->message;
    if (exit.stderr_tail().empty()) {
      shim::Tail tail(limits::kStderrTailLines, limits::kStderrTailBytes);
      tail.Append({error->traceback.data(), error->traceback.size()});
      exit.set_stderr_tail(ToUtf8(tail.Lines()));
    }
  } else if (exit.exit_code() != 0) {
    message = PythonError(exit.stderr_tail()).value_or("");
  }
  if (message.empty()) return;
  // ABORTED means that another rank ended first.
  auto code = IsPeerLostMessage(message) ? absl::StatusCode::kAborted : absl::StatusCode::kUnknown;
  if (error.has_value() && error->status_code.has_value()) {
    code = static_cast<absl::StatusCode>(*error->status_code);
  }
  SetFailure(exit, code, "running", message, false);
  if (error.has_value() && error->peer_rank.has_value()) {
    exit.mutable_failure()->set_peer_rank(*error->peer_rank);
  }
}

void AddDeviceEvidence(const std::string& evidence, v1::ExitInfo& exit) {
  const bool well = exit.exit_code() == 0 && exit.signal() == 0;
  if (evidence.empty() || well || exit.stopped_by_worker()) return;
  if (!exit.has_failure()) {
    return SetFailure(exit, absl::StatusCode::kUnavailable, "running", evidence, false);
  }
  // Evidence first, because the end of a long message is truncated.
  exit.mutable_failure()->set_message(
      BoundedText(absl::StrCat(evidence, "; ", exit.failure().message())));
}

v1::ExitInfo LaunchFailure(const absl::Status& status) {
  v1::ExitInfo exit;
  exit.set_exit_code(kExitCannotExecute);
  *exit.mutable_time() = ToProto(absl::Now());
  SetFailure(exit, status.code(), "launching",
             absl::string_view(status.message().data(), status.message().size()),
             absl::IsFailedPrecondition(status));
  return exit;
}

}  // namespace muster::agent
