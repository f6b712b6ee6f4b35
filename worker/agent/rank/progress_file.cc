#include "worker/agent/rank/progress_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/proto_time.h"
#include "worker/agent/generation/exit_info.h"

namespace muster::agent {
namespace {

constexpr uint64_t kReadBytes = 256 << 10;
constexpr size_t kLineBytes = 4096;
constexpr size_t kPhaseBytes = 64;

bool Set(absl::string_view key, absl::string_view value, v1::Progress& progress) {
  uint64_t count = 0;
  const bool is_count = absl::SimpleAtoi(value, &count);
  double number = 0;
  const bool is_number = absl::SimpleAtod(value, &number);
  if (key == "step" && is_count) {
    progress.set_step(count);
  } else if (key == "total_steps" && is_count) {
    progress.set_total_steps(count);
  } else if (key == "samples" && is_count) {
    progress.set_samples(count);
  } else if (key == "epoch" && is_number) {
    progress.set_epoch(number);
  } else if (key == "loss" && is_number) {
    progress.set_loss(number);
  } else if (key == "learning_rate" && is_number) {
    progress.set_learning_rate(number);
  } else if (key == "images_per_second" && is_number) {
    progress.set_images_per_second(number);
  } else if (key == "test_accuracy" && is_number) {
    progress.set_test_accuracy(number);
  } else if (key == "phase" && !value.empty()) {
    progress.set_phase(ToUtf8(value.substr(0, kPhaseBytes)));
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool ApplyProgressLine(absl::string_view line, v1::Progress& progress) {
  bool any = false;
  for (const absl::string_view word :
       absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty())) {
    const size_t equals = word.find('=');
    if (equals == absl::string_view::npos) continue;
    any |= Set(word.substr(0, equals), word.substr(equals + 1), progress);
  }
  return any;
}

std::optional<v1::Progress> ProgressFile::Read(absl::Time now) {
  const std::string bytes = NewBytes();
  bool any = false;
  for (const absl::string_view piece : absl::StrSplit(bytes, absl::ByChar('\n'))) {
    const bool last = piece.data() + piece.size() == bytes.data() + bytes.size();
    if (!skipping_) partial_line_.append(piece.data(), piece.size());
    if (partial_line_.size() > kLineBytes) {
      skipping_ = true;
      partial_line_.clear();
    }
    if (last) break;  // incomplete line
    if (!skipping_) any |= ApplyProgressLine(partial_line_, progress_);
    partial_line_.clear();
    skipping_ = false;
  }
  if (!any) return std::nullopt;
  Date(now);
  return progress_;
}

std::string ProgressFile::NewBytes() {
  // The program may have replaced the file by a pipe or a device.
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) return "";
  struct stat status = {};
  std::string bytes;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    const auto size = static_cast<uint64_t>(status.st_size);
    if (size < offset_) {
      // The file was truncated.
      offset_ = 0;
      partial_line_.clear();
      skipping_ = false;
    }
    if (size - offset_ > kReadBytes) {
      offset_ = size - kReadBytes;
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

void ProgressFile::Date(absl::Time now) {
  if (progress_.step() == 0) return;
  if (progress_.phase().empty()) progress_.set_phase("training");
  if (!progress_.has_first_step_time()) *progress_.mutable_first_step_time() = ToProto(now);
  if (first_seen_ == absl::InfinitePast() || progress_.step() < first_step_) {
    first_seen_ = now;
    first_step_ = progress_.step();
  }
  progress_.clear_time_left();
  if (progress_.step() > first_step_ && progress_.total_steps() >= progress_.step()) {
    const double pace = absl::ToDoubleSeconds(now - first_seen_) /
                        static_cast<double>(progress_.step() - first_step_);
    const auto left = static_cast<double>(progress_.total_steps() - progress_.step());
    *progress_.mutable_time_left() = ToProto(absl::Seconds(pace * left));
  }
}

}  // namespace muster::agent
