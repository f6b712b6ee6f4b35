#include "coordinator/core/jobs/first_failure.h"

#include <csignal>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/process/exit_code.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

const char* SignalName(int signal) {
  switch (signal) {
    case SIGHUP:
      return "SIGHUP";
    case SIGINT:
      return "SIGINT";
    case SIGQUIT:
      return "SIGQUIT";
    case SIGILL:
      return "SIGILL";
    case SIGABRT:
      return "SIGABRT";
    case SIGBUS:
      return "SIGBUS";
    case SIGFPE:
      return "SIGFPE";
    case SIGKILL:
      return "SIGKILL";
    case SIGSEGV:
      return "SIGSEGV";
    case SIGPIPE:
      return "SIGPIPE";
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGUSR2:
      return "SIGUSR2";
    default:
      return nullptr;
  }
}

int CodeOfReport(const v1::FailureReport& report) {
  switch (static_cast<absl::StatusCode>(report.code())) {
    case absl::StatusCode::kNotFound:
      return kExitNoInput;
    case absl::StatusCode::kPermissionDenied:
      return kExitCannotCreate;
    default:
      return kExitFailure;
  }
}

}  // namespace

bool IsFailure(const v1::ExitInfo& exit) {
  return exit.exit_code() != 0 || exit.signal() != 0 || exit.out_of_memory() ||
         exit.failure().code() != 0;
}

int ExitCodeOf(const v1::FirstFailure& failure) {
  const v1::ExitInfo& exit = failure.exit();
  if (exit.signal() == 0 && exit.exit_code() != 0) return exit.exit_code();
  if (exit.stopped_by_worker() && exit.has_failure()) return CodeOfReport(exit.failure());
  if (exit.signal() != 0) return kExitSignal + exit.signal();
  return exit.has_failure() ? CodeOfReport(exit.failure()) : kExitFailure;
}

std::string ReasonOf(const v1::ExitInfo& exit, bool started) {
  if (exit.out_of_memory()) return reasons::kOutOfMemory;
  if (exit.lease_expired()) return reasons::kNodeLost;
  if (!started && exit.has_failure()) return reasons::kLaunchFailed;
  if (exit.signal() != 0 && !exit.stopped_by_worker()) return reasons::kRankKilled;
  return reasons::kRankFailed;
}

std::string Describe(const v1::ExitInfo& exit, uint32_t rank, const std::string& node,
                     bool started) {
  std::string text = absl::StrCat("rank ", rank, " on ", node);
  if (exit.out_of_memory()) {
    absl::StrAppend(&text, " ran out of memory");
  } else if (exit.lease_expired()) {
    absl::StrAppend(&text,
                    " was ended because its lease expired: its worker was stopped or cut off");
  } else if (!started && exit.has_failure()) {
    absl::StrAppend(&text, " could not be started");
  } else if (exit.stopped_by_worker() && exit.has_failure()) {
    absl::StrAppend(&text, " failed");
  } else if (exit.stopped_by_worker()) {
    absl::StrAppend(&text, " was stopped by its worker");
  } else if (exit.signal() != 0) {
    const char* name = SignalName(exit.signal());
    absl::StrAppend(&text, " was killed by signal ", exit.signal());
    if (name != nullptr) absl::StrAppend(&text, " (", name, ")");
  } else if (exit.exit_code() != 0) {
    absl::StrAppend(&text, " exited with code ", exit.exit_code());
  } else {
    absl::StrAppend(&text, " failed");
  }
  if (!exit.failure().message().empty()) absl::StrAppend(&text, ": ", exit.failure().message());
  return text;
}

void FailureLog::Add(v1::FirstFailure failure, bool consequence) {
  entries_.push_back({std::move(failure), consequence});
}

const v1::FirstFailure* FailureLog::FindCause(
    const std::function<bool(const v1::FirstFailure&)>& is_accused, bool final) const {
  if (entries_.empty()) return nullptr;
  if (!entries_.front().consequence) return &entries_.front().failure;
  for (const Entry& entry : entries_) {
    if (!entry.consequence && is_accused(entry.failure)) return &entry.failure;
  }
  if (!final) return nullptr;
  for (const Entry& entry : entries_) {
    if (!entry.consequence) return &entry.failure;
  }
  return &entries_.front().failure;
}

}  // namespace muster::core
