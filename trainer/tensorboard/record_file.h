// Files of records in the TFRecord format: each record is its length (8 bytes, little-endian), the
// masked CRC32C of those bytes, the data, and the masked CRC32C of the data.
#ifndef MUSTER_TRAINER_TENSORBOARD_RECORD_FILE_H_
#define MUSTER_TRAINER_TENSORBOARD_RECORD_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster::train {

// The Castagnoli CRC (polynomial 0x1EDC6F41, reflected).
uint32_t Crc32c(absl::string_view data);
// Turned and shifted, as the format stores it, so that a CRC over data that holds CRCs stays one.
uint32_t MaskedCrc32c(absl::string_view data);
// A record as it stands in a file.
std::string FramedRecord(absl::string_view data);

// A new file to which records are appended. Each is handed to the system at once and whole: whoever
// reads along sees it, and a writer that is killed leaves at most a record cut off at the end,
// which readers leave out. Errors: as errno says, naming the path. Not thread-safe.
class RecordFile {
 public:
  // ALREADY_EXISTS for a path that is taken.
  static absl::StatusOr<std::unique_ptr<RecordFile>> Create(const std::string& path);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  absl::Status Append(absl::string_view data);
  // Waits until the disk has all of it.
  absl::Status Sync();

  const std::string& path() const { return path_; }

 private:
  RecordFile(std::string path, int fd);

  const std::string path_;
  const int fd_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_TENSORBOARD_RECORD_FILE_H_
