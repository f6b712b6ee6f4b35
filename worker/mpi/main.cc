// muster-mpi connects the ranks of a command job with Open MPI (`launcher: mpi` of a job's spec):
//
//   muster-mpi rank DIRECTORY INTERFACE SHARED_MEMORY COMMAND…   main process of a rank; see
//                                                                rank_process.h and NodeOptions
//   muster-mpi remote-shell HOST ARGUMENT…                       started by mpirun in place of ssh
//   muster-mpi proxy                                             started by Open MPI in place of a
//                                                                rank's program
//
// The first mode is started by muster-worker only, and starts the others.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/process/environment_value.h"
#include "common/process/exit_code.h"
#include "common/process/program_folder.h"
#include "common/process/stop_signal.h"
#include "common/status.h"
#include "nlohmann/json.hpp"
#include "worker/mpi/daemon_exchange.h"
#include "worker/mpi/open_mpi.h"
#include "worker/mpi/proxy.h"
#include "worker/mpi/rank_keys.h"
#include "worker/mpi/rank_process.h"
#include "worker/shim/fields.h"

namespace muster::mpi {
namespace {

// Time for the worker to stop a rank whose generation has ended.
constexpr unsigned kStopSeconds = 10;

Environment OwnEnvironment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  return environment;
}

absl::StatusOr<uint32_t> Number(const Environment& environment, const char* name) {
  uint32_t number = 0;
  if (!absl::SimpleAtoi(EnvironmentValue(environment, name), &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is not a number; muster-mpi must be started by muster-worker"));
  }
  return number;
}

// Ends this process like one with that status of waitpid, without a core file of its own.
[[noreturn]] void EndLike(int exit_code, int signal) {
  std::fflush(nullptr);
  if (signal == 0) _exit(exit_code);
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  ::signal(signal, SIG_DFL);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, signal);
  kill(getpid(), signal);
  sigprocmask(SIG_UNBLOCK, &mask, nullptr);
  _exit(kExitSignal + signal);  // a signal that is ignored by default
}

// Writes `message` to the file `path` (TORCHELASTIC_ERROR_FILE of the rank), from which the worker
// reads the message of a failure. Does nothing for an empty path; errors are ignored.
void WriteErrorFile(const std::string& path, absl::string_view message) {
  if (path.empty()) return;
  nlohmann::json file;
  // As PyTorch's @record decorator writes it.
  file["message"]["message"] = std::string(message);
  const std::string text = file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  shim::WriteFileAtomically(path, text, /*sync=*/false);
}

[[noreturn]] void EndRank(const Environment& environment, const RankEnd& end) {
  if (!end.error.empty()) {
    std::fprintf(stderr, "muster-mpi: %s\n", end.error.c_str());
    WriteErrorFile(std::string(EnvironmentValue(environment, "TORCHELASTIC_ERROR_FILE")),
                   end.error);
  }
  EndLike(end.exit_code, end.signal);
}

absl::Status MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("create ", path));
}

