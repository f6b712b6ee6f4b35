// Output that is missing from a log because its node could not store it. FILE.lost, beside the log
// FILE, records how much.
#ifndef MUSTER_WORKER_SHIM_LOG_LOST_OUTPUT_H_
#define MUSTER_WORKER_SHIM_LOG_LOST_OUTPUT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "common/files/owned_fd.h"

namespace muster::shim {

struct LostOutput {
  uint64_t lines = 0;  // that ended in the lost bytes
  uint64_t bytes = 0;
  uint64_t unmarked_lines = 0;  // since the last mark in the log; see LogFile
  std::string reason;           // of the newest loss, e.g. "No space left on device"

  // Adds the losses of another log of the same rank.
  void Add(const LostOutput& other);
  void AddBytes(std::string_view data, std::string_view why);
};

// "1 line", "1447 lines"; "part of a line" for 0.
std::string LinesText(uint64_t lines);

// "1447 lines (70903 bytes) could not be stored: No space left on device".
std::string LostText(const LostOutput& lost);

// The losses of the log; none if no file records any.
LostOutput ReadLostOutput(const std::string& log_path);

// Records the losses of a log in a file whose disk space is reserved while nothing is lost, so that
// it can be written on a full disk. Not thread-safe.
class LostOutputFile {
 public:
  LostOutputFile() = default;
  // Deletes a file without losses.
  ~LostOutputFile();
  LostOutputFile(const LostOutputFile&) = delete;
  LostOutputFile& operator=(const LostOutputFile&) = delete;

  // Without effect, as Write, if the file cannot be created. Returns what an earlier writer of the
  // log has recorded.
  LostOutput Open(const std::string& log_path);
  void Write(const LostOutput& lost);

 private:
  OwnedFd file_;
  bool empty_ = true;
  std::string path_;
};

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_LOG_LOST_OUTPUT_H_
