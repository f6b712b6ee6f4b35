// The parent of `muster local`'s daemons: starts them, and leaves nothing of them when the command
// line has gone, however it went.
#ifndef MUSTER_CLI_LOCAL_GUARDIAN_H_
#define MUSTER_CLI_LOCAL_GUARDIAN_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace muster::cli {

struct GuardianOptions {
  std::string directory;  // exists, is this user's own; for data, sockets, logs and the token
  std::string coordinator_binary;
  std::string worker_binary;
  uint32_t nodes = 1;
  uint32_t slots = 1;  // of each node
  bool keep_directory = false;
};

// What it writes to its socket, a line each: "ready HOST:PORT" once the coordinator listens and the
// workers have been started; "failed TEXT" when a daemon could not be started or has ended.
inline constexpr char kReadyWord[] = "ready ";
inline constexpr char kFailedWord[] = "failed ";

// Runs in a process of its own, forked for it from one that has a single thread; never returns.
// Ends everything that it and its daemons ever started, and removes the directory, when `socket` is
// closed at the other end or SIGTERM, SIGINT or SIGHUP comes. Ranks get SIGTERM, and SIGKILL two
// seconds later.
[[noreturn]] void RunGuardian(const GuardianOptions& options, int socket);

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOCAL_GUARDIAN_H_
