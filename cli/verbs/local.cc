// `muster local`.
#include <cstdlib>
#include <memory>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/follow/follow_run.h"
#include "cli/local/local_cluster.h"
#include "cli/local/local_job.h"
#include "cli/spec/job_options.h"
#include "cli/spec/spec_file.h"
#include "cli/verb.h"
#include "spec/spec.h"

namespace muster::cli {
namespace {

struct LocalFlags {
  JobOptions job;
  LocalClusterOptions cluster;
};

// Whoever waits for the job hears of a daemon that ended.
int RunJob(Context& context, const LocalFlags& flags, const v1::JobSpec& spec,
           LocalCluster& cluster) {
  Stopper stopper;
  cluster.Watch([&stopper] { stopper.Stop(); });
  ClusterClient::Options options;
  options.address = cluster.address();
  ClusterClient client(options);
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  const absl::StatusOr<v1::SubmitJobResponse> response = client.SubmitJob(request);
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
  const absl::StatusOr<v1::JobSpec> spec = MakeSpec(flags.job, context.trailing);
  if (!spec.ok()) return context.Fail(spec.status(), SpecExitCode(spec.status()));
  v1::JobSpec defaulted = *spec;
  spec::ApplyDefaults(defaulted);
  FitToJob(defaulted, flags.cluster);
  NoteSharedCores(flags.cluster, context.console);
  absl::StatusOr<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Start(flags.cluster);
  if (!cluster.ok()) return context.Fail(cluster.status(), ExitCodeOfStart(cluster.status()));
  // The coordinator's own token, and no other.
  setenv("MUSTER_TOKEN_DIR", absl::StrCat((*cluster)->directory(), "/tokens").c_str(), 1);
  const int exit_code = RunJob(context, flags, *spec, **cluster);
  if (!flags.cluster.keep_directory.empty()) {
    context.console.Note(absl::StrCat("logs are in ", (*cluster)->directory()));
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
           {"Starts a coordinator and as many workers as the job has nodes, on loopback and on "
            "free "
            "ports, runs the job as `muster run` does, and stops all of it again. Slots are as "
            "many "
            "as the job needs, also where there are fewer cores.",
            "What was started is gone afterwards, with its logs: also after Ctrl-C, which cancels "
            "the "
            "job (again: at once), and when this program is killed. --keep puts the logs and the "
            "ranks' own directories where they stay.",
            kJobOptionsText},
       .exits = {{"66", "The spec, or a daemon's program, cannot be read"},
                 {"73", "No directory for the logs can be made"},
                 {"130", "Interrupted"},
                 {"others", "The job's, as of `muster run`"}},
       .examples = {{"muster local job.yaml", "try a spec before a cluster has it"},
                    {"muster local --ranks-per-node 4 -- python3 train.py",
                     "a PyTorch script on four processes"},
                    {"muster local job.yaml --keep /tmp/run", "and look at its logs afterwards"}}});
  AddJobOptions(verb, flags->job);
  verb.add_option("--keep", flags->cluster.keep_directory,
                  "An empty directory, made where missing, for logs and the ranks' own files")
      ->type_name("DIR");
  verb.add_option("--coordinator-binary", flags->cluster.coordinator_binary,
                  "Instead of muster-coordinator beside this program")
      ->type_name("FILE");
  verb.add_option("--worker-binary", flags->cluster.worker_binary,
                  "Instead of muster-worker beside this program")
      ->type_name("FILE");
  verb.callback([&context, flags] {
    RequireJob(flags->job, context.trailing);
    context.action = [&context, flags] { return Local(context, *flags); };
  });
}

}  // namespace muster::cli
