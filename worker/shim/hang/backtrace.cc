#include "worker/shim/hang/backtrace.h"

#include <dirent.h>
#include <fcntl.h>
#include <libunwind-ptrace.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "common/files/owned_fd.h"
#include "worker/shim/clock.h"
#include "worker/shim/hang/symbols.h"

namespace muster::shim {
namespace {

constexpr size_t kFrames = 64;
constexpr size_t kThreads = 512;
// How long a thread may take until it stops; one in uninterruptible sleep does not.
constexpr int64_t kStopMs = 200;
// How long a thread is kept stopped. Unwinding takes a few milliseconds.
constexpr int64_t kUnwindMs = 80;
constexpr int kAttempts = 3;

// How long the tracing of all threads may take.
constexpr unsigned kTracingSeconds = 2;

using Stack = std::vector<uint64_t>;

std::vector<pid_t> ThreadsOf(pid_t pid) {
  std::vector<pid_t> threads;
  DIR* const tasks = opendir(("/proc/" + std::to_string(pid) + "/task").c_str());
  if (tasks == nullptr) return threads;
  while (const dirent* entry = readdir(tasks)) {
    const pid_t thread = std::atoi(entry->d_name);
    if (thread > 0 && threads.size() < kThreads) threads.push_back(thread);
  }
  closedir(tasks);
  // The main thread first; the others in the order in which they were started, mostly.
  std::sort(threads.begin(), threads.end(), [pid](pid_t a, pid_t b) {
    return std::make_pair(a != pid, a) < std::make_pair(b != pid, b);
  });
  return threads;
}

// Traces a thread while in scope. Its end lets the thread continue, or, if the thread had been
// stopped by a signal, leaves it in that state.
class Tracer {
 public:
  explicit Tracer(pid_t thread) : thread_(thread) {
    if (ptrace(PTRACE_SEIZE, thread_, nullptr, nullptr) != 0) return;
    ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr);
    const int64_t deadline = MonotonicMs() + kStopMs;
    while (!stopped_ && MonotonicMs() < deadline) {
      int status = 0;
      const pid_t found = waitpid(thread_, &status, __WALL | WNOHANG);
      if (found < 0) return;
      stopped_ = found == thread_ && WIFSTOPPED(status);
      if (stopped_) signal_ = PendingSignal(status);
      if (found == 0) {
        const timespec pause = {0, 100'000};
        nanosleep(&pause, nullptr);
      }
    }
  }
  // The kernel detaches a thread that has not stopped in time when the tracing process ends.
  ~Tracer() {
    if (stopped_) ptrace(PTRACE_DETACH, thread_, nullptr, signal_);
  }
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  bool stopped() const { return stopped_; }

 private:
  // A signal that arrived at the same time has to be delivered.
  static intptr_t PendingSignal(int status) {
    const bool is_event = (status >> 16) != 0;
    return is_event ? 0 : WSTOPSIG(status);
  }

