#include "cli/exec/exec_run.h"

#include <signal.h>

#include <memory>
#include <optional>
#include <utility>

#include "cli/exec/exec_input.h"
#include "cli/exec/terminal.h"
#include "cli/follow/signals.h"

namespace muster::cli {
namespace {

void PrintOutput(const v1::ExecOutput& output, Console& console) {
  if (output.has_stdout_data()) console.Out(output.stdout_data());
  if (output.has_stderr_data()) console.Err(output.stderr_data());
}

}  // namespace

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

}  // namespace muster::cli
