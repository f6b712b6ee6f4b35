// A hint for a Python program that failed because a module beside it was not among the job's files.
#ifndef MUSTER_CLI_FILES_MISSING_MODULE_H_
#define MUSTER_CLI_FILES_MISSING_MODULE_H_

#include <string>

#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// Names the module's file or folder if the job failed for lack of it and it is beside the job's
// script, which is relative to the current folder; empty otherwise.
std::string MissingModuleHint(const v1::Job& job);

}  // namespace muster::cli

#endif  // MUSTER_CLI_FILES_MISSING_MODULE_H_
