#include "trainer/rank/stop_signals.h"

#include <atomic>
#include <csignal>

#include "common/process/stop_signal.h"

namespace muster::rank {
namespace {

// Signal handlers have no arguments of their own.
std::atomic<train::RankRequests*> handled_requests{nullptr};

// Async-signal-safe.
void Handle(int signal) {
  train::RankRequests* const requests = handled_requests.load();
  if (requests == nullptr || !requests->RequestStop(signal)) EndBySignal(signal);
}

}  // namespace

int StopSignalOf(const v1::JobSpec& spec) { return FindStopSignal(spec.stop_signal()).number; }

std::set<int> StopSignalsOf(const v1::JobSpec& spec) { return {SIGTERM, StopSignalOf(spec)}; }

StopSignals::StopSignals(train::RankRequests* requests, const v1::JobSpec& spec)
    : signals_(StopSignalsOf(spec)) {
  handled_requests.store(requests);
  struct sigaction action = {};
  action.sa_handler = Handle;
  action.sa_flags = SA_RESTART;
  for (const int signal : signals_) sigaction(signal, &action, nullptr);
}

StopSignals::~StopSignals() {
  for (const int signal : signals_) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler == Handle) std::signal(signal, SIG_DFL);
  }
  handled_requests.store(nullptr);
}

void EndBySignal(int signal) {
  std::signal(signal, SIG_DFL);
  // In a handler, the signal is delivered when the handler returns.
  std::raise(signal);
}

}  // namespace muster::rank
