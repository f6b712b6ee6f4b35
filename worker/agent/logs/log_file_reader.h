// Reads a log file, and the times of its lines, while its shim still writes it.
#ifndef MUSTER_WORKER_AGENT_LOGS_LOG_FILE_READER_H_
#define MUSTER_WORKER_AGENT_LOGS_LOG_FILE_READER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/owned_fd.h"
#include "proto/muster/v1/cluster.pb.h"
#include "worker/shim/log/line_times.h"

namespace muster::agent {

// An index that does not exist (yet), or cannot be read, has no records. Not thread-safe.
class LineTimesReader {
 public:
  // `path` of the index.
  explicit LineTimesReader(std::string path) : path_(std::move(path)) {}

  bool empty() { return Count() == 0; }
  // Returns the lines that start at these offsets, which are ascending, with their times; lines
  // whose time is not known are left out.
  std::vector<shim::LineTime> TimesOf(const std::vector<uint64_t>& starts);
  // Offset in the log of the first output from this time on; absent if there is none.
  std::optional<uint64_t> OffsetSince(int64_t unix_micros);

 private:
  uint64_t Count();
  // Up to `max` records from record `index` on.
  std::vector<shim::LineTime> Read(uint64_t index, size_t max) const;
  // Number of leading records for which `before` is true; it is true for the first ones only.
  template <typename Before>
  uint64_t Partition(Before before);

  const std::string path_;
  OwnedFd file_;
  uint64_t last_used_ = 0;  // record that TimesOf used last: usually it continues there
};

struct LogPiece {
  uint64_t offset = 0;
  // Not 0: the reader had to skip to this offset, because the log's beginning was dropped.
  uint64_t dropped_bytes = 0;
  std::string data;
  // Each line that starts in `data` and whose time is known.
  std::vector<shim::LineTime> lines;
};

// The shim drops the beginning of a log that exceeds its limit; a reader that starts there
// continues at the oldest line that is kept. Not thread-safe.
class LogFileReader {
 public:
  // With `create`, a missing file counts as an empty one; otherwise NOT_FOUND.
  static absl::StatusOr<std::unique_ptr<LogFileReader>> Open(const std::string& path, bool create);

  uint64_t offset() const { return offset_; }
  void Seek(uint64_t offset) { offset_ = offset; }
  // Seeks to the start of the last `lines` lines.
  absl::Status SeekTail(uint64_t lines);
  // Seeks to the last `bytes` bytes, which may be within a line.
  absl::Status SeekLastBytes(uint64_t bytes);
  // Seeks forward to the first line that was begun at or after this time, or to the end if there is
  // none yet. Has no effect on a log whose times are not known.
  absl::Status SeekSince(int64_t unix_micros);
  // Returns the next bytes, at most `max_bytes`; empty at the current end.
  absl::StatusOr<LogPiece> Read(size_t max_bytes);

 private:
  LogFileReader(OwnedFd file, const std::string& path);
  absl::StatusOr<uint64_t> Size() const;
  absl::StatusOr<std::string> ReadAt(uint64_t offset, size_t max_bytes) const;
  // Seeks to the first line at or after `kept`, or to `kept` if it is in a very long line.
  absl::Status SkipDropped(uint64_t kept);

  const OwnedFd file_;
  LineTimesReader times_;
  uint64_t offset_ = 0;
  bool skip_unfinished_ = false;  // the rest of a line that starts before the offset is skipped
};

// The last limits::kLogTailBytes of the log, from the start of a line if there is one, with the
// times of at most limits::kLogTailLines lines, and with a notice of the output that the log lacks.
// Absent if the log is empty and lacks nothing, or cannot be read.
std::optional<v1::LogChunk> ReadLogTail(const std::string& path);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LOGS_LOG_FILE_READER_H_
