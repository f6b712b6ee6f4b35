#include "common/process/environment_variables.h"

namespace muster {
namespace {

constexpr EnvironmentVariable kProgramVariables[] = {
    {"MUSTER_TOKEN", "muster, muster-worker", "Access token, if `--token-file` is not given."},
    {"MUSTER_TOKEN_DIR", "all",
     "Directory in which a coordinator publishes its local token and in which clients look for it. "
     "Default: `~/.muster/tokens/HOST`, or `/tmp/muster-UID/tokens` without a home directory."},
    {"MUSTER_CUDA_LIBRARY_PATH", "muster-worker, for its ranks",
     "Directories, separated by `:`, that are searched first for NVIDIA's libraries."},
    {"CUDA_HOME", "muster-rank",
     "Directory of the CUDA Toolkit, whose `lib64` is searched for NVIDIA's libraries after the "
     "dynamic linker's directories."},
    {"CUDA_VISIBLE_DEVICES", "muster-worker, muster-rank",
     "GPUs that a worker offers with `--devices=auto`, as indices in the order of `nvidia-smi` or "
     "UUIDs; empty: none. A worker sets it for its ranks."},
    {"LD_LIBRARY_PATH", "programs of the bundle",
     "Directories that the dynamic linker searches, after those of the bundle."},
    {"RANK", "programs of the process-group library", "Rank, from 0 to WORLD_SIZE - 1; required."},
    {"WORLD_SIZE", "programs of the process-group library", "Number of ranks; required."},
    {"MASTER_ADDR", "programs of the process-group library",
     "Host name or address of rank 0; required."},
    {"MASTER_PORT", "programs of the process-group library",
     "Port on which rank 0 listens; required."},
    {"MUSTER_JOB_ID", "programs of the process-group library",
     "With MUSTER_GENERATION, identifies the run: ranks of different runs do not connect."},
    {"MUSTER_GENERATION", "programs of the process-group library", "See MUSTER_JOB_ID."},
    {"TORCHELASTIC_RUN_ID", "programs of the process-group library",
     "With TORCHELASTIC_RESTART_COUNT, identifies the run if MUSTER_JOB_ID is not set."},
    {"TORCHELASTIC_RESTART_COUNT", "programs of the process-group library",
     "See TORCHELASTIC_RUN_ID."},
    {"TORCHELASTIC_ERROR_FILE", "programs of the process-group library",
     "File to which a failure of the group is written."},
    {"OMPI_COMM_WORLD_RANK", "programs of the process-group library",
     "Set by `mpirun` of Open MPI. The MPI backend requires this variable, PMIX_RANK or PMI_RANK."},
    {"PMIX_RANK", "programs of the process-group library", "Set by launchers that use PMIx."},
    {"PMI_RANK", "programs of the process-group library", "Set by launchers that use PMI."},
    {"PMIX_NAMESPACE", "programs of the process-group library",
     "Name of the MPI job, by which the ranks check that they belong to the same one."},
    {"PMI_JOBID", "programs of the process-group library", "As PMIX_NAMESPACE, with PMI."},
    {"NCCL_MIN_CTAS", "muster-rank, programs of the process-group library",
     "If this variable or NCCL_MAX_CTAS is set, NCCL uses their values in place of Muster's limit "
     "of the blocks per kernel."},
    {"NCCL_MAX_CTAS", "muster-rank, programs of the process-group library", "See NCCL_MIN_CTAS."},
    {"MUSTER_LAUNCH_FILE", "muster-rank", "File with the rank's job, set by the worker."},
    {"MUSTER_JOB_MEMORY_DIR", "muster-rank",
     "Directory in memory in which the job's ranks on the node leave their state when they lose a "
     "peer, set by the worker."},
    {"MUSTER_DRIVER_VERSION", "muster-rank",
     "Version of NVIDIA's driver on the node, set by the worker."},
    {"XDG_CACHE_HOME", "muster-rank",
     "Directory of `muster/cuda`, which keeps the choices of cuDNN's engines. Default: "
     "`~/.cache`."},
    {"XDG_CONFIG_HOME", "muster",
     "Directory of the configuration file `muster/config`. Default: `~/.config`."},
    {"HOME", "all",
     "Home directory: `~` in the defaults of MUSTER_TOKEN_DIR, XDG_CACHE_HOME and "
     "XDG_CONFIG_HOME, and in `--workdir`."},
    {"PATH", "muster-worker", "Directories in which `tar` is searched for `muster cp`."},
    {"COLUMNS", "muster",
     "Width of help and of other wrapped text, at least 60. Default: the width of the terminal, or "
     "80 without one."},
    {"TERM", "muster",
     "Type of the terminal: `dumb` disables colors, and `muster exec` passes it to the command."},
    {"NO_COLOR", "muster", "Disables colors if set and not empty."},
    {"DISPLAY", "muster", "If set, `muster page` opens a browser with `xdg-open`."},
    {"WAYLAND_DISPLAY", "muster", "As DISPLAY, with Wayland."},
    {"TMPDIR", "muster local, muster-coordinator",
     "Parent of the private cluster's directory, and of the jobs' files of a coordinator with "
     "`--store=memory`. Default: `/tmp`."},
    {"NOTIFY_SOCKET", "muster-coordinator",
     "Socket of systemd to which readiness and the watchdog's signals are sent."},
    {"WATCHDOG_USEC", "muster-coordinator",
     "Timeout of systemd's watchdog in microseconds; a signal is sent twice as often."},
    {"WATCHDOG_PID", "muster-coordinator",
     "Process that systemd's watchdog monitors; if it is another one, no signals are sent."},
    {"GRPC_VERBOSITY", "all",
     "If set, gRPC writes its own log, at this level, to stderr. Otherwise Muster logs gRPC's "
     "errors."},
    {"GLOG_v", "muster-worker", "Level of verbose log messages. Default: 0, none."},
};

constexpr EnvironmentVariable kBuildVariables[] = {
    {"CUDA_HOME", "builds",
     "Directory of the CUDA Toolkit with which the CUDA library is built; `none` omits the "
     "library. Default: `/usr/local/cuda`."},
    {"PKG_CONFIG_PATH", "builds",
     "Directories that `pkg-config` searches first for the description of MPI."},
    {"MUSTER_CUDA", "deploy/quickstart.sh",
     "If not empty, builds the CUDA library on a machine without a GPU, too."},
    {"MUSTER_PREVIOUS", "tests/run.sh --full",
     "`bazel-bin` of an earlier version, which the tests of upgrades use. Default: the previous "
     "commit, which is then built."},
};

}  // namespace

absl::Span<const EnvironmentVariable> ProgramVariables() { return kProgramVariables; }

absl::Span<const EnvironmentVariable> BuildVariables() { return kBuildVariables; }

}  // namespace muster
