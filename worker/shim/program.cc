#include "worker/shim/program.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

namespace muster::shim {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

void ResetSignals() {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

void BindToCpus(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  }
  sched_setaffinity(0, sizeof(set), &set);
}

void ExecProgram(const std::vector<std::string>& command,
                 const std::vector<std::string>& environment) {
  const std::vector<char*> arguments = Pointers(command);
  std::vector<char*> variables = Pointers(environment);
  environ = variables.data();  // so that exec searches this PATH
  execvp(arguments[0], arguments.data());
}

}  // namespace muster::shim
