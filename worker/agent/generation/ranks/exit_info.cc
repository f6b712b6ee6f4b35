#include "worker/agent/generation/ranks/exit_info.h"

#include <signal.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "common/process/exit_code.h"
#include "common/text/utf8.h"
#include "common/time/proto_time.h"
#include "nlohmann/json.hpp"
#include "worker/agent/user_files.h"
#include "worker/shim/log/log_file.h"

namespace muster::agent {
namespace {

using nlohmann::json;

// PyTorch writes the message twice, and messages may contain whole tensors.
constexpr size_t kMaxFileBytes = 64 << 20;
// Limit of the JSON values in a file. Parsed, they take up to 80 times the size of the file, so a
// job could otherwise exhaust the memory of its worker.
constexpr size_t kMaxValues = 10'000;
constexpr auto kLargestStatusCode = static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
constexpr absl::string_view kTraceback = "Traceback (most recent call last):";
constexpr absl::string_view kFrame = "  File \"";

// Messages of Gloo, NCCL and PyTorch's store.
constexpr absl::string_view kLostPeer[] = {
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "remote process exited or there was a network error",
    "remote process has terminated",
    "NCCL communicator was aborted",
    "Socket closed by remote peer",
    "Failed to recv, got 0 bytes",
};

std::string Text(const json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

// An integer from 0 to `most`.
std::optional<uint32_t> Number(const json& object, const char* key, uint32_t most) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_unsigned()) return std::nullopt;
  const auto number = it->get<uint64_t>();
  if (number > most) return std::nullopt;
  return static_cast<uint32_t>(number);
}

bool HasTooManyValues(absl::string_view json) {
  size_t values = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size() && values <= kMaxValues; ++i) {
    if (json[i] == '"') in_string = !in_string;
    if (json[i] == '\\') ++i;  // only in strings; skips an escaped quotation mark
    if (!in_string && i < json.size() && absl::StrContains("[{,", json[i])) ++values;
  }
  return values > kMaxValues;
}

// The coordinator keeps as much of a message, and would cut off the rest of a longer one.
constexpr size_t kMessageBytes = 4 << 10;
constexpr size_t kOmissionBytes = 64;  // of the text in place of the middle

// Shortens a long text in the middle: the end of an exception may be its only message.
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

std::optional<ProgramError> ReadErrorFile(const std::string& path, std::optional<uid_t> uid) {
  const std::optional<std::string> text = ReadUserFile(path, kMaxFileBytes, uid);
  if (!text.has_value() || HasTooManyValues(*text)) return std::nullopt;
  const json file = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object() || !file.contains("message")) return std::nullopt;
  const json& message = file["message"];
  ProgramError error;
  error.message = Text(file, "message");
  if (message.is_object()) {
    error.message = Text(message, "message");
    if (message.contains("extraInfo")) {
      error.traceback = Text(message["extraInfo"], "py_callstack");
    }
  }
  if (error.message.empty()) return std::nullopt;
  error.peer_rank = Number(file, "peer_rank", limits::kRanksPerJob - 1);
  if (const auto code = Number(file, "status_code", kLargestStatusCode); code.value_or(0) != 0) {
    error.status_code = static_cast<int>(*code);
  }
  return error;
}

std::optional<std::string> PythonError(absl::string_view lines) {
  const size_t start = lines.rfind(kTraceback);
  if (start != absl::string_view::npos) {
    lines.remove_prefix(start + kTraceback.size());
  } else {
    // The tail of a long traceback contains only its last frames.
    const size_t frame =
        absl::StartsWith(lines, kFrame) ? 0 : lines.find(absl::StrCat("\n", kFrame));
    if (frame == absl::string_view::npos) return std::nullopt;
    lines.remove_prefix(frame);
  }
  // Frames are indented; the first line that is not indented is the exception.
  for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipWhitespace())) {
    if (line[0] != ' ') return std::string(absl::StripTrailingAsciiWhitespace(line));
  }
  return std::nullopt;
}

bool IsPeerLostMessage(absl::string_view message) {
  for (const absl::string_view text : kLostPeer) {
    if (absl::StrContains(message, text)) return true;
  }
  return false;
}

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
