#include "trainer/checkpoint/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::train {

DurableFile::DurableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

absl::StatusOr<std::unique_ptr<DurableFile>> DurableFile::Create(const std::string& path) {
  const int fd = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("create ", path));
  return std::unique_ptr<DurableFile>(new DurableFile(path, fd));
}

DurableFile::~DurableFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status DurableFile::Append(absl::Span<const uint8_t> bytes) {
  hasher_.Update(bytes.data(), bytes.size());
  size_bytes_ += bytes.size();
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, absl::StrCat("write ", path_));
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status DurableFile::Append(absl::string_view text) {
  return Append(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

absl::Status DurableFile::Close() {
  const int fd = std::exchange(fd_, -1);
  absl::Status status;
  if (fsync(fd) != 0) status = ErrnoStatus(errno, absl::StrCat("sync ", path_));
  if (close(fd) != 0 && status.ok()) status = ErrnoStatus(errno, absl::StrCat("close ", path_));
  return status;
}

absl::Status SyncDirectory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
  absl::Status status;
  if (fsync(fd) != 0) status = ErrnoStatus(errno, absl::StrCat("sync ", path));
  close(fd);
  return status;
}

}  // namespace muster::train
