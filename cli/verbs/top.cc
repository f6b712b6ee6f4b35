// `muster top`.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/follow/signals.h"
#include "cli/output/json.h"
#include "cli/output/words.h"
#include "cli/text/top_text.h"
#include "cli/verb.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

// Jobs whose ranks are read for one table.
constexpr int kJobs = 32;
constexpr size_t kRanksPerJob = 8;
// The alternate screen without a cursor, which leaves the text before the command as it was.
constexpr char kEnterScreen[] = "\x1b[?1049h\x1b[?25l";
constexpr char kLeaveScreen[] = "\x1b[?25h\x1b[?1049l";

struct TopFlags {
  std::vector<std::string> job_ids;
  bool mine = false;
  std::string owner;
  bool once = false;
  bool all_ranks = false;
  absl::Duration interval = absl::Seconds(2);
};

bool IsActive(const v1::Job& job) {
  return job.state() == v1::STARTING || job.state() == v1::RUNNING || job.state() == v1::STOPPING;
}

absl::StatusOr<TopFacts> ReadFacts(ClusterClient& client, const TopFlags& flags) {
  TopFacts facts;
  std::vector<std::string> job_ids = flags.job_ids;
  if (job_ids.empty()) {
    v1::ListJobsRequest request;
    request.set_mine(flags.mine);
    request.set_owner(flags.owner);
    ASSIGN_OR_RETURN(const v1::ListJobsResponse response, client.ListJobs(request));
    for (const v1::Job& job : response.jobs()) {
      if (job.state() == v1::QUEUED) ++facts.queued;
      if (!IsActive(job)) continue;
      if (job_ids.size() == kJobs) {
        ++facts.more_jobs;
      } else {
        job_ids.push_back(job.job_id());
      }
    }
  }
  for (const std::string& job_id : job_ids) {
    absl::StatusOr<v1::Job> job = client.GetJob(job_id);
    // A listed job may have been removed since.
    if (flags.job_ids.empty() && absl::IsNotFound(job.status())) continue;
    if (!job.ok()) return job.status();
    facts.jobs.push_back(*std::move(job));
  }
  return facts;
}

void Print(Context& context, const TopFacts& facts, const std::string& text) {
  if (context.structured()) {
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    for (const v1::Job& job : facts.jobs) array.push_back(JobToJson(job));
    context.Print(array);
  } else if (context.output == Output::kName) {
    for (const v1::Job& job : facts.jobs) {
      context.console.Out(absl::StrCat(job.job_id(), "\n"));
    }
  } else {
    context.console.Out(text);
  }
}

// The text in place of what the screen shows, cut off at the last line of the terminal.
std::string Screen(const std::string& text) {
  winsize size = {};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const size_t count = std::min(lines.size(), known ? size_t{size.ws_row} : lines.size());
  std::string out = "\x1b[H";
  for (size_t i = 0; i < count; ++i) {
    absl::StrAppend(&out, lines[i], "\x1b[K", i + 1 < count ? "\r\n" : "");
  }
  return absl::StrCat(out, "\x1b[J");
}

int Top(Context& context, const TopFlags& flags) {
  ClusterClient client(context.client_options());
  const bool table = context.output == Output::kTable || context.output == Output::kWide;
  const size_t max_ranks =
      flags.all_ranks || context.output == Output::kWide ? SIZE_MAX : kRanksPerJob;
  // Errors at the start end the program; later, it waits for the coordinator.
  absl::StatusOr<TopFacts> facts = ReadFacts(client, flags);
  if (!facts.ok()) return context.Fail(facts.status());
  if (flags.once || !table || !context.console.is_terminal()) {
    Print(context, *facts, TopText(*facts, TextWidth(), max_ranks));
    return kExitSuccess;
  }
  Stopper stopper;
  const SignalWatcher watcher([&stopper](int) { stopper.Stop(); });
  context.console.Out(kEnterScreen);
  std::string text;
  do {
    if (facts.ok()) {
      text = TopText(*facts, TextWidth(), max_ranks);
      context.console.Out(Screen(text));
    } else {
      context.console.Out(Screen(absl::StrCat(Printable(facts.status().message()), "\n\n", text)));
    }
    if (!stopper.SleepFor(flags.interval)) break;
    facts = ReadFacts(client, flags);
  } while (!stopper.stopped());
  context.console.Out(kLeaveScreen);
  return kExitSuccess;
}

}  // namespace

void AddTopVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "top", kJobVerbs,
      {.summary = "Show running jobs and their ranks, live",
       .usage = "[JOB...] [OPTIONS]",
       .paragraphs =
           {"Shows each active job with its step, throughput, step time and memory, and below it "
            "its ranks. The note of a rank that others wait for in each step is how much slower it "
            "is, such as `21% slow`; without one, the slowest is marked as in `muster why`. Of a "
            "job with more than 8 ranks, the slowest and the first ones are shown.",
            "On a terminal, the table is redrawn in place until Ctrl-C; otherwise, and "
            "with --once or another format than a table, it is printed once."},
       .exits = {{"0", "The table was printed; the live table was ended by Ctrl-C"}},
       .examples = {{"muster top", "all active jobs"},
                    {"muster top train-x7k2 --ranks", "all ranks of one job"},
                    {"muster top --once --mine", "print a table of your own jobs"}}});
  auto flags = std::make_shared<TopFlags>();
  verb.add_option("JOB", flags->job_ids,
                  "Job ids or names, or unique prefixes of them (default: all active jobs)");
  CLI::Option* const mine = verb.add_flag("--mine", flags->mine, "Show only your own jobs");
  verb.add_option("--user", flags->owner, "Show only jobs of this owner")
      ->type_name("NAME")
      ->excludes(mine);
  verb.add_flag("--ranks", flags->all_ranks, "Show all ranks");
  verb.add_flag("--once", flags->once, "Print the table once");
  AddDurationOption(verb, "--interval", flags->interval, "Time between updates")->default_str("2s");
  SetAction(verb, context, flags, Top);
}

}  // namespace muster::cli
