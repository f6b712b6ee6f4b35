// Reads one stream of one rank in one generation, through restarts of coordinator and worker.
#ifndef MUSTER_CLI_LOGS_STREAM_READER_H_
#define MUSTER_CLI_LOGS_STREAM_READER_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cli/client.h"
#include "cli/follow/signals.h"
#include "cli/output/console.h"
#include "common/time/time.h"

namespace muster::cli {

// Reports once that the coordinator or a node is unreachable, however many streams notice it.
// Thread-safe.
class AwayNotice {
 public:
  explicit AwayNotice(Console& console) : console_(console) {}
  void Away(const absl::Status& status);
  void Back();
  // Prints a notice about missing parts of logs, once.
  void Missing(const std::string& notice);

 private:
  Console& console_;
  absl::Mutex mutex_;
  std::set<std::string> missing_ ABSL_GUARDED_BY(mutex_);
  bool away_ ABSL_GUARDED_BY(mutex_) = false;
};

struct StreamOptions {
  std::string job_id;
  uint64_t generation = 0;
  uint32_t rank = 0;
  bool is_stderr = false;
  // Whether the generation may have fewer ranks; the log then has no lines.
  bool may_lack_rank = false;
  uint64_t tail_lines = 0;  // 0: from the start
  std::optional<absl::Time> since;
  // Whether NextUntilExit will be called: NextUntilNow then does not retry.
  bool follow = false;
  // How long a log that cannot be reached is retried. While the generation runs, NextUntilExit does
  // not give up.
  absl::Duration patience;
};

// Returns each byte once and in order. Parts that are no longer available are skipped, with a
// notice: the beginning of a log that exceeded its limit, and of a log whose node is gone. Used by
// one thread.
class StreamReader {
 public:
  // The client, stopper and notice outlive the reader.
  StreamReader(ClusterClient& client, StreamOptions options, Stopper& stopper, AwayNotice& notice);

  // Requests the log, so that it arrives while others are read.
  void Start();
  // Closes the call; the next bytes are requested when they are needed.
  void Close() { call_.reset(); }
  // Returns the next bytes up to the log's current end, then false. Errors, also of later calls:
  // those of ReadLog, CANCELLED once stopped.
  absl::StatusOr<bool> NextUntilNow(v1::LogChunk& chunk);
  // Returns the next bytes, waiting for the rank to write more, until the rank has exited or the
  // generation is over; then false. May be used after NextUntilNow has returned false or an error.
  absl::StatusOr<bool> NextUntilExit(v1::LogChunk& chunk);

 private:
  absl::StatusOr<bool> Next(bool follow, v1::LogChunk& chunk);
  // Handles the end of a call: true, after a pause, if the log is to be requested again.
  absl::StatusOr<bool> Retry(const absl::Status& status);
  // Removes bytes that were already returned.
  void Trim(v1::LogChunk& chunk);
  absl::StatusOr<bool> GenerationIsOver();
  // Requests, at last, the end of the log that the coordinator kept; then fails.
  absl::StatusOr<bool> AcceptTailOrFail(const absl::Status& status);
  absl::Status Fail(const absl::Status& status) const;

  ClusterClient& client_;
  const bool follow_;
  const bool may_lack_rank_;
  const absl::Duration patience_;
  Stopper& stopper_;
  AwayNotice& notice_;
  v1::ReadLogRequest request_;
  std::unique_ptr<ClusterClient::LogCall> call_;
  bool ended_ = false;  // the rank has exited and its log is read
  absl::Duration pause_;
  SteadyTime give_up_;
};

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

#endif  // MUSTER_CLI_LOGS_STREAM_READER_H_
