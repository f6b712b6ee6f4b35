#include "trainer/data/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/replace_file.h"
#include "common/status.h"

namespace muster::data {

namespace {

constexpr size_t kPieceBytes = 256 << 10;
// Written bytes are flushed to disk this often, so that the final sync, which cannot report
// progress, is short.
constexpr uint64_t kFlushBytes = 8 << 20;

absl::Span<const uint8_t> BytesOf(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

DurableFile::DurableFile(std::string path, int fd, std::function<void(uint64_t)> on_written)
    : path_(std::move(path)), on_written_(std::move(on_written)), fd_(fd) {}

absl::StatusOr<std::unique_ptr<DurableFile>> DurableFile::Create(
    const std::string& path, std::function<void(uint64_t bytes)> on_written) {
  const int fd = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("create ", path));
  return std::unique_ptr<DurableFile>(new DurableFile(path, fd, std::move(on_written)));
}

absl::Status DurableFile::Append(absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const absl::Span<const uint8_t> piece = bytes.first(std::min(bytes.size(), kPieceBytes));
    hasher_.Update(piece.data(), piece.size());
    RETURN_IF_ERROR(Write(piece));
    bytes.remove_prefix(piece.size());
  }
  return absl::OkStatus();
}

absl::Status DurableFile::Write(absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t result = write(fd_.get(), bytes.data(), bytes.size());
    if (result < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, absl::StrCat("write ", path_));
    }
    const auto written = static_cast<size_t>(result);
    size_bytes_ += written;
    bytes.remove_prefix(written);
    if (size_bytes_ - flushed_bytes_ >= kFlushBytes) RETURN_IF_ERROR(FlushPages());
    if (on_written_) on_written_(written);
  }
  return absl::OkStatus();
}

absl::Status DurableFile::FlushPages() {
  constexpr unsigned kWaitForAll =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (sync_file_range(fd_.get(), 0, 0, kWaitForAll) != 0) {
    return ErrnoStatus(errno, absl::StrCat("sync ", path_));
  }
  flushed_bytes_ = size_bytes_;
  return absl::OkStatus();
}

absl::Status DurableFile::Append(absl::string_view text) { return Append(BytesOf(text)); }

absl::Status DurableFile::AppendDigest() { return Write(BytesOf(hasher_.HexDigest())); }

absl::Status DurableFile::Close() {
  if (fsync(fd_.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", path_));
  if (close(fd_.Release()) != 0) return ErrnoStatus(errno, absl::StrCat("close ", path_));
  return absl::OkStatus();
}

absl::Status RenameDurably(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) == 0 &&
      SyncDirectory(std::filesystem::path(to).parent_path())) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, absl::StrCat("rename ", from, " to ", to));
}

}  // namespace muster::data
