#include "worker/data/unpack.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/sha256.h"
#include "common/status.h"
#include "worker/data/idx.h"
#include "worker/data/mapped_file.h"

namespace muster::data {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

absl::Status WriteAll(int fd, absl::Span<const uint8_t> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, absl::StrCat("write ", path));
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// Inflates `source` into fd, as many bytes as the IDX header at its start says.
absl::Status Inflate(const std::string& source, int fd, const std::string& target) {
  gzFile file = gzopen(source.c_str(), "rb");
  if (file == nullptr) return ErrnoStatus(errno, absl::StrCat("open ", source));
  absl::Cleanup close_file = [file] { gzclose_r(file); };
  gzbuffer(file, kChunkBytes / 4);

  std::vector<uint8_t> chunk(kChunkBytes);
  IdxHeader header;
  size_t total_bytes = 0;
  while (true) {
    const int count = gzread(file, chunk.data(), static_cast<unsigned>(chunk.size()));
    int code = Z_OK;
    const char* reason = gzerror(file, &code);
    // A file that ends early is reported by zlib as an error only after the bytes that it did have.
    const bool truncated = code == Z_BUF_ERROR;
    if (count < 0 && !truncated) {
      if (code == Z_ERRNO) return ErrnoStatus(errno, absl::StrCat("read ", source));
      return absl::DataLossError(
          absl::StrCat(source, " is damaged after ", total_bytes, " unpacked bytes: ", reason));
    }
    const absl::Span<const uint8_t> bytes(chunk.data(), static_cast<size_t>(std::max(count, 0)));
    if (total_bytes == 0) {
      ASSIGN_OR_RETURN(header, ParseIdxHeader(bytes, source));
    }
    total_bytes += bytes.size();
    if (total_bytes > header.file_bytes) {
      return absl::DataLossError(absl::StrCat(source, " holds more bytes than its header says"));
    }
    RETURN_IF_ERROR(WriteAll(fd, bytes, target));
    if (bytes.size() < chunk.size()) break;
  }
  if (total_bytes < header.file_bytes) {
    return absl::DataLossError(
        absl::StrCat(source, " is truncated: ", header.file_bytes - total_bytes, " of ",
                     header.file_bytes, " unpacked bytes are missing"));
  }
  return absl::OkStatus();
}

bool IsComplete(const std::string& target) {
  auto file = MappedFile::Open(target);
  if (!file.ok()) return false;
  auto header = ParseIdxHeader(file->bytes(), target);
  return header.ok() && header->file_bytes == file->bytes().size();
}

}  // namespace

absl::StatusOr<std::string> CachedName(const std::string& source, const std::string& cache_dir) {
  const std::unique_ptr<char, void (*)(void*)> resolved(realpath(source.c_str(), nullptr), &free);
  struct stat info;
  if (resolved == nullptr || stat(resolved.get(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("open ", source));
  }
  const std::string key = absl::StrCat(resolved.get(), "\n", info.st_size, "\n",
                                       info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec);
  return absl::StrCat(cache_dir, "/idx-", Sha256Hex(key).substr(0, 32));
}

absl::Status UnpackIdx(const std::string& source, const std::string& target) {
  std::error_code ignored;  // opening the lock tells what is wrong
  std::filesystem::create_directories(std::filesystem::path(target).parent_path(), ignored);
  const std::string lock_path = target + ".lock";
  const int lock = open(lock_path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (lock < 0) return ErrnoStatus(errno, absl::StrCat("create ", lock_path));
  absl::Cleanup unlock = [lock] { close(lock); };
  while (flock(lock, LOCK_EX) != 0) {
    if (errno != EINTR) return ErrnoStatus(errno, absl::StrCat("lock ", lock_path));
  }
  if (IsComplete(target)) return absl::OkStatus();

  // One name, not one per process: the lock is held, and what a killed process left is overwritten.
  const std::string temporary = target + ".part";
  const int fd = open(temporary.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("create ", temporary));
  absl::Status status = Inflate(source, fd, temporary);
  if (close(fd) != 0 && status.ok()) status = ErrnoStatus(errno, absl::StrCat("write ", temporary));
  if (status.ok() && rename(temporary.c_str(), target.c_str()) != 0) {
    status = ErrnoStatus(errno, absl::StrCat("rename ", temporary));
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

}  // namespace muster::data
