#include "worker/mpi/proxy.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "common/files/owned_fd.h"
#include "worker/mpi/handover.h"

namespace muster::mpi {
namespace {

// The worker starts the ranks of a node one after the other: the rank may not listen yet.
constexpr int kConnectIntervalMs = 20;

int OpenSignals() {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    sigaddset(&mask, signal);
  }
  sigprocmask(SIG_BLOCK, &mask, nullptr);
  return signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
}

// A signal that has arrived; 0: none.
int ReadSignal(int signals) {
  signalfd_siginfo info = {};
  if (read(signals, &info, sizeof(info)) != sizeof(info)) return 0;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace

int RunProxy(const std::string& directory, uint32_t local_rank, const Environment& environment) {
  // If the daemon is killed, the rank has to learn it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int signals = OpenSignals();
  absl::StatusOr<OwnedFd> rank = ConnectToRank(directory, local_rank);
  while (!rank.ok()) {
    if (!absl::IsNotFound(rank.status()) && !absl::IsUnavailable(rank.status())) {
      std::fprintf(stderr, "muster-mpi: %s\n", std::string(rank.status().message()).c_str());
      return W_EXITCODE(EXIT_FAILURE, 0);
    }
    pollfd fd = {signals, POLLIN, 0};
    poll(&fd, 1, kConnectIntervalMs);
    if (const int signal = ReadSignal(signals); signal != 0) return signal;
    rank = ConnectToRank(directory, local_rank);
  }
  // A rank that has ended closes the connection.
  SendEnvironment(rank->get(), environment).IgnoreError();
  while (true) {
    pollfd fds[] = {{rank->get(), POLLIN, 0}, {signals, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return SIGKILL;
    if (fds[1].revents != 0 && ReadSignal(signals) != 0) send(rank->get(), &kEnd, 1, MSG_NOSIGNAL);
    if (fds[0].revents != 0) return ReceiveWaitStatus(rank->get()).value_or(SIGKILL);
  }
}

}  // namespace muster::mpi
