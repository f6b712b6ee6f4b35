// fork_storm PIPE: processes that are hard to end, for tests of the shim. Ignores SIGTERM, leaves
// its session, adopts its own orphans, clears its environment, and then forks without end: a
// process that lives only long enough to fork the next, a tree of sleepers, and pairs that replace
// each other. Each holds PIPE open for writing: its reader sees the end when the last of them is
// gone.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace {

// Each of its processes is a child of whoever adopts orphans, and forks the next before it ends.
[[noreturn]] void Comet() {
  while (true) {
    if (fork() != 0) _exit(0);
  }
}

[[noreturn]] void Sleepers() {
  for (int i = 0; i < 6; ++i) fork();
  while (true) pause();
}

// A parent that starts its child again whenever that ends.
[[noreturn]] void Replacer() {
  while (true) {
    const pid_t child = fork();
    if (child == 0) {
      usleep(1000);
      _exit(0);
    }
    if (child > 0) waitpid(child, nullptr, 0);
  }
}

void InNewSession(void (*run)()) {
  if (fork() != 0) return;
  setsid();
  if (fork() != 0) _exit(0);
  run();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) {
    // Anew, so that nothing of the environment is left in memory.
    char* const arguments[] = {argv[0], argv[1], const_cast<char*>("go"), nullptr};
    char* const none[] = {nullptr};
    execve("/proc/self/exe", arguments, none);
    return 1;
  }
  if (argc != 3) return 2;
  const int alive = open(argv[1], O_WRONLY);
  if (alive < 0) return 1;
  signal(SIGTERM, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  InNewSession(Sleepers);
  InNewSession(Replacer);
  InNewSession(Comet);
  InNewSession(Comet);
  if (write(alive, "x", 1) != 1) return 1;
  while (true) waitpid(-1, nullptr, 0);
}
