// Writes a rank's output to a log file.
#ifndef MUSTER_WORKER_SHIM_LOG_FILE_H_
#define MUSTER_WORKER_SHIM_LOG_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster::shim {

// Writes whole lines, each in one write; an incomplete line is held back until it is complete,
// exceeds kMaxLineBytes, or Flush is called. If the file cannot be written (disk full), bytes are
// dropped and counted: the rank must never block on its own log. Not thread-safe.
class LogFile {
 public:
  static constexpr size_t kMaxLineBytes = 2 << 20;

  LogFile() = default;
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  // Opens the file for appending. False with errno set.
  bool Open(const std::string& path);
  void Append(std::string_view data);
  // Writes a separate line, given without its newline, without splitting a line that is held back.
  void AppendLine(std::string_view line);
  void Flush();
  uint64_t lost_bytes() const { return lost_bytes_; }

 private:
  void Write(std::string_view data);

  int fd_ = -1;
  std::string partial_line_;
  uint64_t lost_bytes_ = 0;
};

// The last lines of a stream.
class Tail {
 public:
  Tail(size_t max_lines, size_t max_bytes) : max_lines_(max_lines), max_bytes_(max_bytes) {}
  void Append(std::string_view data);
  std::string Lines() const;

 private:
  size_t max_lines_;
  size_t max_bytes_;
  std::string data_;
};

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_LOG_FILE_H_
