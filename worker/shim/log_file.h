// A rank's output on its way from a pipe to a file.
#ifndef MUSTER_WORKER_SHIM_LOG_FILE_H_
#define MUSTER_WORKER_SHIM_LOG_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster::shim {

// Whole lines go to the file, each in one write; the rest of a line is held back until it is
// complete, grows beyond kMaxLineBytes, or Flush is called. When the file cannot be written (a full
// disk) bytes are dropped and counted: the rank must never block on its own log. Not thread-safe.
class LogFile {
 public:
  static constexpr size_t kMaxLineBytes = 2 << 20;

  LogFile() = default;
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  // Appends to what an earlier process left there. False with errno set.
  bool Open(const std::string& path);
  void Append(std::string_view data);
  // A line of another's, without its newline. What is held back stays so: neither tears the other.
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
