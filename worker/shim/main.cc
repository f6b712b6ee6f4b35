// muster-shim DIRECTORY runs a rank: see protocol.h. muster-shim exec … runs a command beside one:
// see companion.h. muster-shim as … runs a command as another user: see credentials.h. Started by
// muster-worker only.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/process/exit_code.h"
#include "worker/shim/companion.h"
#include "worker/shim/credentials.h"
#include "worker/shim/fields.h"
#include "worker/shim/program.h"
#include "worker/shim/protocol.h"
#include "worker/shim/rank/shim.h"

namespace muster::shim {
namespace {

// Reads the instructions in the rank's directory.
std::optional<Instructions> ReadInstructions(const char* directory) {
  const std::optional<std::string> text =
      ReadFile(std::string(directory) + "/" + kInstructionsFile);
  std::optional<Instructions> instructions;
  if (text.has_value()) instructions = DecodeInstructions(*text);
  if (!instructions.has_value()) {
    std::fprintf(stderr, "muster-shim: invalid instructions in %s\n", directory);
  }
  return instructions;
}

// Moves the rank's secrets from this process's environment to that of the rank.
void TakeSecrets(Instructions& instructions) {
  const size_t prefix = std::strlen(kSecretPrefix);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, kSecretPrefix, prefix) != 0) continue;
    instructions.environment.emplace_back(*entry + prefix);
    // Otherwise /proc would show it for as long as the shim runs.
    explicit_bzero(*entry, std::strlen(*entry));
  }
}

int RunRank(const char* directory) {
  if (chdir(directory) != 0) {
    std::fprintf(stderr, "muster-shim: %s: %s\n", directory, std::strerror(errno));
    return 1;
  }
  std::optional<Instructions> instructions = ReadInstructions(".");
  if (!instructions.has_value()) return 1;
  TakeSecrets(*instructions);
  const bool has_worker = fcntl(kControlFd, F_GETFD) >= 0;
  return Shim(*std::move(instructions), has_worker ? kControlFd : -1).Run();
}

int RunBeside(const char* directory, const char* term, std::vector<std::string> command) {
  std::optional<Instructions> rank = ReadInstructions(directory);
  if (!rank.has_value()) return 1;
  // From then on, the worker may no longer look for companions.
  if (access((std::string(directory) + "/" + kExitFile).c_str(), F_OK) == 0) {
    std::fprintf(stderr, "muster exec: the rank has exited\n");
    return kExitCannotExecute;
  }
  return Companion(*std::move(rank), term, std::move(command)).Run();
}

int RunAs(const char* user, const std::vector<std::string>& command) {
  const std::optional<Credentials> credentials = DecodeCredentials(user);
  const int error = credentials.has_value() ? DropPrivileges(*credentials) : EINVAL;
  if (error != 0) {
    std::fprintf(stderr, "cannot run as the user %s: %s\n", user, std::strerror(error));
    return kExitNotAllowed;
  }
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  ExecProgram(command, environment);
  const int failure = errno;
  std::fprintf(stderr, "%s: %s\n", command[0].c_str(), std::strerror(failure));
  return failure == ENOENT ? kExitNotFound : kExitCannotExecute;
}

}  // namespace
}  // namespace muster::shim

int main(int argc, char** argv) {
  namespace shim = muster::shim;
  // Close all other descriptors inherited from the worker.
  syscall(SYS_close_range, shim::kControlFd + 1, ~0U, 0);
  if (argc == 2) return shim::RunRank(argv[1]);
  if (argc >= 5 && std::strcmp(argv[1], shim::kCompanionWord) == 0) {
    return shim::RunBeside(argv[2], argv[3], {argv + 4, argv + argc});
  }
  if (argc >= 4 && std::strcmp(argv[1], shim::kRunAsWord) == 0) {
    return shim::RunAs(argv[2], {argv + 3, argv + argc});
  }
  std::fprintf(stderr,
               "usage: muster-shim DIRECTORY | exec DIRECTORY TERM COMMAND... | as CREDENTIALS "
               "COMMAND...\n");
  return 2;
}
