// Reads a log file by offset while its shim still writes it.
#ifndef MUSTER_WORKER_AGENT_LOGS_LOG_FILE_READER_H_
#define MUSTER_WORKER_AGENT_LOGS_LOG_FILE_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/agent/logs/line_times_reader.h"

namespace muster::agent {

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
  ~LogFileReader();
  LogFileReader(const LogFileReader&) = delete;
  LogFileReader& operator=(const LogFileReader&) = delete;

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
  LogFileReader(int fd, const std::string& path);
  absl::StatusOr<uint64_t> Size() const;
  absl::StatusOr<std::string> ReadAt(uint64_t offset, size_t max_bytes) const;
  // Seeks to the first line at or after `kept`, or to `kept` if it is in a very long line.
  absl::Status SkipDropped(uint64_t kept);

  const int fd_;
  LineTimesReader times_;
  uint64_t offset_ = 0;
  bool skip_unfinished_ = false;  // the rest of a line that starts before the offset is skipped
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LOGS_LOG_FILE_READER_H_
