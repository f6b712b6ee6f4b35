// `muster trace`.
#include <algorithm>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/follow/signals.h"
#include "cli/logs/selection.h"
#include "cli/trace/rank_trace.h"
#include "cli/trace/trace_json.h"
#include "cli/verb.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

// Ranks and newest generations whose steps are read without --rank.
constexpr size_t kMostRanks = 64;
constexpr uint64_t kMostGenerations = 4;
// A rank's file is smaller; more is not read.
constexpr size_t kMostBytes = 4 << 20;

struct TraceFlags {
  std::string job_id;
  std::string ranks;
};

absl::StatusOr<RankTrace> ReadRank(ClusterClient& client, const v1::Job& job, uint64_t generation,
                                   uint32_t rank, Stopper& stopper) {
  v1::ReadFilesRequest request;
  request.set_job_id(job.job_id());
  request.set_rank(rank);
  request.set_generation(generation);
  request.set_path(RankTracePath(generation));
  std::string archive;
  RETURN_IF_ERROR(client.ReadFiles(request, stopper, [&](const v1::ArchiveChunk& chunk) {
    archive += chunk.data();
    return archive.size() <= kMostBytes;
  }));
  ASSIGN_OR_RETURN(const std::string text, FirstFileOf(archive));
  return ParseRankTrace(text);
}

// Reads what the ranks have recorded, and notes on stderr whose steps are missing.
std::vector<RankTrace> ReadRanks(Context& context, ClusterClient& client, const v1::Job& job,
                                 const std::vector<uint32_t>& ranks, Stopper& stopper) {
  std::vector<RankTrace> traces;
  const uint64_t newest = job.generation();
  const uint64_t oldest = newest > kMostGenerations ? newest - kMostGenerations + 1 : 1;
  for (uint64_t generation = oldest; generation <= newest; ++generation) {
    for (const uint32_t rank : ranks) {
      if (stopper.stopped()) return traces;
      absl::StatusOr<RankTrace> trace = ReadRank(client, job, generation, rank, stopper);
      if (trace.ok()) {
        traces.push_back(*std::move(trace));
      } else {
        context.console.Note("no steps of rank ", rank, " in generation ", generation, ": ",
                             trace.status().message());
      }
    }
  }
  return traces;
}

absl::StatusOr<std::vector<uint32_t>> RanksOf(Context& context, const v1::Job& job,
                                              const std::string& selected) {
  if (!selected.empty()) return ParseRankSet(selected);
  std::vector<uint32_t> ranks;
  for (const v1::RankStatus& rank : job.ranks()) ranks.push_back(rank.rank());
  std::sort(ranks.begin(), ranks.end());
  if (ranks.size() > kMostRanks) {
    ranks.resize(kMostRanks);
    context.console.Note("steps of the first ", kMostRanks, " of ", job.ranks_size(),
                         " ranks; select others with --rank");
  }
  return ranks;
}

absl::StatusOr<nlohmann::ordered_json> Trace(Context& context, const TraceFlags& flags,
                                             Stopper& stopper) {
  ClusterClient client(context.client_options());
  ASSIGN_OR_RETURN(const v1::Job job, client.GetJob(flags.job_id));
  v1::ListEventsRequest request;
  request.set_job_id(job.job_id());
  ASSIGN_OR_RETURN(const v1::ListEventsResponse events, client.ListEvents(request));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> ranks, RanksOf(context, job, flags.ranks));
  std::vector<RankTrace> traces;
  // Only the built-in trainer records steps, in working directories of its own.
  if (job.spec().has_train() && job.spec().workdir().empty()) {
    traces = ReadRanks(context, client, job, ranks, stopper);
  }
  if (stopper.stopped()) return absl::CancelledError("interrupted");
  const std::vector<v1::JobEvent> list(events.events().begin(), events.events().end());
  return TraceJson(job, list, traces, absl::Now());
}

int RunTrace(Context& context, const TraceFlags& flags) {
  Stopper stopper;
  const SignalWatcher watcher([&stopper](int) { stopper.Stop(); });
  const absl::StatusOr<nlohmann::ordered_json> trace = Trace(context, flags, stopper);
  if (!trace.ok()) return context.Fail(trace.status());
  context.console.Out(absl::StrCat(
      trace->dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace), "\n"));
  return kExitSuccess;
}

}  // namespace

void AddTraceVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "trace", kJobVerbs,
      {.summary = "Print a timeline of a job for Perfetto",
       .usage = "JOB [OPTIONS]",
       .paragraphs =
           {"Prints JSON in Chrome's trace event format, whatever the output format, to be opened "
            "in https://ui.perfetto.dev or chrome://tracing.",
            "The process of the coordinator shows the states of the job from its submission to its "
            "first step and its end, recoveries from failures, and all events. Each node is a "
            "process with a thread per rank, which shows the phases of the rank, such as "
            "evaluations and checkpoints, and sampled steps with the time that they waited for "
            "data, computed, and waited for other ranks.",
            "Ranks of train jobs without a workdir record windows of 16 steps: at first every "
            "second, later every tenth of the generation's age. Their nodes keep the four newest "
            "generations, at most 512 KiB each, as long as the job's logs. Of other ranks, and of "
            "nodes that are gone, only what the coordinator knows is shown. Only the owner of the "
            "job and admins may read what ranks have recorded.",
            "Times are those of the coordinator's clock. Clocks of nodes are shifted by the least "
            "amount with which a rank starts after it was placed and connects before all ranks "
            "have joined; clock_corrections_seconds in otherData has the shifts. Smaller "
            "differences remain."},
       .exits = {{"0", "The trace is printed; notes on stderr name ranks without recorded steps"}},
       .examples = {
           {"muster trace train-x7k2 > trace.json", "all ranks"},
           {"muster trace train-x7k2 --rank 0,8-15 > trace.json", "steps of some ranks"}}});
  auto flags = std::make_shared<TraceFlags>();
  verb.add_option("JOB", flags->job_id, "Job id or name, or a unique prefix of one")->required();
  verb.add_option("--rank", flags->ranks,
                  "Read steps of only these ranks, as in 0,3-5 (default: the first 64)")
      ->type_name("RANKS")
      ->check([](const std::string& text) {
        return std::string(ParseRankSet(text).status().message());
      });
  SetAction(verb, context, flags, RunTrace);
}

}  // namespace muster::cli
