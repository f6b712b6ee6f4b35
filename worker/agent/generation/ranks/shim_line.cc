#include "worker/agent/generation/ranks/shim_line.h"

#include <sys/socket.h>

#include <cerrno>
#include <limits>

#include "absl/strings/str_cat.h"

namespace muster::agent {
namespace {

// Limit of the lines that wait for a full socket: directives to stop are short and few.
constexpr size_t kMaxUnsentBytes = 4096;

}  // namespace

void ShimLine::Open(int socket) {
  absl::MutexLock lock(&mutex_);
  socket_ = socket;
}

void ShimLine::Close() {
  absl::MutexLock lock(&mutex_);
  socket_ = -1;
  output_.clear();
}

bool ShimLine::Send(const std::string& line, bool essential) {
  absl::MutexLock lock(&mutex_);
  SendLocked(line, essential);
  return !output_.empty();
}

bool ShimLine::Flush() {
  absl::MutexLock lock(&mutex_);
  FlushLocked();
  return !output_.empty();
}

void ShimLine::SetLeaseDeadline(int64_t boot_ms) {
  absl::MutexLock lock(&mutex_);
  const int64_t until = boot_ms == 0 ? std::numeric_limits<int64_t>::max() : boot_ms;
  if (until <= lease_deadline_ms_) return;
  lease_deadline_ms_ = until;
  SendLocked(absl::StrCat("lease ", boot_ms), false);
}

void ShimLine::SendLocked(const std::string& line, bool essential) {
  FlushLocked();
  if (socket_ < 0 || (!output_.empty() && !essential)) return;
  if (output_.size() > kMaxUnsentBytes) return;
  absl::StrAppend(&output_, line, "\n");
  FlushLocked();
  // Only a part that was already sent obliges the worker to send the rest of the line.
  if (!essential && output_.size() == line.size() + 1) output_.clear();
}

void ShimLine::FlushLocked() {
  while (socket_ >= 0 && !output_.empty()) {
    const ssize_t n = send(socket_, output_.data(), output_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0) return output_.clear();  // the reader notices the end of the connection
    output_.erase(0, static_cast<size_t>(n));
  }
}

}  // namespace muster::agent
