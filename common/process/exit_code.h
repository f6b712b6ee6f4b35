// Exit codes of Muster's programs and of the ranks of jobs. Values follow sysexits.h and shell
// conventions where these define one.
#ifndef MUSTER_COMMON_PROCESS_EXIT_CODE_H_
#define MUSTER_COMMON_PROCESS_EXIT_CODE_H_

namespace muster {

enum ExitCode : int {
  kExitSuccess = 0,
  kExitFailure = 1,
  kExitUsage = 2,
  kExitDiverged = 65,
  kExitNoInput = 66,
  kExitUnavailable = 69,
  kExitNoDevice = 71,
  kExitCannotCreate = 73,
  kExitTryAgain = 75,
  kExitNotAllowed = 77,
  kExitBadSpec = 78,
  kExitTimeLimit = 124,
  kExitCannotExecute = 126,
  kExitNotFound = 127,
  kExitSignal = 128,
  kExitInterrupted = 130,
};

struct ExitCodeInfo {
  ExitCode code;
  const char* value;  // the code as text; "128+n" for kExitSignal
  const char* name;
  const char* meaning;  // text printed by `muster --help`
  const char* when;     // which programs exit with it, and why
};

// Every exit code. `muster --help` prints the meanings, docs/reference/exit_codes.md everything.
inline constexpr ExitCodeInfo kExitCodes[] = {
    {kExitSuccess, "0", "success", "Success; for a verb that follows a job, the job succeeded",
     "All programs."},
    {kExitFailure, "1", "failure",
     "The job failed without an exit code, or the request was rejected",
     "muster: any error without a code of its own, such as an unknown job, or a job that another "
     "command cancelled. muster-coordinator: "
     "damaged state. muster-worker: rejected because of its version. Ranks: any error without a "
     "code of its own."},
    {kExitUsage, "2", "usage", "Invalid command line",
     "All programs: an invalid flag, variable or configuration file. muster: an invalid request."},
    {kExitDiverged, "65", "diverged", "The training loss is not finite",
     "Ranks of train jobs; also for weights or optimizer states that are not finite when a "
     "checkpoint is written. The job is not restarted."},
    {kExitNoInput, "66", "no input", "An input file cannot be read",
     "muster: a spec or configuration file, or a program to start. Ranks of train jobs: "
     "`train.dataset.path`, `train.init_from` or `train.checkpoint.resume_from`. Ranks of command "
     "jobs: `workdir` does not exist. "
     "The job is not restarted."},
    {kExitUnavailable, "69", "unavailable", "The coordinator does not answer", "muster."},
    {kExitNoDevice, "71", "no device", "The rank's GPU cannot be used",
     "Ranks of train jobs: the GPU or a CUDA library is missing or unusable, or the GPU failed "
     "during "
     "the training."},
    {kExitCannotCreate, "73", "cannot create", "A file or directory cannot be created",
     "muster local, muster experiment. Daemons: the data directory or an address cannot be used. "
     "Ranks of train jobs: a checkpoint or TensorBoard file, or a checkpoint directory of another "
     "job. Ranks of command jobs: the shared "
     "checkpoint directory. The job is not restarted."},
    {kExitTryAgain, "75", "try again", "A limit or timeout was reached; try again later",
     "muster: the coordinator has reached a limit, or a call timed out."},
    {kExitNotAllowed, "77", "not allowed", "Permission denied by the coordinator",
     "muster, muster-worker: no access token, or one without the role. Ranks of command jobs: "
     "`workdir` cannot be entered; the job is not restarted."},
    {kExitBadSpec, "78", "bad spec", "Invalid job spec",
     "muster: the spec is rejected before the job is queued. Ranks of train jobs: the spec does "
     "not fit the data. The job is not restarted."},
    {kExitTimeLimit, "124", "time limit", "The job's time limit or --timeout expired",
     "muster, as timeout(1) does."},
    {kExitCannotExecute, "126", "cannot execute", "The job's program cannot be executed",
     "Ranks, as in a shell. Also when the worker cannot launch a rank. The job is not restarted."},
    {kExitNotFound, "127", "not found", "The job's program does not exist",
     "Ranks, as in a shell. The job is not restarted."},
    {kExitSignal, "128+n", "signal", "A rank was ended by signal n",
     "muster, for the job's first failing rank, as in a shell."},
    {kExitInterrupted, "130", "interrupted",
     "Interrupted, for example with Ctrl-C; the job may still be running",
     "muster: the command was interrupted, which for run and local may have cancelled the job."},
};

}  // namespace muster

#endif  // MUSTER_COMMON_PROCESS_EXIT_CODE_H_
