// The output of a rank: its pipes, its logs, and the reports on them to workers.
#ifndef MUSTER_WORKER_SHIM_RANK_RANK_OUTPUT_H_
#define MUSTER_WORKER_SHIM_RANK_RANK_OUTPUT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/files/owned_fd.h"
#include "worker/shim/log/log_file.h"
#include "worker/shim/log/lost_output.h"
#include "worker/shim/protocol.h"

namespace muster::shim {

class RankOutput {
 public:
  struct Events {
    // The rank has written something.
    std::function<void()> on_output;
    // A line for the workers.
    std::function<void(std::string_view line)> on_line;
  };

  // The instructions must outlive the output.
  RankOutput(const Instructions& instructions, Events events);
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  // Opens the logs. False with errno set.
  bool Open();
  // Takes the reading ends of the pipes, which may be none.
  void SetPipes(OwnedFd out, OwnedFd err);
  // Reads the available output, up to a limit. Ignores other descriptors.
  void OnReadable(int fd);
  // Adds a line of the worker to the log of stderr. Returns whether WriteNotes must be called in a
  // while, because the program's line is unfinished.
  bool AddNote(std::string_view line);
  void WriteNotes();
  // Reads the rest, and completes the logs.
  void Finish();

  // The lines for a worker that has just connected.
  std::string StateLines() const;
  // The losses of stdout and stderr together.
  LostOutput Lost() const;
  // The last lines of stderr, or, if they are joined, of the output.
  std::string LastLines() const { return tail_.Lines(); }

 private:
  struct Stream {
    const char* name;
    OwnedFd pipe = {};
    LogFile log = {};
    std::string_view drops = {};  // as last reported; see LogFile
    uint64_t lost_bytes = 0;

    // The line that reports dropped output; empty if there is none.
    std::string LimitLine() const;
  };

  void Read(Stream& stream, bool all);
  std::string LostLine() const;  // empty if nothing is lost

  const Instructions& instructions_;
  const Events events_;
  Stream out_{"stdout"};
  Stream err_{"stderr"};
  int64_t next_lost_report_ms_ = 0;
  Tail tail_;
};

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_RANK_RANK_OUTPUT_H_
