// Bounds the calls that are open while the present contents of many logs are read.
#ifndef MUSTER_CLI_LOGS_OPEN_CALLS_H_
#define MUSTER_CLI_LOGS_OPEN_CALLS_H_

#include <cstddef>
#include <list>

#include "cli/logs/stream_reader.h"

namespace muster::cli {

// Closes the call that was used least recently when there are too many; its reader opens another
// one at its offset when it is read again. Not thread-safe.
class OpenCalls {
 public:
  static constexpr size_t kMax = 64;

  // `reader`, which outlives this object, is about to be read.
  void Use(StreamReader& reader) {
    readers_.remove(&reader);
    readers_.push_back(&reader);
    if (readers_.size() <= kMax) return;
    readers_.front()->Close();
    readers_.pop_front();
  }

 private:
  std::list<StreamReader*> readers_;  // least recently used first
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOGS_OPEN_CALLS_H_
