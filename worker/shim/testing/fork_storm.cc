// fork_storm PIPE: processes that are hard to kill, for tests of the shim. Ignores SIGTERM, leaves
// its session, adopts its own orphans, clears its environment, and then forks forever: a process
// that lives only long enough to fork the next one, a tree of sleeping processes, and pairs that
// restart each other. Each process holds PIPE open for writing, so its reader sees end of file when
// the last of them has ended.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace {

// Each of its processes is a child of the process that adopts orphans, and forks the next one
// before it exits.
[[noreturn]] void Comet() {
  while (true) {
    if (fork() != 0) _exit(0);
  }
}

[[noreturn]] void Sleepers() {
  for (int i = 0; i < 6; ++i) fork();
  while (true) pause();
}

// A parent that restarts its child whenever it ends.
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
    // Executed again, so that the environment is cleared from memory.
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
