// Exit codes of Muster's programs and of the ranks of jobs. Values follow sysexits.h and shell
// conventions where these define one.
#ifndef MUSTER_COMMON_EXIT_CODE_H_
#define MUSTER_COMMON_EXIT_CODE_H_

namespace muster {

enum ExitCode : int {
  kExitSuccess = 0,
  kExitFailure = 1,
  kExitUsage = 2,
  kExitDiverged = 65,        // the loss is not finite
  kExitNoInput = 66,         // an input file is missing or damaged
  kExitUnavailable = 69,     // the coordinator cannot be reached
  kExitNoDevice = 71,        // the rank's GPU cannot be used
  kExitCannotCreate = 73,    // a file or directory cannot be written
  kExitTryAgain = 75,        // a limit or timeout was reached
  kExitNotAllowed = 77,      // the coordinator denied the request
  kExitBadSpec = 78,         // the job's spec is invalid
  kExitTimeLimit = 124,      // as in timeout(1)
  kExitCannotExecute = 126,  // as in a shell
  kExitNotFound = 127,       // as in a shell
  kExitSignal = 128,         // plus the signal number, as in a shell
  kExitInterrupted = 130,
};

}  // namespace muster

#endif  // MUSTER_COMMON_EXIT_CODE_H_
