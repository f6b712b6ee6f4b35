// Finds the user's script in a command, and modules beside it that a failed job lacked.
#ifndef MUSTER_CLI_FILES_SCRIPT_H_
#define MUSTER_CLI_FILES_SCRIPT_H_

#include <string>
#include <vector>

#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// The script that a command runs (see spec::TargetOf), as in `python3 -u train.py`, `./train.sh`
// and `torchrun train.py`. Empty if there is none, as for `python3 -m train`, or if its path is
// absolute.
std::string ScriptOf(const std::vector<std::string>& command);

// The command that runs a Python or shell script, such as "python3 train.py" for train.py; empty if
// the file's name is not that of a script.
std::string CommandFor(const std::string& path);

// Names the module's file or folder if the job failed for lack of it and it is beside the job's
// script, which is relative to the current folder; empty otherwise.
std::string MissingModuleHint(const v1::Job& job);

}  // namespace muster::cli

#endif  // MUSTER_CLI_FILES_SCRIPT_H_
