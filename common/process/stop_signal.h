// The signals that a job can choose to ask its ranks to end (JobSpec.stop_signal).
#ifndef MUSTER_COMMON_PROCESS_STOP_SIGNAL_H_
#define MUSTER_COMMON_PROCESS_STOP_SIGNAL_H_

#include <csignal>
#include <string_view>

namespace muster {

struct StopSignal {
  const char* name;
  int number;
};

inline constexpr StopSignal kStopSignals[] = {
    {"SIGTERM", SIGTERM}, {"SIGINT", SIGINT}, {"SIGUSR1", SIGUSR1},
    {"SIGUSR2", SIGUSR2}, {"SIGHUP", SIGHUP}, {"SIGQUIT", SIGQUIT},
};

// The default for an empty name, which specs of earlier versions have, and for an unknown one.
constexpr const StopSignal& FindStopSignal(std::string_view name) {
  for (const StopSignal& signal : kStopSignals) {
    if (name == signal.name) return signal;
  }
  return kStopSignals[0];
}

}  // namespace muster

#endif  // MUSTER_COMMON_PROCESS_STOP_SIGNAL_H_
