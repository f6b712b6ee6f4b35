#include "worker/agent/rank/progress_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/limits.h"
#include "common/proto_time.h"
#include "worker/agent/rank/progress_line.h"

namespace muster::agent {
namespace {

constexpr uint64_t kReadBytes = 256 << 10;
constexpr size_t kLineBytes = 4096;
// Longer estimates are omitted: programs without an end write a huge total_steps.
constexpr double kLongestEstimateSeconds = 365.0 * 24 * 3600;

}  // namespace

std::optional<v1::Progress> ProgressFile::Read(Time now) {
  const std::string bytes = NewBytes();
  bool any = false;
  for (const absl::string_view piece : absl::StrSplit(bytes, absl::ByChar('\n'))) {
    const bool last = piece.data() + piece.size() == bytes.data() + bytes.size();
    if (!skipping_) partial_line_.append(piece.data(), piece.size());
    if (partial_line_.size() > kLineBytes) {
      Warn(absl::StrCat("is longer than ", kLineBytes, " bytes; write shorter lines"));
      skipping_ = true;
      partial_line_.clear();
    }
    if (last) break;  // incomplete line
    any |= TakeLine();
  }
  if (!any) return std::nullopt;
  Date(now);
  return progress_;
}

bool ProgressFile::TakeLine() {
  ProgressLine line;
  if (!skipping_) line = ApplyProgressLine(partial_line_, progress_);
  if (!line.problem.empty()) Warn(line.problem);
  if (line.applied) NoteLoss();
  partial_line_.clear();
  skipping_ = false;
  if (line_number_.has_value()) ++*line_number_;
  return line.applied;
}

void ProgressFile::NoteLoss() {
  const bool was_finite = std::exchange(loss_is_finite_, std::isfinite(progress_.loss()));
  if (loss_is_finite_ || !was_finite) return;
  if (progress_.loss_anomalies_size() == limits::kLossAnomalies) return;
  v1::LossAnomaly& anomaly = *progress_.add_loss_anomalies();
  anomaly.set_step(progress_.step());
  anomaly.set_loss(progress_.loss());
}

void ProgressFile::Warn(absl::string_view problem) {
  if (std::exchange(warned_, true)) return;
  const std::string line =
      line_number_.has_value() ? absl::StrCat("line ", *line_number_) : "a line";
  warning_ = absl::StrCat("MUSTER_PROGRESS: ", line, " ", problem);
}

std::string ProgressFile::NewBytes() {
  // The program may have replaced the file by a pipe or a device.
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) return "";
  struct stat status = {};
  std::string bytes;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
      (!uid_.has_value() || status.st_uid == *uid_)) {
    const auto size = static_cast<uint64_t>(status.st_size);
    if (size < offset_) {
      // The file was truncated.
      offset_ = 0;
      line_number_ = 1;
      partial_line_.clear();
      skipping_ = false;
    }
    if (size - offset_ > kReadBytes) {
      offset_ = size - kReadBytes;
      line_number_.reset();
      partial_line_.clear();
      skipping_ = true;
    }
    bytes.resize(size - offset_);
    const ssize_t n = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset_));
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    offset_ += bytes.size();
  }
  close(fd);
  return bytes;
}

void ProgressFile::Date(Time now) {
  if (progress_.step() == 0) return;
  if (progress_.phase().empty()) progress_.set_phase("training");
  if (!progress_.has_first_step_time()) *progress_.mutable_first_step_time() = ToProto(now.wall);
  if (!first_seen_.has_value() || progress_.step() < first_step_) {
    first_seen_ = now.steady;
    first_step_ = progress_.step();
  }
  progress_.clear_time_left();
  if (progress_.step() > first_step_ && progress_.total_steps() >= progress_.step()) {
    const double pace = absl::ToDoubleSeconds(now.steady - *first_seen_) /
                        static_cast<double>(progress_.step() - first_step_);
    const auto left = static_cast<double>(progress_.total_steps() - progress_.step());
    if (pace * left > kLongestEstimateSeconds) return;
    *progress_.mutable_time_left() = ToProto(absl::Seconds(pace * left));
  }
}

}  // namespace muster::agent
