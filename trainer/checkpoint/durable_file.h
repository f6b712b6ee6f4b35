// Files that are on the disk when their writer says so.
#ifndef MUSTER_TRAINER_CHECKPOINT_DURABLE_FILE_H_
#define MUSTER_TRAINER_CHECKPOINT_DURABLE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/sha256.h"

namespace muster::train {

// A new file that is written from start to end, with its digest. Errors: as errno says, naming the
// path. Not thread-safe.
class DurableFile {
 public:
  // Replaces what is there.
  static absl::StatusOr<std::unique_ptr<DurableFile>> Create(const std::string& path);
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  absl::Status Append(absl::Span<const uint8_t> bytes);
  absl::Status Append(absl::string_view text);
  // Waits until the disk has it; nothing can be appended afterwards.
  absl::Status Close();

  uint64_t size_bytes() const { return size_bytes_; }
  // Of all that was appended; once, after Close.
  std::string Sha256Hex() { return hasher_.HexDigest(); }

 private:
  DurableFile(std::string path, int fd);

  const std::string path_;
  int fd_;
  uint64_t size_bytes_ = 0;
  Sha256 hasher_;
};

// Waits until the disk has the folder's entries, so that a name written or renamed there outlives a
// crash.
absl::Status SyncDirectory(const std::string& path);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_DURABLE_FILE_H_
