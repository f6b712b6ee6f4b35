// `muster exec`.
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "cli/client.h"
#include "cli/context.h"
#include "cli/follow/signals.h"
#include "cli/output/console.h"
#include "cli/verb.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::cli {
namespace {

// Makes the terminal on stdin pass all keys on unchanged, until this object is destroyed. Has no
// effect if stdin is not a terminal.
class RawTerminal {
 public:
  RawTerminal();
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  std::optional<termios> before_;
};

// Reports changes of the terminal's size. Must be created before any other thread, because it
// blocks SIGWINCH.
class WindowWatcher {
 public:
  WindowWatcher();
  ~WindowWatcher();
  WindowWatcher(const WindowWatcher&) = delete;
  WindowWatcher& operator=(const WindowWatcher&) = delete;

  // Readable after a change, until Clear.
  int fd() const { return fd_; }
  void Clear();

 private:
  int fd_ = -1;
};

// The size of the terminal on stdout; nothing if it is not one.
std::optional<v1::ExecInput::Size> WindowSize();

RawTerminal::RawTerminal() {
  termios settings;
  if (tcgetattr(STDIN_FILENO, &settings) != 0) return;
  before_ = settings;
  cfmakeraw(&settings);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &settings);
}

RawTerminal::~RawTerminal() {
  if (before_.has_value()) tcsetattr(STDIN_FILENO, TCSADRAIN, &*before_);
}

WindowWatcher::WindowWatcher() {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGWINCH);
  pthread_sigmask(SIG_BLOCK, &mask, nullptr);
  fd_ = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
}

WindowWatcher::~WindowWatcher() { close(fd_); }

void WindowWatcher::Clear() {
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof(info)) == sizeof(info)) {
  }
}

std::optional<v1::ExecInput::Size> WindowSize() {
  winsize window;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0) return std::nullopt;
  v1::ExecInput::Size size;
  size.set_rows(window.ws_row);
  size.set_columns(window.ws_col);
  return size;
}

// Runs a thread until stdin and the window are not needed any more.
class ExecInputPump {
 public:
  // `window`: null if the command does not run in a terminal. Both must outlive this object.
  ExecInputPump(ExecStream& stream, WindowWatcher* window);
  // Stops without waiting for stdin. The stream must have ended, so that no write is in progress
  // for long.
  ~ExecInputPump();
  ExecInputPump(const ExecInputPump&) = delete;
  ExecInputPump& operator=(const ExecInputPump&) = delete;

 private:
  void Run();
  bool SendInput(bool& ended);
  bool SendSize();

  ExecStream& stream_;
  WindowWatcher* const window_;
  const int stop_;  // an eventfd
  std::thread thread_;
};

constexpr size_t kReadBytes = 16 << 10;

ExecInputPump::ExecInputPump(ExecStream& stream, WindowWatcher* window)
    : stream_(stream),
      window_(window),
      stop_(eventfd(0, EFD_CLOEXEC)),
      thread_([this] { Run(); }) {}

ExecInputPump::~ExecInputPump() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(stop_, &one, sizeof(one));
  thread_.join();
  close(stop_);
}

