// Reads the index of a log by time (worker/shim/line_times.h) while its shim still writes it.
#ifndef MUSTER_WORKER_AGENT_LOGS_LINE_TIMES_READER_H_
#define MUSTER_WORKER_AGENT_LOGS_LINE_TIMES_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/shim/line_times.h"

namespace muster::agent {

// An index that does not exist (yet), or cannot be read, has no records. Not thread-safe.
class LineTimesReader {
 public:
  // `path` of the index.
  explicit LineTimesReader(std::string path) : path_(std::move(path)) {}
  ~LineTimesReader();
  LineTimesReader(const LineTimesReader&) = delete;
  LineTimesReader& operator=(const LineTimesReader&) = delete;

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
  int fd_ = -1;
  uint64_t last_used_ = 0;  // record that TimesOf used last: usually it continues there
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LOGS_LINE_TIMES_READER_H_