absl::Status MakeDirectories(const NodeOptions& node) {
  RETURN_IF_ERROR(MakeDirectory(node.directory));
  if (node.shared_memory.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(MakeDirectory(std::filesystem::path(node.shared_memory).parent_path().string()));
  return MakeDirectory(node.shared_memory);
}

// Called when no process of the node uses it. The worker removes the rest of killed processes.
void RemoveSharedMemory(const std::string& path) {
  if (path.empty()) return;
  std::error_code error;
  std::filesystem::remove_all(path, error);
  rmdir(std::filesystem::path(path).parent_path().c_str());  // fails unless it is empty
}

KeyFunctions FunctionsOf(RankKeys& keys) {
  return {
      .put = [&keys](const std::string& key,
                     const std::string& value) { return keys.Put(key, value); },
      .get = [&keys](const std::string& key) { return keys.Get(key); },
  };
}

absl::StatusOr<OpenMpiDaemon> DaemonOf(const RankOptions& options) {
  FirstRank rank;
  rank.directory = options.node.directory;
  const Environment& environment = options.environment;
  ASSIGN_OR_RETURN(rank.node_rank, Number(environment, "NODE_RANK"));
  ASSIGN_OR_RETURN(rank.node_count, Number(environment, "GROUP_WORLD_SIZE"));
  ASSIGN_OR_RETURN(rank.ranks_of_node, Number(environment, "LOCAL_WORLD_SIZE"));
  ASSIGN_OR_RETURN(rank.world_size, Number(environment, "WORLD_SIZE"));
  ASSIGN_OR_RETURN(const std::unique_ptr<RankKeys> keys, RankKeys::Open());
  return AwaitDaemon(rank, FunctionsOf(*keys));
}

absl::StatusOr<RankEnd> RunRank(RankOptions options) {
  ASSIGN_OR_RETURN(options.local_rank, Number(options.environment, "LOCAL_RANK"));
  ASSIGN_OR_RETURN(const uint32_t ranks_of_node, Number(options.environment, "LOCAL_WORLD_SIZE"));
  options.oversubscribed = ranks_of_node > sysconf(_SC_NPROCESSORS_ONLN);
  options.stop_signal =
      FindStopSignal(std::string(EnvironmentValue(options.environment, "MUSTER_STOP_SIGNAL")))
          .number;
  RETURN_IF_ERROR(MakeDirectories(options.node));
  ASSIGN_OR_RETURN(const std::unique_ptr<RankProcess> process, RankProcess::Create(options));
  if (options.local_rank != 0) return process->Run(std::nullopt);
  ASSIGN_OR_RETURN(const OpenMpiDaemon daemon, DaemonOf(options));
  RankEnd end = process->Run(daemon);
  if (end.exit_code == 0 && end.signal == 0) RemoveSharedMemory(options.node.shared_memory);
  return end;
}

[[noreturn]] void RankMain(const std::vector<std::string>& arguments) {
  // By which the shim recognizes it, also if a bundle's loader has started it.
  prctl(PR_SET_NAME, kProgram);
  RankOptions options;
  options.environment = OwnEnvironment();
  options.node = {ProgramFolder().string(), arguments[0], arguments[1], arguments[2]};
  options.command.assign(arguments.begin() + 3, arguments.end());
  const Environment environment = options.environment;
  const absl::StatusOr<RankEnd> end = RunRank(std::move(options));
  if (end.ok()) EndRank(environment, *end);
  // The generation has ended: the worker's stop signal follows.
  if (absl::IsAborted(end.status())) sleep(kStopSeconds);
  EndRank(environment, {.exit_code = kExitFailure, .error = std::string(end.status().message())});
}

int RemoteShellMain(const std::vector<std::string>& arguments) {
  const auto keys = RankKeys::Open();
  absl::Status status = keys.status();
  if (keys.ok()) {
    status = SendDaemonCommand(arguments[0], {arguments.begin() + 1, arguments.end()},
                               FunctionsOf(**keys));
  }
  if (status.ok()) return kExitSuccess;
  std::fprintf(stderr, "muster-mpi: %s\n", std::string(status.message()).c_str());
  return kExitFailure;
}

[[noreturn]] void ProxyMain() {
  const Environment environment = OwnEnvironment();
  const std::string directory(EnvironmentValue(environment, kDirectoryVariable));
  const absl::StatusOr<uint32_t> local_rank = Number(environment, "OMPI_COMM_WORLD_LOCAL_RANK");
  if (!local_rank.ok() || directory.empty()) {
    std::fprintf(stderr, "muster-mpi: proxy must be started by Open MPI\n");
    EndLike(kExitUsage, 0);
  }
  const int status = RunProxy(directory, *local_rank, environment);
  WIFSIGNALED(status) ? EndLike(0, WTERMSIG(status)) : EndLike(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace muster::mpi

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string mode = arguments.empty() ? "" : arguments[0];
  if (mode == "rank" && arguments.size() >= 5) {
    muster::mpi::RankMain({arguments.begin() + 1, arguments.end()});
  }
  if (mode == muster::mpi::kRemoteShellMode && arguments.size() >= 3) {
    return muster::mpi::RemoteShellMain({arguments.begin() + 1, arguments.end()});
  }
  if (mode == muster::mpi::kProxyMode && arguments.size() == 1) muster::mpi::ProxyMain();
  std::fprintf(stderr,
               "usage: muster-mpi rank DIRECTORY INTERFACE SHARED_MEMORY COMMAND...\n"
               "       muster-mpi remote-shell HOST ARGUMENT...\n"
               "       muster-mpi proxy\n");
  return muster::kExitUsage;
}
