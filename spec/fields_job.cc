#include "common/limits.h"
#include "common/process/stop_signal.h"
#include "spec/field_table.h"

namespace muster::spec {
namespace {

std::vector<std::string> StopSignalNames() {
  std::vector<std::string> names;
  for (const StopSignal& signal : kStopSignals) names.push_back(signal.name);
  return names;
}

}  // namespace

void AddJobFields(FieldTable& table) {
  table.merge(FieldTable{
      {"JobSpec.name",
       {.help = "Name of the job; its id starts with it. At most 63 lower-case letters, digits and "
                "'-'.",
        .computed_default = "the model's and dataset's names, or the script's or program's",
        .examples = {"fashion-mnist"},
        .in_init = true}},
      {"JobSpec.train",
       {.help = "Training run of the built-in trainer. A job has either train or command."}},
      {"JobSpec.command",
       {.help = "Program and arguments, started once per rank. Ranks get RANK, WORLD_SIZE, "
                "LOCAL_RANK, MASTER_ADDR, MASTER_PORT and the other variables that torchrun sets. "
                "No shell is involved. {rank}, {local_rank}, {node_rank}, {node} and, in tasks of "
                "arrays, {array_index} are replaced in arguments without white space.",
        .examples = {"[/bin/sh, -c, 'echo rank $RANK of $WORLD_SIZE']",
                     "[./train, '--local_rank={local_rank}']"}}},
      {"JobSpec.launcher",
       {.help = "How the ranks of a command start. muster: each starts by itself. mpi: Open MPI's "
                "mpirun connects them, so that they are the processes of one MPI program; needs "
                "Open MPI on every node.",
        .computed_default = "muster",
        .words = {"muster", "mpi"},
        .examples = {"mpi"}}},
      {"JobSpec.env",
       {.help = "Environment variables added to every rank. Of its worker's environment, a rank "
                "inherits only PATH, HOME, the locale and settings of the GPU libraries.",
        .max_items = 10000,
        .examples = {"{OMP_NUM_THREADS: 1}"}}},
      {"JobSpec.workdir",
       {.help = "Working directory of the ranks: an absolute path on the node. Excludes files.",
        .computed_default = "a directory per rank; with `muster local`, the current folder",
        .absolute_path = true,
        .examples = {"/srv/job"}}},
      {"JobSpec.files",
       {.help =
            "Files and folders that are copied into each rank's own directory before it starts. "
            "`muster submit`, `run` and `local` upload them, at most 1000 files and 256 MiB; of "
            "folders, everything except .git and __pycache__. Only for commands, without workdir.",
        .max_items = limits::kFiles,
        .examples = {"[train.py, conf/]"}}},
      {"JobSpec.hang_timeout",
       {.help =
            "A job counts as hung when none of its ranks has had output, progress or file input "
            "and output for this long; until a rank's first output or progress, for at least 1m. "
            "Use of CPU or GPU does not count. `never` disables the check.",
        .computed_default = "10m for commands, never for train",
        .range = Between(1, kTenYears),
        .zero_word = "never",
        .examples = {"10m", "never"}}},
      {"JobSpec.on_hang",
       {.help =
            "Reaction to a hang. report adds an event that names the rank that the others "
            "probably wait for; restart also stops the ranks with SIGABRT, so that Python prints "
            "its stacks, and restarts the job; restart.max must then be at least 1.",
        .computed_default = "report, if there is a hang_timeout",
        .words = {"report", "restart"}}},
      {"JobSpec.checkpoint_dir",
       {.help = "Directory that all nodes share, for the checkpoints of a command job: each rank's "
                "MUSTER_CHECKPOINT_DIR. It is created if it is missing, but its parent must exist "
                "on every node.",
        .computed_default =
            "the coordinator's --checkpoint-dir with a folder per job; without it, a "
            "directory on each node",
        .absolute_path = true,
        .examples = {"/shared/checkpoints/run-1"}}},
      {"JobSpec.output",
       {.help = "Where a rank's stdout and stderr go. joined: to one log, that of stdout, in the "
                "order in which the rank writes them. separate: to two logs, which are merged by "
                "time when they are printed; the order of lines that are written at nearly the "
                "same time is lost.",
        .default_value = "joined",
        .words = {"joined", "separate"}}},
      {"JobSpec.resources",
       {.help = "Number of ranks and the resources of each.",
        .default_value = "{}",
        .examples = {"{nodes: 1, ranks_per_node: 1}",
                     "{nodes: 2, ranks_per_node: 2, device: auto, threads_per_rank: 1}"},
        .in_init = true}},
      {"JobSpec.backend",
       {.help = "Collectives backend. auto selects nccl between GPUs; between CPUs it selects shm "
                "within a node, gloo between nodes of one rank each, and hierarchical otherwise.",
        .default_value = "auto",
        .words = {"auto", "shm", "gloo", "hierarchical", "nccl"},
        .testing_words = {"loopback"},
        .rejected_words = {{"mpi",
                            "mpi is not a backend of jobs; for an MPI program, set command and "
                            "launcher: mpi"}}}},
      {"JobSpec.failure_timeout",
       {.help = "How long a native rank waits for its peers in a collective before it reports them "
                "as lost, and how long a rank may make no progress in a phase of the rendezvous "
                "(at least 1m). Ranks on a node without heartbeats are lost, and start elsewhere, "
                "after this time or the coordinator's --job-lease (30s), whichever is longer. It "
                "does not limit how long a command may be silent: see hang_timeout.",
        .default_value = "30s",
        .range = Between(1, kTenYears)}},
      {"JobSpec.grace_period",
       {.help =
            "Time between the stop signal and SIGKILL when ranks are stopped, in which they can "
            "write a checkpoint.",
        .default_value = "30s",
        .range = Between(0, kTenYears)}},
      {"JobSpec.stop_signal",
       {.help =
            "Signal that asks the ranks to end: on cancel, requeue, drain and at the time limit. "
            "SIGKILL follows after grace_period.",
        .default_value = "SIGTERM",
        .words = StopSignalNames()}},
      {"JobSpec.on_lost_coordinator",
       {.help = "Behavior of ranks while the coordinator is unreachable: continue, or stop after a "
                "timeout.",
        .default_value = "continue",
        .examples = {"continue", "{stop_after: 10m}"}}},
      {"JobSpec.on_cut_off",
       {.help =
            "What the ranks on a node do that is cut off from the coordinator and from most other "
            "nodes: end, so that the job can be started elsewhere, or continue. A train job that "
            "continues publishes nothing once it has been started elsewhere. A command job that "
            "continues is not started elsewhere until its node reconnects or `muster node lost "
            "NODE --confirm`.",
        .computed_default = "continue for train, end for commands",
        .words = {"end", "continue"}}},
      {"JobSpec.restart", {.help = "Restart policy after a failure.", .default_value = "{}"}},
      {"JobSpec.time_limit",
       {.help =
            "Running time after which the job is stopped, over all its restarts; time in the queue "
            "does not count.",
        .computed_default = "none",
        .range = Between(1, kTenYears),
        .examples = {"1h"}}},
      {"JobSpec.priority",
       {.help = "Order among the jobs of one owner in a priority class; higher runs first.",
        .range = Between(-1000, 1000)}},
      {"JobSpec.priority_class",
       {.help = "Class in the queue. Jobs of a higher class run first and may preempt those of a "
                "lower one, which save a checkpoint and are queued again. The role of the token "
                "limits the classes that a user may choose.",
        .default_value = "normal",
        .words = {"low", "normal", "high", "critical"}}},
      {"JobSpec.secret_env",
       {.help = "Environment variables with secret values: the name of a secret for each variable. "
                "Also written as env: {NAME: {secret: SECRET}}.",
        .examples = {"{HF_TOKEN: hf-token}"}}},
      {"JobSpec.array",
       {.help =
            "Submit several jobs, the tasks of an array, which are listed, cancelled and waited "
            "for as one.",
        .examples = {"{count: 20, concurrency: 4}"}}},
      {"JobSpec.after",
       {.help = "Jobs that have to end before this one starts.",
        .examples = {"{ok: [prepare-x7k2q]}"}}},

      {"ArraySpec.count",
       {.help = "Number of tasks. They differ by MUSTER_ARRAY_INDEX and {array_index}, from 0.",
        .range = Between(1, limits::kTasksPerArray)}},
      {"ArraySpec.matrix",
       {.help = "Values of spec fields: one task for each combination.",
        .max_items = 8,
        .examples = {"{train.optimizer.learning_rate: [0.1, 0.01]}"}}},
      {"ArraySpec.tasks",
       {.help =
            "Spec fields that each task sets, for tasks that are not all combinations of values.",
        .max_items = limits::kTasksPerArray,
        .examples = {"[{train.precision: O2, resources.ranks_per_node: 2}, {}]"}}},
      {"ArraySpec.concurrency",
       {.help = "Maximum number of tasks that run at the same time.",
        .computed_default = "no limit",
        .range = Between(1, limits::kTasksPerArray)}},
      {"ArrayAxis.field",
       {.help = "Path of a field of the spec, such as train.optimizer.learning_rate.",
        .required = true}},
      {"ArrayAxis.values",
       {.help = "Values of the field, as in --set FIELD=VALUE.",
        .required = true,
        .max_items = limits::kTasksPerArray}},
      {"ArrayTaskValues.values", {.help = "Values of fields, as in --set FIELD=VALUE."}},
      {"ArrayValue.field",
       {.help = "Path of a field of the spec, such as train.precision.", .required = true}},
      {"ArrayValue.value",
       {.help = "Value of the field, as in --set FIELD=VALUE.", .required = true}},
      {"Dependencies.ok",
       {.help = "Jobs or arrays that have to succeed.", .max_items = limits::kDependencies}},
      {"Dependencies.failed",
       {.help = "Jobs or arrays that have to fail, be cancelled or time out.",
        .max_items = limits::kDependencies}},
      {"Dependencies.any",
       {.help = "Jobs or arrays that have to end in any way.", .max_items = limits::kDependencies}},

      {"FileSpec.path",
       {.help = "File or folder, relative to the spec file or, on the command line, to the current "
                "folder.",
        .required = true}},
      {"FileSpec.sha256", {.help = "SHA-256 of the content; set on upload.", .testing_only = true}},
      {"FileSpec.size_bytes",
       {.help = "Size of the content; set on upload.", .unit = "bytes", .testing_only = true}},
      {"FileSpec.executable",
       {.help = "The file is executable; set on upload.", .testing_only = true}},

      {"Resources.nodes",
       {.help = "Number of nodes: a number, or a range such as {min: 1, max: 4}.",
        .default_value = "1",
        .range = Between(1, limits::kNodes)}},
      {"Resources.ranks_per_node",
       {.help = "Processes on each node.",
        .default_value = "1",
        .range = Between(1, limits::kSlotsPerNode)}},
      {"Resources.device",
       {.help = "Device that a rank computes on. auto selects a GPU if the node has one.",
        .default_value = "auto",
        .words = {"auto", "cpu", "gpu"}}},
      {"Resources.devices_per_rank",
       {.help = "Slots that a rank occupies: a number, or all.", .default_value = "1"}},
      {"Resources.threads_per_rank",
       {.help = "CPU threads per rank; with dp and hybrid, per device of the rank. Commands get it "
                "as OMP_NUM_THREADS.",
        .default_value = "1",
        .range = Between(1, kMaxThreads)}},
      {"Resources.memory",
       {.help =
            "Memory limit of each rank with all its processes. A rank that exceeds it is killed "
            "and reported as OutOfMemory. Needs cgroup v2 on the node; without it the job "
            "shows a warning.",
        .computed_default = "none",
        .unit = "bytes",
        .range = Between(1 << 20, 0x1p50),
        .examples = {"8GiB"}}},
      {"Resources.pids",
       {.help = "Limit on the processes and threads of each rank. Needs cgroup v2 on the node; "
                "without it the job shows a warning.",
        .computed_default = "none",
        .range = Between(1, 1 << 22)}},
      {"Resources.select",
       {.help = "Labels that a node must have, with their values.",
        .examples = {"{gpu: h100, rack: a}"}}},
      {"Resources.exclude_nodes",
       {.help = "Names of nodes that are not used.", .max_items = limits::kNodes}},
      {"Resources.prefer_nodes",
       {.help = "Names of nodes that are used before others.", .max_items = limits::kNodes}},
      {"Resources.exclusive", {.help = "No other job runs on the nodes of this one."}},
      {"Resources.gpu_model",
       {.help = "Part of the name that a GPU must have; letter case is ignored.",
        .examples = {"H100"}}},
      {"Resources.gpu_memory",
       {.help = "Memory that a GPU must have at least.",
        .unit = "bytes",
        .range = Between(1 << 20, 0x1p50),
        .examples = {"80GiB"}}},
      {"Resources.ranks",
       {.help =
            "Total number of ranks of a command, on as few nodes as possible, in place of nodes "
            "and ranks_per_node. Nodes may have different numbers of ranks.",
        .range = Between(1, limits::kRanksPerJob)}},
      {"Resources.share_device",
       {.help = "Allow ranks of this job to share one GPU.", .testing_only = true}},
      {"NodeCount.min",
       {.help = "Minimum number of nodes to start with.", .computed_default = "1"}},
      {"NodeCount.max", {.help = "Maximum number of nodes.", .computed_default = "min"}},
      {"LostCoordinatorPolicy.stop_after",
       {.help = "Stop when the coordinator has been unreachable for this long.",
        .computed_default = "never",
        .range = Between(1, kTenYears)}},
      {"RestartPolicy.max",
       {.help = "Maximum number of restarts after exits of the program without a completed step in "
                "between: each step beyond the last failure gives all of them back. Lost nodes, "
                "failed launches and drained nodes use up none.",
        .computed_default = "3 for train and with on_hang: restart, otherwise 0",
        .range = Between(0, 1000)}},
  });
}

}  // namespace muster::spec
