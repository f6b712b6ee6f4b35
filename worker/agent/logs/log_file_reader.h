// Reads a log file by offset while its shim still writes it.
#ifndef MUSTER_WORKER_AGENT_LOGS_LOG_FILE_READER_H_
#define MUSTER_WORKER_AGENT_LOGS_LOG_FILE_READER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::agent {

// Not thread-safe.
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
  // Returns the next bytes, at most `max_bytes`; empty at the current end.
  absl::StatusOr<std::string> Read(size_t max_bytes);

 private:
  explicit LogFileReader(int fd) : fd_(fd) {}

  const int fd_;
  uint64_t offset_ = 0;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LOGS_LOG_FILE_READER_H_
