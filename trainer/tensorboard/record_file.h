// Writes files in the TFRecord format. A record consists of its length (8 bytes, little-endian),
// the masked CRC32C of the length, the data, and the masked CRC32C of the data.
#ifndef MUSTER_TRAINER_TENSORBOARD_RECORD_FILE_H_
#define MUSTER_TRAINER_TENSORBOARD_RECORD_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster::train {

// CRC-32C (Castagnoli polynomial 0x1EDC6F41, reflected).
uint32_t Crc32c(absl::string_view data);
// CRC-32C, rotated and offset as in the format, which avoids problems with CRCs of data that
// contains CRCs.
uint32_t MaskedCrc32c(absl::string_view data);
// A record in file format.
std::string FramedRecord(absl::string_view data);

// A new file to which records are appended. Records are not buffered, so that concurrent readers
// see them at once and a killed writer leaves at most one truncated record at the end, which
// readers ignore. Methods return the error of errno with the path. Not thread-safe.
class RecordFile {
 public:
  // ALREADY_EXISTS if the file exists.
  static absl::StatusOr<std::unique_ptr<RecordFile>> Create(const std::string& path);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  absl::Status Append(absl::string_view data);
  // Syncs the file to disk.
  absl::Status Sync();

  const std::string& path() const { return path_; }

 private:
  RecordFile(std::string path, int fd);

  const std::string path_;
  const int fd_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_TENSORBOARD_RECORD_FILE_H_
