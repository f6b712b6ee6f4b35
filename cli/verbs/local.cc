// `muster local`.
#include <cstdlib>
#include <memory>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/files/upload.h"
#include "cli/follow/follow_run.h"
#include "cli/local/local_checkpoints.h"
#include "cli/local/local_cluster.h"
#include "cli/local/local_job.h"
#include "cli/spec/job_options.h"
#include "cli/spec/spec_file.h"
#include "cli/verb.h"
#include "common/status.h"
#include "spec/spec.h"

namespace muster::cli {
namespace {

struct LocalFlags {
  JobOptions job;
  LocalClusterOptions cluster;
};

// Following the job ends when a daemon of the cluster ends.
int RunJob(Context& context, const LocalFlags& flags, const JobToSubmit& job,
           LocalCluster& cluster) {
  Stopper stopper;
  cluster.Watch([&stopper] { stopper.Stop(); });
  ClusterClient::Options options;
  options.address = cluster.address();
  ClusterClient client(options);
  v1::SubmitJobRequest request;
  *request.mutable_spec() = job.spec;
  const absl::StatusOr<v1::SubmitJobResponse> response =
      [&]() -> absl::StatusOr<v1::SubmitJobResponse> {
    RETURN_IF_ERROR(UploadFiles(job.files, client, context.console));
    return client.SubmitJob(request);
  }();
  int exit_code = kExitFailure;
  if (response.ok()) {
    if (context.output == Output::kName) {
      context.console.Out(absl::StrCat(response->job().job_id(), "\n"));
    } else {
      context.console.Note(response->job().job_id());
    }
    exit_code = FollowRun(context, client, response->job(),
                          {.losses = flags.job.losses, .may_detach = false}, stopper);
  } else if (cluster.status().ok()) {
    context.Fail(response.status());
  }
  return cluster.status().ok() ? exit_code : context.Fail(cluster.status(), kExitFailure);
}

int Local(Context& context, LocalFlags flags) {
  const absl::StatusOr<JobToSubmit> job = MakeJob(flags.job, context.trailing, Place::kThisMachine);
  if (!job.ok()) return context.Fail(job.status(), SpecExitCode(job.status()));
  v1::JobSpec defaulted = job->spec;
  spec::ApplyDefaults(defaulted);
  FitToJob(defaulted, flags.cluster);
  NoteSharedCores(flags.cluster, context.console);
  const LocalCheckpoints checkpoints(defaulted, context.console);
  flags.cluster.checkpoint_directory = checkpoints.path();
  absl::StatusOr<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Start(flags.cluster);
  if (!cluster.ok()) return context.Fail(cluster.status(), ExitCodeOfStart(cluster.status()));
  // Use the token of the coordinator that was just started, and no other.
  setenv("MUSTER_TOKEN_DIR", absl::StrCat((*cluster)->directory(), "/tokens").c_str(), 1);
  const int exit_code = RunJob(context, flags, *job, **cluster);
  if (!flags.cluster.keep_directory.empty()) {
    context.console.Note(absl::StrCat("logs kept in ", (*cluster)->directory()));
  }
  cluster->reset();
  return exit_code;
}

}  // namespace

void AddLocalVerb(CLI::App& app, Context& context) {
  auto flags = std::make_shared<LocalFlags>();
  Verb& verb = AddVerb(
      app, "local", kJobVerbs,
      {.summary = "Run a job on this machine, without a cluster",
       .usage = "[FILE] [OPTIONS] [-- CMD ARGS...]",
       .paragraphs =
           {"Starts a coordinator and one worker per node of the job, on free loopback ports, runs "
            "the job as `muster run` does, and stops the daemons. Workers have as many slots as "
            "the job needs, even if there are fewer cores.",
            "A command runs in the current folder with the whole environment of this program, and "
            "the files that it writes are kept. With `files` or --files, each rank runs in a "
            "directory of its own instead.",
            "All processes and logs are removed afterwards, also after Ctrl-C, which cancels the "
            "job (a second Ctrl-C ends it at once), and if this program is killed. --keep stores "
            "the logs and the ranks' own directories in a directory that is kept.",
            "Checkpoints are written to ./muster-checkpoints/JOB, which is kept, unless the spec "
            "names another directory.",
            kJobOptionsText},
       .exits = {{"66", "The spec or a daemon's binary cannot be read"},
                 {"73", "The directory for logs cannot be created"},
                 {"130", "Interrupted"},
                 {"others", "As for `muster run`"}},
       .examples = {{"muster local job.yaml", "test a spec before submitting it to a cluster"},
                    {"muster local --ranks-per-node 4 -- python3 train.py",
                     "run a PyTorch script in four processes"},
                    {"muster local job.yaml --keep /tmp/run", "keep the logs"}}});
  AddJobOptions(verb, flags->job);
  verb.add_option(
          "--keep", flags->cluster.keep_directory,
          "Keep logs and the ranks' files in this directory, which must be empty or not exist")
      ->type_name("DIR");
  verb.add_option("--coordinator-binary", flags->cluster.coordinator_binary,
                  "Path of muster-coordinator (default: next to this program)")
      ->type_name("FILE");
  verb.add_option("--worker-binary", flags->cluster.worker_binary,
                  "Path of muster-worker (default: next to this program)")
      ->type_name("FILE");
  verb.callback([&context, flags] {
    RequireJob(flags->job, context.trailing);
    context.action = [&context, flags] { return Local(context, *flags); };
  });
}

}  // namespace muster::cli
