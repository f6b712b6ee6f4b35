#include "trainer/checkpoint/generation_fence.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status.h"

namespace muster::train {
namespace {

// The fence file, locked during the lifetime of the object.
class LockedFile {
 public:
  explicit LockedFile(const std::string& path) : path_(path) {}
  ~LockedFile() {
    if (fd_ >= 0) close(fd_);
  }

  absl::Status Lock() {
    fd_ = open(path_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    if (fd_ < 0) return ErrnoStatus(errno, absl::StrCat("open ", path_));
    while (flock(fd_, LOCK_EX) != 0) {
      if (errno != EINTR) return ErrnoStatus(errno, absl::StrCat("lock ", path_));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Read() const {
    char buffer[512];
    const ssize_t size = pread(fd_, buffer, sizeof(buffer), 0);
    if (size < 0) return ErrnoStatus(errno, absl::StrCat("read ", path_));
    return std::string(absl::StripSuffix(absl::string_view(buffer, size), "\n"));
  }

  absl::Status Write(const std::string& text) const {
    if (ftruncate(fd_, 0) != 0 ||
        pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
        fsync(fd_) != 0) {
      return ErrnoStatus(errno, absl::StrCat("write ", path_));
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  int fd_ = -1;
};

// Parses the generation of "<job_id> <generation>"; 0 if the text is malformed or has another job's
// ID.
uint64_t GenerationOf(const std::string& text, const std::string& job_id) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  uint64_t generation = 0;
  if (words.size() != 2 || words[0] != job_id || !absl::SimpleAtoi(words[1], &generation)) return 0;
  return generation;
}

}  // namespace

GenerationFence::GenerationFence(std::string directory, std::string job_id, uint64_t generation)
    : directory_(std::move(directory)), job_id_(std::move(job_id)), generation_(generation) {}

absl::Status GenerationFence::Raise() const {
  LockedFile file(directory_ + "/GENERATION");
  RETURN_IF_ERROR(file.Lock());
  ASSIGN_OR_RETURN(const std::string holder, file.Read());
  const std::string self = absl::StrCat(job_id_, " ", generation_);
  if (holder == self) return absl::OkStatus();
  if (GenerationOf(holder, job_id_) > generation_) return StaleError(holder);
  return file.Write(self + "\n");
}

absl::Status GenerationFence::Publish(const std::function<absl::Status()>& publish) const {
  LockedFile file(directory_ + "/GENERATION");
  RETURN_IF_ERROR(file.Lock());
  ASSIGN_OR_RETURN(const std::string holder, file.Read());
  if (holder != absl::StrCat(job_id_, " ", generation_)) return StaleError(holder);
  return publish();
}

absl::Status GenerationFence::StaleError(const std::string& holder) const {
  const uint64_t newer = GenerationOf(holder, job_id_);
  if (newer > generation_) {
    return absl::AbortedError(absl::StrCat(directory_, " now belongs to generation ", newer,
                                           " of the job; generation ", generation_,
                                           " must not write to it"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(directory_, " was taken over by another job: '", holder, "'"));
}

}  // namespace muster::train