  const pid_t thread_;
  bool stopped_ = false;
  intptr_t signal_ = 0;
};

// Appends the frames of a stopped thread; false if there was not enough time for all of them.
bool Unwind(pid_t thread, unw_addr_space_t space, Stack& stack) {
  const Tracer tracer(thread);
  if (!tracer.stopped()) return false;
  const int64_t deadline = MonotonicMs() + kUnwindMs;
  void* const context = _UPT_create(thread);
  if (context == nullptr) return false;
  bool complete = true;
  unw_cursor_t cursor;
  if (unw_init_remote(&cursor, space, context) == 0) {
    do {
      unw_word_t address = 0;
      if (unw_get_reg(&cursor, UNW_REG_IP, &address) != 0 || address == 0) break;
      stack.push_back(address);
      complete = MonotonicMs() < deadline;
    } while (complete && stack.size() < kFrames && unw_step(&cursor) > 0);
  }
  _UPT_destroy(context);
  return complete;
}

// The longest of several attempts: on a busy machine a thread may not stop in time, or this process
// may be interrupted. libunwind remembers what it has found, so that later attempts are faster.
Stack StackOf(pid_t thread, unw_addr_space_t space) {
  Stack longest;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Stack stack;
    const bool complete = Unwind(thread, space, stack);
    if (stack.size() > longest.size()) longest = std::move(stack);
    if (complete) break;
  }
  return longest;
}

// Runs in the tracing process. Writes the threads' numbers, each with the number of its frames and
// their addresses, as words.
void WriteStacks(pid_t pid, int fd) {
  const unw_addr_space_t space = unw_create_addr_space(&_UPT_accessors, 0);
  if (space == nullptr) return;
  unw_set_caching_policy(space, UNW_CACHE_GLOBAL);
  for (const pid_t thread : ThreadsOf(pid)) {
    const Stack stack = StackOf(thread, space);
    Stack words = {static_cast<uint64_t>(thread), stack.size()};
    words.insert(words.end(), stack.begin(), stack.end());
    const size_t size = words.size() * sizeof(uint64_t);
    // At most the size that pipes write at once.
    if (write(fd, words.data(), size) != static_cast<ssize_t>(size)) return;
  }
}

std::vector<std::pair<pid_t, Stack>> ReadStacks(int fd) {
  Stack words;
  uint64_t buffer[512];
  ssize_t n = 0;
  std::string bytes;
  while ((n = read(fd, buffer, sizeof(buffer))) > 0 || (n < 0 && errno == EINTR)) {
    if (n > 0) bytes.append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(n));
  }
  words.resize(bytes.size() / sizeof(uint64_t));
  std::memcpy(words.data(), bytes.data(), words.size() * sizeof(uint64_t));
  std::vector<std::pair<pid_t, Stack>> stacks;
  for (size_t at = 0; at + 2 <= words.size();) {
    const pid_t thread = static_cast<pid_t>(words[at]);
    const size_t count = words[at + 1];
    at += 2;
    if (count > words.size() - at) break;
    const auto begin = words.begin() + static_cast<ptrdiff_t>(at);
    if (count > 0) stacks.emplace_back(thread, Stack(begin, begin + static_cast<ptrdiff_t>(count)));
    at += count;
  }
  return stacks;
}

std::vector<std::pair<pid_t, Stack>> CollectStacks(pid_t pid) {
  OwnedFd reader;
  OwnedFd writer;
  if (!OpenPipe(reader, writer)) return {};
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(kTracingSeconds);
    if (getppid() == parent) WriteStacks(pid, writer.get());
    _exit(0);
  }
  writer.Close();
  auto stacks = child < 0 ? std::vector<std::pair<pid_t, Stack>>() : ReadStacks(reader.get());
  reader.Close();
  while (child > 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return stacks;
}

std::string Text(const std::string& header, const Stack& stack, Symbols& symbols) {
  std::string text = header + "\n";
  for (size_t i = 0; i < stack.size(); ++i) {
    // A return address may be the first byte after the calling function.
    text += "  " + symbols.NameOf(i == 0 ? stack[i] : stack[i] - 1) + "\n";
  }
  return text;
}

}  // namespace

std::string NativeStacks(pid_t pid, size_t bytes) {
  Stack main;
  std::map<Stack, std::vector<pid_t>> others;
  std::vector<const Stack*> order;
  for (auto& [thread, stack] : CollectStacks(pid)) {
    if (thread == pid) {
      main = std::move(stack);
      continue;
    }
    const auto [entry, added] = others.try_emplace(std::move(stack));
    if (added) order.push_back(&entry->first);
    entry->second.push_back(thread);
  }
  Symbols symbols(pid);
  std::string text;
  if (!main.empty()) text = Text("main thread:", main, symbols);
  for (const Stack* stack : order) {
    if (text.size() >= bytes) break;
    const std::vector<pid_t>& threads = others[*stack];
    std::string header = "thread " + std::to_string(threads[0]);
    if (threads.size() > 1) header += " and " + std::to_string(threads.size() - 1) + " like it";
    text += Text(header + ":", *stack, symbols);
  }
  if (text.size() > bytes) text.resize(bytes);
  return text;
}

}  // namespace muster::shim
