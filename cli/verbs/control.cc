// `muster cancel`, `hold`, `release`.
#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/duration_option.h"
#include "cli/exit_code.h"
#include "cli/job_text.h"
#include "cli/output/json.h"
#include "common/proto_time.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

constexpr absl::Duration kJobsOwnGrace = absl::InfiniteDuration();

struct CancelFlags {
  std::vector<std::string> job_ids;
  absl::Duration grace = kJobsOwnGrace;
};

void PrintJob(Context& context, const v1::Job& job) {
  if (context.structured()) {
    context.Print(JobToJson(job));
  } else if (context.output == Output::kName) {
    context.console.Out(absl::StrCat(job.job_id(), "\n"));
  } else {
    context.console.Out(absl::StrCat(job.job_id(), " ", StateWord(job.state()), "\n"));
  }
}

int CancelJobs(Context& context, const CancelFlags& flags) {
  ClusterClient client(context.client_options());
  int exit_code = kSuccess;
  for (const std::string& job_id : flags.job_ids) {
    v1::CancelJobRequest request;
    request.set_job_id(job_id);
    if (flags.grace != kJobsOwnGrace) *request.mutable_grace_period() = ToProto(flags.grace);
    const absl::StatusOr<v1::Job> job = client.CancelJob(request);
    if (!job.ok()) {
      exit_code = context.Fail(job.status());
    } else {
      PrintJob(context, *job);
    }
  }
  return exit_code;
}

// For the verbs that take one job and answer with it.
void AddJobVerb(CLI::App& app, Context& context, const std::string& name,
                const std::string& description,
                absl::StatusOr<v1::Job> (ClusterClient::*call)(const std::string&)) {
  CLI::App* verb = app.add_subcommand(name, description);
  auto job_id = std::make_shared<std::string>();
  verb->add_option("JOB", *job_id, "Its id, or a unique prefix")->required();
  verb->callback([&context, job_id, call] {
    context.action = [&context, job_id, call] {
      ClusterClient client(context.client_options());
      const absl::StatusOr<v1::Job> job = (client.*call)(*job_id);
      if (!job.ok()) return context.Fail(job.status());
      PrintJob(context, *job);
      return static_cast<int>(kSuccess);
    };
  });
}

}  // namespace

void AddControlVerbs(CLI::App& app, Context& context) {
  CLI::App* cancel = app.add_subcommand("cancel", "End jobs");
  auto flags = std::make_shared<CancelFlags>();
  cancel->add_option("JOB", flags->job_ids, "Ids, or unique prefixes")->required();
  AddDurationOption(*cancel, "--grace", flags->grace,
                    "From SIGTERM to SIGKILL, instead of the job's own");
  cancel->callback([&context, flags] {
    context.action = [&context, flags] { return CancelJobs(context, *flags); };
  });
  AddJobVerb(app, context, "hold", "Keep a queued job from starting", &ClusterClient::HoldJob);
  AddJobVerb(app, context, "release", "Let a held job start", &ClusterClient::ReleaseJob);
}

}  // namespace muster::cli
