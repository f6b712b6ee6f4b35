// The parent process of `muster local`'s daemons: starts them, and ends them all when the command
// line has exited, even if it was killed.
#ifndef MUSTER_CLI_LOCAL_GUARDIAN_H_
#define MUSTER_CLI_LOCAL_GUARDIAN_H_

#include <sys/types.h>

#include <string>

namespace muster::cli {

struct GuardianOptions {
  std::string
      directory;  // exists and belongs to this user; holds data, sockets, logs and the token
  std::string coordinator_binary;
  std::string worker_binary;
  std::string checkpoint_directory;  // empty: none that outlives the daemons
  uint32_t nodes = 1;
  uint32_t slots = 1;  // per node
  bool keep_directory = false;
};

// Messages that the guardian writes to its socket, one per line: "ready HOST:PORT" once the
// coordinator listens and the workers have been started; "failed TEXT" when a daemon could not be
// started or has ended.
inline constexpr char kReadyWord[] = "ready ";
inline constexpr char kFailedWord[] = "failed ";

// Runs the guardian; call it in a process that was forked from a single-threaded one. Never
// returns. When `socket` is closed at the other end or SIGTERM, SIGINT or SIGHUP arrives, ends all
// processes that it and its daemons have started and removes the directory. Ranks receive SIGTERM,
// and SIGKILL two seconds later.
[[noreturn]] void RunGuardian(const GuardianOptions& options, int socket);

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOCAL_GUARDIAN_H_