void ExecInputPump::Run() {
  if (window_ != nullptr && !SendSize()) return;
  bool ended = false;
  while (true) {
    // A negative descriptor is ignored.
    pollfd polled[] = {{stop_, POLLIN, 0},
                       {ended ? -1 : STDIN_FILENO, POLLIN, 0},
                       {window_ == nullptr ? -1 : window_->fd(), POLLIN, 0}};
    if (poll(polled, 3, -1) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;
    if (polled[1].revents != 0 && !SendInput(ended)) return;
    if (polled[2].revents != 0) {
      window_->Clear();
      if (!SendSize()) return;
    }
  }
}

bool ExecInputPump::SendInput(bool& ended) {
  char buffer[kReadBytes];
  const ssize_t n = read(STDIN_FILENO, buffer, sizeof(buffer));
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  v1::ExecInput input;
  if (n > 0) {
    input.set_stdin_data(buffer, static_cast<size_t>(n));
  } else {
    ended = true;
    input.set_stdin_end(true);
  }
  return stream_.Write(input);
}

bool ExecInputPump::SendSize() {
  const std::optional<v1::ExecInput::Size> size = WindowSize();
  if (!size.has_value()) return true;
  v1::ExecInput input;
  *input.mutable_size() = *size;
  return stream_.Write(input);
}

void PrintOutput(const v1::ExecOutput& output, Console& console) {
  if (output.has_stdout_data()) console.Out(output.stdout_data());
  if (output.has_stderr_data()) console.Err(output.stderr_data());
}

// Returns the command's exit code. The first SIGINT is passed on to the command; a second one, and
// SIGTERM and SIGHUP, disconnect, which kills the command (CANCELLED). Must be called before the
// process has other threads. Errors: those of ClusterService.Exec.
absl::StatusOr<int> RunExec(const ClusterClient::Options& options,
                            const v1::ExecInput::Start& start, Console& console) {
  std::optional<WindowWatcher> window;
  if (start.terminal()) window.emplace();
  ClusterClient client(options);
  const std::unique_ptr<ExecStream> stream = client.Exec();
  bool interrupted = false;
  const SignalWatcher signals([&stream, &interrupted](int signal) {
    v1::ExecInput input;
    input.set_signal(signal);
    const bool first = signal == SIGINT && !std::exchange(interrupted, true);
    if (!first || !stream->TryWrite(input)) stream->Cancel();
  });

  // After the signal handlers, so that no signal leaves the terminal raw.
  std::optional<RawTerminal> raw;
  if (start.terminal()) raw.emplace();

  v1::ExecInput first;
  *first.mutable_start() = start;
  std::optional<int> exit_code;
  if (stream->Write(first)) {
    const ExecInputPump input(*stream, window.has_value() ? &*window : nullptr);
    v1::ExecOutput output;
    while (stream->Read(output)) {
      PrintOutput(output, console);
      if (output.has_exit_code()) exit_code = output.exit_code();
    }
  }
  const absl::Status status = stream->Finish();
  if (exit_code.has_value()) return *exit_code;
  if (!status.ok()) return status;
  return absl::InternalError("the stream ended without the command's exit code");
}

struct ExecFlags {
  std::string job_id;
  uint32_t rank = 0;
  bool tty = false;
  bool no_tty = false;
};

int Exec(Context& context, const ExecFlags& flags) {
  v1::ExecInput::Start start;
  start.set_job_id(flags.job_id);
  start.set_rank(flags.rank);
  start.mutable_command()->Assign(context.trailing.begin(), context.trailing.end());
  const bool interactive = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  start.set_terminal(flags.tty || (interactive && !flags.no_tty));
  if (const char* term = std::getenv("TERM"); term != nullptr) start.set_term(term);
  const absl::StatusOr<int> exit_code = RunExec(context.client_options(), start, context.console);
  return exit_code.ok() ? *exit_code : context.Fail(exit_code.status());
}

}  // namespace

void AddExecVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "exec", kJobVerbs,
      {.summary = "Run a command beside a running rank",
       .usage = "JOB [OPTIONS] -- CMD ARGS...",
       .paragraphs =
           {"The command runs on the rank's node, in its working directory, with its environment, "
            "resources and CPUs. It is connected to this process's stdin, stdout and stderr; if "
            "stdin and stdout are terminals, it runs in a terminal. It is killed when the rank "
            "exits or this process is disconnected.",
            "Only the owner of the job and admins may run commands. Ctrl-C is passed on to the "
            "command; without a terminal, a second Ctrl-C kills it."},
       .exits = {{"0 to 255", "Exit code of the command; 128+n for signal n"},
                 {"1", "The job does not exist, or the rank does not run"},
                 {"69", "The coordinator or the rank's node is unreachable"},
                 {"77", "The job belongs to another user"},
                 {"130", "Interrupted"}},
       .examples = {{"muster exec train-x7k2 -- nvidia-smi", "on the node of rank 0"},
                    {"muster exec train-x7k2 --rank 3 -- bash", "a shell beside rank 3"},
                    {"muster exec train-x7k2 -- sh -c 'py-spy dump --pid $(pgrep -n python3)'",
                     "stacks of a rank's Python process"}}});
  auto flags = std::make_shared<ExecFlags>();
  verb.add_option("JOB", flags->job_id, "Job id or name, or a unique prefix of one")->required();
  verb.add_option("--rank", flags->rank, "Rank beside which the command runs")
      ->type_name("N")
      ->capture_default_str();
  CLI::Option* tty =
      verb.add_flag("-t,--tty", flags->tty, "Run in a terminal even if stdin or stdout is not one");
  verb.add_flag("-T,--no-tty", flags->no_tty, "Do not run in a terminal")->excludes(tty);
  verb.callback([&context, flags] {
    if (context.trailing.empty()) throw CLI::RequiredError("a command after `--`");
    context.action = [&context, flags] { return Exec(context, *flags); };
  });
}

}  // namespace muster::cli
