#include "coordinator/service/auth/audit_log.h"

#include <errno.h>
#include <fcntl.h>
#include <glog/logging.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status.h"
#include "coordinator/metric_families.h"
#include "nlohmann/json.hpp"

namespace muster::service {
namespace {

constexpr const metrics::Family& kFailures = CoordinatorFamily("muster_audit_write_failures_total");
constexpr double kUnauthenticatedBurst = 60;
constexpr double kUnauthenticatedPerSecond = 1;
// Rate limit, so that a full disk does not fill another one with log lines.
constexpr int kSecondsBetweenLogLines = 60;

std::string Line(const AuditEntry& entry, absl::Time time, uint64_t left_out) {
  nlohmann::ordered_json line;
  line["time"] = absl::FormatTime(absl::RFC3339_full, time, absl::UTCTimeZone());
  const auto add = [&line](const char* name, const std::string& value) {
    if (!value.empty()) line[name] = value;
  };
  add("user", entry.user);
  add("role", entry.role);
  add("peer", entry.peer);
  add("method", entry.method);
  if (!entry.object.empty()) line[entry.object_kind] = entry.object;
  add("idempotency_key", entry.idempotency_key);
  line["code"] = absl::StatusCodeToString(entry.status.code());
  add("message", std::string(entry.status.message()));
  if (left_out > 0) line["left_out"] = left_out;
  // Texts of callers may not be UTF-8.
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

AuditLog::AuditLog(Options options, prometheus::Registry& registry)
    : options_(std::move(options)),
      failures_(prometheus::BuildCounter()
                    .Name(std::string(kFailures.name))
                    .Help(kFailures.help)
                    .Register(registry)
                    .Add({})),
      unauthenticated_(kUnauthenticatedBurst) {
  absl::MutexLock lock(&mutex_);
  refilled_ = options_.clock().steady;
}

void AuditLog::Append(const AuditEntry& entry) {
  if (options_.path.empty()) return;
  const Time now = options_.clock();
  absl::MutexLock lock(&mutex_);
  uint64_t left_out = 0;
  if (absl::IsUnauthenticated(entry.status)) {
    if (!TakeUnauthenticated(now.steady)) {
      ++left_out_;
      return;
    }
    left_out = std::exchange(left_out_, 0);
  }
  const absl::Status written = Write(Line(entry, now.wall, left_out));
  if (written.ok()) return;
  failures_.Increment();
  LOG_EVERY_T(ERROR, kSecondsBetweenLogLines)
      << "an entry of the audit log is lost: " << written.message();
}

bool AuditLog::TakeUnauthenticated(SteadyTime now) {
  const double gained =
      absl::ToDoubleSeconds(now - std::exchange(refilled_, now)) * kUnauthenticatedPerSecond;
  unauthenticated_ = std::min(kUnauthenticatedBurst, unauthenticated_ + gained);
  if (unauthenticated_ < 1) return false;
  --unauthenticated_;
  return true;
}

absl::Status AuditLog::Write(absl::string_view line) {
  if (file_.get() < 0) RETURN_IF_ERROR(Open());
  struct statvfs disk;
  if (fstatvfs(file_.get(), &disk) == 0 &&
      uint64_t{disk.f_bavail} * disk.f_frsize < options_.reserved_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("write ", options_.path, ": less than ",
                                                     options_.reserved_bytes,
                                                     " bytes are free on its disk"));
  }
  if (size_ > 0 && size_ + line.size() > options_.file_bytes) RETURN_IF_ERROR(Rotate());
  const ssize_t n = write(file_.get(), line.data(), line.size());
  if (n == static_cast<ssize_t>(line.size())) {
    size_ += line.size();
    return absl::OkStatus();
  }
  const absl::Status failure =
      ErrnoStatus(n < 0 ? errno : ENOSPC, absl::StrCat("write ", options_.path));
  // Removes the part of a line that was written.
  if (n > 0) (void)!ftruncate(file_.get(), static_cast<off_t>(size_));
  file_ = security::OwnedFd();
  return failure;
}

absl::Status AuditLog::Open() {
  ASSIGN_OR_RETURN(security::OwnedFd file,
                   security::OpenOwnFile(options_.path, O_WRONLY | O_APPEND | O_CREAT));
  struct stat info;
  if (fstat(file.get(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("open ", options_.path));
  }
  size_ = info.st_size;
  file_ = std::move(file);
  return absl::OkStatus();
}

absl::Status AuditLog::Rotate() {
  const auto name = [this](int number) {
    return number == 0 ? options_.path : absl::StrCat(options_.path, ".", number);
  };
  for (int number = options_.files - 2; number >= 0; --number) {
    if (rename(name(number).c_str(), name(number + 1).c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("rename ", name(number)));
    }
  }
  return Open();
}

}  // namespace muster::service
