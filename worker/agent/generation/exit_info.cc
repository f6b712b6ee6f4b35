#include "worker/agent/generation/exit_info.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/exit_code.h"
#include "common/limits.h"
#include "common/proto_time.h"
#include "worker/agent/generation/error_file.h"

namespace muster::agent {
namespace {

// The length of the UTF-8 sequence at the start of `bytes`; 0 if invalid.
size_t SequenceLength(absl::string_view bytes) {
  const auto byte = [&bytes](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || bytes.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Rejects overlong forms, surrogates, and values beyond the last code point.
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F) ||
      (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return length;
}

void SetFailure(v1::ExitInfo& exit, absl::StatusCode code, absl::string_view phase,
                absl::string_view message, bool not_retryable) {
  v1::FailureReport& failure = *exit.mutable_failure();
  failure.set_code(static_cast<int32_t>(code));
  failure.set_phase(std::string(phase));
  failure.set_message(ToUtf8(message));
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
               "no worker returned within the failure time-out", false);
  }
  return exit;
}

void AddProgramError(const std::string& error_file, v1::ExitInfo& exit) {
  if (exit.has_failure() || (exit.exit_code() == 0 && exit.signal() == 0)) return;
  const std::optional<ProgramError> error = ReadErrorFile(error_file);
  std::string message;
  if (error.has_value()) {
    message = error->message;
    if (exit.stderr_tail().empty()) {
      const size_t size = error->traceback.size();
      exit.set_stderr_tail(ToUtf8(absl::string_view(error->traceback)
                                      .substr(size - std::min(size, limits::kStderrTailBytes))));
    }
  } else if (exit.exit_code() != 0) {
    message = PythonError(exit.stderr_tail()).value_or("");
  }
  if (message.empty()) return;
  if (message.size() > limits::kReportedTextBytes) message.resize(limits::kReportedTextBytes);
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
  std::string message = absl::StrCat(evidence, "; ", exit.failure().message());
  if (message.size() > limits::kReportedTextBytes) message.resize(limits::kReportedTextBytes);
  exit.mutable_failure()->set_message(ToUtf8(message));
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

std::string ToUtf8(absl::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t length = SequenceLength(bytes);
    if (length == 0) {
      text += '?';
      bytes.remove_prefix(1);
    } else {
      absl::StrAppend(&text, bytes.substr(0, length));
      bytes.remove_prefix(length);
    }
  }
  return text;
}

}  // namespace muster::agent
