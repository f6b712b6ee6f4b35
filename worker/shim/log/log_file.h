// Writes a rank's output to a log file.
#ifndef MUSTER_WORKER_SHIM_LOG_LOG_FILE_H_
#define MUSTER_WORKER_SHIM_LOG_LOG_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/files/owned_fd.h"
#include "worker/shim/log/line_times.h"
#include "worker/shim/log/lost_output.h"

namespace muster::shim {

// Writes bytes as they arrive, and the time of each line to an index beside the log (line_times.h).
// If the log cannot be written (disk full), bytes are dropped and recorded (lost_output.h): the
// rank must never block on its own log. The log continues at the start of a line, after a mark with
// the number of lines lost. A log without an index, because it cannot be written, has no times.
// Times are in microseconds since 1970.
//
// A log and its index together occupy at most `max_bytes`: beyond it, the oldest quarter of the log
// is dropped (line_times.h). Where the file system does not support this, later output is dropped
// instead and counted as lost. Not thread-safe.
class LogFile {
 public:
  static constexpr uint64_t kMinLimitBytes = 2 << 20;

  LogFile() = default;
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  // Opens the file for appending. `max_bytes` is 0 (unlimited) or at least kMinLimitBytes. False
  // with errno set.
  bool Open(const std::string& path, uint64_t max_bytes = 0);
  void Append(std::string_view data, int64_t unix_micros);
  // Adds a line, given without its newline, between two lines of the program: at once, or once the
  // program's unfinished line ends or WriteNotes is called.
  void AddNote(std::string_view line, int64_t unix_micros);
  bool has_waiting_notes() const { return !waiting_notes_.empty(); }
  // Writes waiting notes now; an unfinished line of the program then continues on a new line.
  void WriteNotes(int64_t unix_micros);
  // No output follows: writes waiting notes, and marks a loss at the end if there is space.
  void Finish(int64_t unix_micros);
  const LostOutput& lost() const { return lost_; }
  // Output that is dropped because of the limit: oldest or newest; empty below the limit.
  std::string_view drops() const {
    if (full_) return "newest";
    return dropped_bytes_ > 0 ? "oldest" : "";
  }

 private:
  void Write(std::string_view data, int64_t unix_micros);
  // Writes what fits; returns how much that is, with errno set if it is not all.
  size_t WriteBytes(std::string_view data);
  void Lose(std::string_view data, std::string_view reason);
  // The line that ends a gap in the log.
  std::string Mark() const;
  void ApplyLimit();

  OwnedFd file_;
  LineTimesWriter times_;
  uint64_t max_bytes_ = 0;
  uint64_t size_bytes_ = 0;
  uint64_t dropped_bytes_ = 0;  // at the beginning
  bool full_ = false;           // the limit is reached and the oldest part cannot be dropped
  bool at_line_start_ = true;   // the log is empty or ends with a newline
  std::string waiting_notes_;   // with newlines
  LostOutput lost_;
  LostOutputFile lost_file_;
  bool in_gap_ = false;       // the newest bytes were lost, and no mark has been written since
  bool gap_in_line_ = false;  // the newest lost bytes did not end a line
};

// The last lines of a stream. Of a long line, the first and the last bytes are kept.
class Tail {
 public:
  static constexpr size_t kLineEndBytes = 1984;  // of each end of a line

  Tail(size_t max_lines, size_t max_bytes) : max_lines_(max_lines), max_bytes_(max_bytes) {}
  void Append(std::string_view data);
  std::string Lines() const;

 private:
  // Adds a part of a line.
  void AppendToLine(std::string_view part);
  // Returns the part of the unfinished line that `data_` does not contain.
  std::string RestOfLine() const;

  size_t max_lines_;
  size_t max_bytes_;
  std::string data_;       // lines, and the first bytes of the unfinished one
  size_t line_bytes_ = 0;  // of the unfinished line
  std::string line_end_;   // its last bytes, without those in `data_`
};

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_LOG_LOG_FILE_H_
