// Writes files durably: data is on disk when Close returns.
#ifndef MUSTER_TRAINER_DATA_DURABLE_FILE_H_
#define MUSTER_TRAINER_DATA_DURABLE_FILE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/files/owned_fd.h"
#include "common/sha256.h"

namespace muster::data {

// A new file that is written sequentially and hashed. Methods return the error of errno with the
// path. Not thread-safe.
class DurableFile {
 public:
  // Replaces an existing file. Append calls `on_written` with the size of each piece that it has
  // written; pieces are small, so that even a slow disk makes visible progress.
  static absl::StatusOr<std::unique_ptr<DurableFile>> Create(
      const std::string& path, std::function<void(uint64_t bytes)> on_written = {});
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  absl::Status Append(absl::Span<const uint8_t> bytes);
  absl::Status Append(absl::string_view text);
  // Appends the SHA-256 of the contents, 64 hexadecimal digits. Append and Sha256Hex must not be
  // called afterwards.
  absl::Status AppendDigest();
  // Syncs the file to disk and closes it. Append must not be called afterwards.
  absl::Status Close();

  uint64_t size_bytes() const { return size_bytes_; }
  // SHA-256 of the contents. Call once, after Close.
  std::string Sha256Hex() { return hasher_.HexDigest(); }

 private:
  DurableFile(std::string path, int fd, std::function<void(uint64_t)> on_written);
  absl::Status Write(absl::Span<const uint8_t> bytes);
  // Waits until all written bytes are on disk.
  absl::Status FlushPages();

  const std::string path_;
  const std::function<void(uint64_t)> on_written_;
  OwnedFd fd_;
  uint64_t size_bytes_ = 0;
  uint64_t flushed_bytes_ = 0;
  Sha256 hasher_;
};

// Renames a complete file, so that it also has its new name after a crash.
absl::Status RenameDurably(const std::string& from, const std::string& to);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_DURABLE_FILE_H_
