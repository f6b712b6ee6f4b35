// The protocol between a worker and a rank's shim: files in the rank's directory, and lines on a
// socket.
//
// The worker starts `muster-shim DIRECTORY` in its own session, with one end of a socket pair as
// descriptor 3, and with the rank's secrets in its environment: they are written nowhere. The shim
// reads `instructions`, listens on `shim.sock` for later workers, and writes `exit` once no process
// of the rank's tree is left. The rank may run as another user, who can then neither write to this
// directory nor connect to `shim.sock`.
//
// Lines from the worker: `stop GRACE_MS`, `abort GRACE_MS` (a stop that begins with SIGABRT instead
// of Instructions::stop_signal), `kill`, `ping`, `note TEXT` (a line for the rank's stderr log, at
// most kMaxNoteBytes), `active` (the rank reported progress), `inspect`, `lease DEADLINE_MS`
// (replaces Instructions::lease_deadline_ms). Lines from the shim, sent when a worker connects and
// on each event: `started PID`, `exec-failed ERRNO TEXT`, `exited` (the exit record is on disk),
// `pong`, `silent MS` (once the rank's silence exceeds a quarter of hang_timeout_ms), `active` (the
// end of the silence), `inspected` (the answer to `inspect` is in `inspection`; without that file,
// the inspection failed), `memory BYTES` (of the rank's processes, when it has changed noticeably),
// `unkillable` (processes of the rank outlive SIGKILL), `log-limit STREAM PART` (the log of stdout
// or stderr exceeds log_max_bytes, and its oldest or newest output is dropped), `lost LINES BYTES
// REASON` (output that the logs lack because it could not be written; not sent at each change).
#ifndef MUSTER_WORKER_SHIM_PROTOCOL_H_
#define MUSTER_WORKER_SHIM_PROTOCOL_H_

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/shim/cgroup.h"
#include "worker/shim/credentials.h"
#include "worker/shim/log/lost_output.h"

namespace muster::shim {

inline constexpr char kInstructionsFile[] = "instructions";
inline constexpr char kSocketFile[] = "shim.sock";
inline constexpr char kExitFile[] = "exit";
inline constexpr char kInspectionFile[] = "inspection";
inline constexpr char kLogFile[] = "shim.log";  // the shim's own stderr
// Present if a companion (see companion.h) has been started: the shim does not reap its processes.
inline constexpr char kCompanionFile[] = "companion";
inline constexpr int kControlFd = 3;
inline constexpr size_t kMaxNoteBytes = 4096;
// Prefix of the variables in the shim's own environment that hold the rank's secrets.
inline constexpr char kSecretPrefix[] = "MUSTER_SECRET:";

struct Instructions {
  // User of the rank's processes; none: the shim's user.
  std::optional<Credentials> user;
  std::vector<std::string> command;
  std::vector<std::string> environment;  // NAME=value
  std::string workdir;
  std::string checkpoint_dir;  // created by the rank and checked; empty: none
  std::string stdout_path;
  std::string stderr_path;
  bool joined_output = false;  // both streams are one pipe, and go to the log of stdout
  uint64_t log_max_bytes = 0;  // limit of each log; 0: unlimited
  // Maximum time without a worker, if there is no lease deadline; 0: unlimited.
  int64_t failure_timeout_ms = 30'000;
  int64_t lease_deadline_ms = 0;  // see clock.h; 0: none
  int stop_signal = SIGTERM;
  int64_t grace_ms = 30'000;          // used when the shim stops its tree by itself
  int64_t kill_patience_ms = 15'000;  // time after SIGKILL until the rank counts as unkillable
  int64_t hang_timeout_ms = 0;        // 0: the rank's silence is not measured
  int64_t memory_interval_ms = 0;     // between samples of the rank's memory; 0: none
  uint64_t mark = 0;                  // see process_tree.h; 0: none, as from an earlier version
  std::string cgroup;                 // created for the rank and removed after it; empty: none
  CgroupLimits limits;                // limits of that group; the rank does not start without them
  std::vector<int> cpus;              // CPUs for the rank; empty: those of the shim
};

struct ExitRecord {
  int64_t pid = 0;
  int exit_code = 0;  // meaningful when signal is 0
  int signal = 0;
  bool out_of_memory = false;
  bool stopped = false;        // stopped by a worker or by a signal to the shim
  bool abandoned = false;      // no worker within the failure timeout
  bool lease_expired = false;  // ended at the lease deadline
  int exec_errno = 0;          // not 0: the program never ran; see exec_error
  std::string exec_error;
  std::string stderr_tail;  // or of the joined output
  LostOutput lost_output;   // could not be written to the log files
  int64_t time_unix_ms = 0;
};

std::string EncodeInstructions(const Instructions& instructions);
// Returns nothing if the text is damaged or has no command.
std::optional<Instructions> DecodeInstructions(const std::string& text);

std::string EncodeExitRecord(const ExitRecord& record);
std::optional<ExitRecord> DecodeExitRecord(const std::string& text);

// The findings of a shim about its silent rank, and the file in which its worker reads them.
struct Inspection {
  std::string state = "gone";  // running, sleeping, disk, stopped, zombie, gone
  double cpu_ratio = 0;        // CPU seconds per second of the rank's processes
  // Kind of the main thread's wait: futex, sleep, socket, poll, pipe, file; empty: not known.
  std::string waits_in;
  // A header line per thread ("main thread…", "thread…"), then its frames, indented and innermost
  // first. Printable ASCII; empty if stacks cannot be read.
  std::string stack;
};

std::string EncodeInspection(const Inspection& inspection);
std::optional<Inspection> DecodeInspection(const std::string& text);

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_PROTOCOL_H_
