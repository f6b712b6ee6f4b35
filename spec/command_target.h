// Finds the program, script or module that a command runs.
#ifndef MUSTER_SPEC_COMMAND_TARGET_H_
#define MUSTER_SPEC_COMMAND_TARGET_H_

#include <string>
#include <vector>

namespace muster::spec {

// Exactly one of `script` and `module` is set, or neither, as for `python3 -c pass`.
struct CommandTarget {
  std::string program;  // the first word after `env` and its assignments
  // The program if it is neither an interpreter nor a launcher; otherwise the script that it runs.
  std::string script;
  std::string module;  // of `python3 -m MODULE`
};

// Looks behind `env`, interpreters and launchers: the script is train.py in `python3 -u train.py`,
// `torchrun --nproc-per-node 2 train.py`, `python3 -m torch.distributed.run train.py` and
// `env A=1 accelerate launch train.py`.
CommandTarget TargetOf(const std::vector<std::string>& command);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_COMMAND_TARGET_H_
