// Exit codes of Muster's programs and of the jobs' ranks: the only list. Values follow sysexits.h
// and the shell where these have one.
#ifndef MUSTER_COMMON_EXIT_CODE_H_
#define MUSTER_COMMON_EXIT_CODE_H_

namespace muster {

enum ExitCode : int {
  kExitSuccess = 0,
  kExitFailure = 1,
  kExitUsage = 2,
  kExitDiverged = 65,        // the loss is not finite
  kExitNoInput = 66,         // an input file is missing or damaged
  kExitUnavailable = 69,     // no coordinator answers
  kExitNoDevice = 71,        // the rank's GPU cannot be used
  kExitCannotCreate = 73,    // a file or directory cannot be written
  kExitTryAgain = 75,        // a limit or time-out was met
  kExitNotAllowed = 77,      // the coordinator denies the request
  kExitBadSpec = 78,         // the job's spec is invalid
  kExitTimeLimit = 124,      // as timeout(1)
  kExitCannotExecute = 126,  // as a shell
  kExitNotFound = 127,       // as a shell
  kExitSignal = 128,         // plus the signal's number, as a shell
  kExitInterrupted = 130,
};

}  // namespace muster

#endif  // MUSTER_COMMON_EXIT_CODE_H_
