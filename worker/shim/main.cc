// muster-shim DIRECTORY: see protocol.h. Started by muster-worker only.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "worker/shim/fields.h"
#include "worker/shim/protocol.h"
#include "worker/shim/shim.h"

int main(int argc, char** argv) {
  namespace shim = muster::shim;
  if (argc != 2) {
    std::fprintf(stderr, "usage: muster-shim DIRECTORY\n");
    return 2;
  }
  // Close all other descriptors inherited from the worker.
  syscall(SYS_close_range, shim::kControlFd + 1, ~0U, 0);
  if (chdir(argv[1]) != 0) {
    std::fprintf(stderr, "muster-shim: %s: %s\n", argv[1], std::strerror(errno));
    return 1;
  }
  const std::optional<std::string> text = shim::ReadFile(shim::kInstructionsFile);
  std::optional<shim::Instructions> instructions;
  if (text.has_value()) instructions = shim::DecodeInstructions(*text);
  if (!instructions.has_value()) {
    std::fprintf(stderr, "muster-shim: invalid instructions in %s\n", argv[1]);
    return 1;
  }
  const bool has_worker = fcntl(shim::kControlFd, F_GETFD) >= 0;
  return shim::Shim(*std::move(instructions), has_worker ? shim::kControlFd : -1).Run();
}
