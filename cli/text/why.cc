#include "cli/text/why.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "cli/output/words.h"
#include "cli/text/job_description.h"
#include "cli/text/job_text.h"
#include "cli/text/queue_text.h"
#include "common/text/checkpoint_texts.h"
#include "common/time/proto_time.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

// The reason of a job that was just submitted.
constexpr char kWaitingForResources[] = "WaitingForResources";
// Maximum number of jobs ahead in the queue that are named.
constexpr size_t kNamedAhead = 5;
// Stragglers that are listed after the slowest one.
constexpr size_t kNamedStragglers = 4;
// Lines of a stack that are shown; `-o json` has the others.
constexpr size_t kStackLines = 12;

absl::Duration Silence(const v1::RankStatus& rank) {
  return rank.has_last_seen() ? FromProto(rank.last_seen()) : absl::ZeroDuration();
}

std::string Seconds(absl::Duration duration) {
  return duration < absl::Minutes(2) ? absl::StrFormat("%.1f s", absl::ToDoubleSeconds(duration))
                                     : Age(duration);
}

std::string Count(uint64_t number, absl::string_view what) {
  return absl::StrCat(number, " ", what, number == 1 ? "" : "s");
}

template <typename... Parts>
void AddLine(std::string& out, const Parts&... parts) {
  absl::StrAppend(&out, Printable(absl::StrCat(parts...)), "\n");
}

void AddMissing(const v1::Wait& wait, std::string& out) {
  for (const v1::WaitedFor& who : wait.missing()) out += BlockerLines(who);
}

// ---- One function per state.

std::string QueuedHead(const v1::Job& job, absl::Time now) {
  std::string line = absl::StrCat(job.job_id(), " is queued");
  if (job.queue_position() == 1 && job.unplaceable().empty()) {
    absl::StrAppend(&line, ", at the head of the queue");
  } else if (job.queue_position() > 0) {
    absl::StrAppend(&line, ", position ", job.queue_position());
  }
  if (job.has_submit_time()) {
    absl::StrAppend(&line, "; submitted ", AgeSince(job.submit_time(), now), " ago");
  }
  return line + ".";
}

// The job's array, and the number of its preemptions.
void AddHistory(const v1::Job& job, std::string& out) {
  if (!job.array_id().empty()) {
    AddLine(out, "It is task ", job.array_index(), " of array ", job.array_id(), ", which has ",
            job.array_count(), ".");
  }
  if (job.preemptions() > 0) {
    AddLine(out, "Jobs of a higher class have preempted it ",
            job.preemptions() == 1 ? "once" : Count(job.preemptions(), "time"), ".");
  }
}

void RemoveJobsOwnReasons(v1::Wait& wait) {
  auto& missing = *wait.mutable_missing();
  missing.erase(std::remove_if(missing.begin(), missing.end(),
                               [](const v1::WaitedFor& entry) { return entry.node().empty(); }),
                missing.end());
}

void AddEstimate(const v1::Job& job, absl::Time now, std::string& out) {
  if (!job.unplaceable().empty()) return;
  const absl::string_view basis = job.estimate_basis();
  if (!job.has_estimated_start_time()) {
    AddLine(out, "No start time can be estimated: ",
            basis.empty() ? "jobs ahead of it have no time limit, or nodes are missing"
                          : absl::StripPrefix(basis, "unknown: "),
            ".");
    return;
  }
  const absl::Time start = FromProto(job.estimated_start_time());
  if (start <= now) {
    AddLine(out, "It should start any moment.");
  } else {
    AddLine(out, "It should start within ", Age(start - now), ", at ",
            absl::FormatTime("%H:%M:%S", start, absl::LocalTimeZone()),
            // A delayed job has no jobs ahead of it.
            !basis.empty()             ? absl::StrCat(". Estimated from ", basis, ".")
            : job.queue_position() > 0 ? ", if the jobs ahead of it keep their time limits."
                                       : ".");
  }
}

void AddAhead(const std::vector<v1::Job>& ahead, std::string& out) {
  if (ahead.empty()) return;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(ahead.size(), kNamedAhead); ++i) {
    names.push_back(
        absl::StrCat(ahead[i].job_id(), " (priority ", ahead[i].spec().priority(), ")"));
  }
  std::string line = absl::StrCat("Ahead of it: ", absl::StrJoin(names, ", "));
  if (ahead.size() > kNamedAhead) {
    absl::StrAppend(&line, " and ", ahead.size() - kNamedAhead, " more");
  }
  AddLine(out, line + ".");
}

void AddQueued(const WhyFacts& facts, absl::Time now, std::string& out) {
  AddLine(out, QueuedHead(facts.job, now));
  AddHistory(facts.job, out);
  // The reason of every new job; the lines below are more specific.
  if (facts.job.generation() > 0 && facts.job.reason() != kWaitingForResources &&
      !facts.job.reason().empty()) {
    AddLine(out, "It was requeued: ", facts.job.reason(), facts.job.message().empty() ? "" : ": ",
            facts.job.message());
  }
  if (!facts.job.unplaceable().empty()) {
    AddLine(out, "It does not fit on the cluster: ", facts.job.unplaceable(),
            ". Other jobs do not wait for it.");
  }
  AddAhead(facts.ahead, out);
  for (v1::Wait wait : facts.job.waits()) {
    // The job's own needs are printed above, the nodes' reasons are not.
    if (!facts.job.unplaceable().empty()) RemoveJobsOwnReasons(wait);
    if (wait.missing().empty()) continue;
    AddLine(out, "It cannot start yet:");
    AddMissing(wait, out);
  }
  AddEstimate(facts.job, now, out);
}

// Names the slowest rank and the criterion, or reports that no rank is behind.
std::string SlowestText(const SlowestRank& slowest) {
  const v1::RankStatus& rank = *slowest.rank;
  std::string who = absl::StrCat("rank ", rank.rank(), " on ", rank.node());
  if (rank.pid() > 0) absl::StrAppend(&who, ", pid ", rank.pid());
  const std::string report = absl::StrCat("last report ", Seconds(Silence(rank)), " ago");
  const v1::Progress& progress = rank.progress();
  switch (slowest.by) {
    case SlowestRank::By::kCollectives:
      return absl::StrCat("Slowest: ", who, ": it has finished ",
                          Count(progress.collective_sequence(), "collective"), ", others ",
                          slowest.collectives, "; ", report, ".");
    case SlowestRank::By::kStep:
      return absl::StrCat("Slowest: ", who, ": it is at step ", progress.step(), ", others at ",
                          slowest.step, "; ", report, ".");
    case SlowestRank::By::kOwnTime:
      return absl::StrCat("Slowest: ", slowest.straggler->message(), "; now ",
                          absl::StrFormat("%.0f", 100 * (SlowdownOf(*slowest.straggler, rank) - 1)),
                          " %; pid ", rank.pid(), ", ", report, ".");
    case SlowestRank::By::kSilence:
      break;
  }
  const bool has_progress = slowest.collectives > 0 || slowest.step > 0;
  return absl::StrCat(has_progress
                          ? absl::StrCat("No rank is behind: all are at collective ",
                                         slowest.collectives, " and step ", slowest.step, ".")
                          : "Its ranks report no collectives or steps.",
                      " Oldest report: ", who, ", ", report, ".");
}

// The verdict, and the innermost frames of the suspect.
void AddHang(const v1::Job& job, absl::Time now, std::string& out) {
  const v1::Hang& hang = job.hang();
  const absl::Duration silence = FromProto(hang.silence()) + (now - FromProto(hang.time()));
  // Without a hang_timeout, the steps of a training are watched.
  const bool by_steps = job.spec().has_train() && !job.spec().has_hang_timeout();
  AddLine(out, "It hangs: ",
          by_steps ? "no rank has completed a step"
                   : "no output, progress or file input and output of any rank",
          " for ", Seconds(silence), "; ", hang.message(), ".");
  for (const v1::RankInspection& rank : hang.ranks()) {
    if (!hang.has_suspect_rank() || rank.rank() != hang.suspect_rank()) continue;
    const std::vector<std::string> lines = absl::StrSplit(rank.stack(), '\n', absl::SkipEmpty());
    for (size_t i = 0; i < std::min(lines.size(), kStackLines); ++i) AddLine(out, "  " + lines[i]);
  }
}

void AddUnkillable(const v1::Job& job, std::string& out) {
  for (const v1::RankStatus& rank : job.ranks()) {
    if (!rank.unkillable()) continue;
    AddLine(out, "Rank ", rank.rank(), " on ", rank.node(),
            " outlived SIGKILL; no rank is placed on its slots until it ends: muster "
            "node describe ",
            rank.node());
  }
}

void AddActive(const v1::Job& job, absl::Time now, std::string& out) {
  std::string head =
      absl::StrCat(job.job_id(), " is ", StateWord(job.state()), ", generation ", job.generation());
  if (job.restarts() > 0) absl::StrAppend(&head, " after ", Count(job.restarts(), "restart"));
  if (job.has_start_time()) {
    absl::StrAppend(&head, "; first started ", AgeSince(job.start_time(), now), " ago");
  }
  AddLine(out, head + ".");
  if (job.has_first_failure()) {
    AddLine(out, "Generation ", job.first_failure().generation(),
            " failed: ", FailureText(job.first_failure()), ".");
  }
  const std::string progress = ProgressText(job);
  if (!progress.empty()) AddLine(out, "Progress: ", progress);
  const std::string failures = CheckpointFailures(job.checkpoint());
  if (!failures.empty()) AddLine(out, "Checkpoints: ", failures, ".");
  if (job.has_hang()) AddHang(job, now, out);
  for (const v1::Wait& wait : job.waits()) {
    AddLine(out, "Waiting for ", wait.what(), " for ", Seconds(FromProto(wait.since())),
            wait.missing().empty() ? "." : "; missing:");
    AddMissing(wait, out);
  }
  if (job.waits().empty() && !job.has_hang() && job.stragglers().empty()) {
    AddLine(out, "No rank is waiting for another one.");
  }
  const std::optional<SlowestRank> slowest = FindSlowest(job);
  if (!slowest.has_value()) return;
  AddLine(out, SlowestText(*slowest));
  size_t others = 0;
  for (const v1::Straggler& straggler : job.stragglers()) {
    if (&straggler == slowest->straggler) continue;
    if (++others <= kNamedStragglers) AddLine(out, "  ", straggler.message());
  }
  if (others > kNamedStragglers) {
    AddLine(out, "  and ", Count(others - kNamedStragglers, "more slow rank"));
  }
}

void AddStopping(const v1::Job& job, std::string& out) {
  const std::string message = MessageBesidesFailure(job);
  AddLine(out, job.job_id(), " is stopping: ", job.reason(), message.empty() ? "" : ": ", message);
  for (const v1::Wait& wait : job.waits()) {
    if (wait.missing().empty()) continue;
    AddLine(out, "Not ended after ", Seconds(FromProto(wait.since())), ":");
    AddMissing(wait, out);
  }
  AddUnkillable(job, out);
  if (job.has_first_failure()) {
    AddLine(out, "Cause: ", FailureText(job.first_failure()));
    out += FailureDetailText(job.first_failure());
  }
}

void AddOver(const v1::Job& job, absl::Time now, std::string& out) {
  std::string head = absl::StrCat(job.job_id(), " ", StateWord(job.state()));
  if (job.state() == v1::CANCELLED) head = absl::StrCat(job.job_id(), " was cancelled");
  if (job.has_finish_time()) absl::StrAppend(&head, " ", AgeSince(job.finish_time(), now), " ago");
  if (job.has_finish_time() && job.has_start_time()) {
    absl::StrAppend(&head, ", ",
                    Elapsed(FromProto(job.finish_time()) - FromProto(job.start_time())),
                    " after its first start");
  }
  if (job.state() != v1::SUCCEEDED) absl::StrAppend(&head, "; exit status ", ExitCodeOf(job));
  AddLine(out, head + ".");
  if (job.state() == v1::SUCCEEDED) {
    if (job.restarts() > 0) AddLine(out, "It needed " + Count(job.restarts(), "restart") + ".");
  } else if (!job.reason().empty()) {
    const std::string message = MessageBesidesFailure(job);
    const bool repeated = message.empty() && job.first_failure().reason() == job.reason();
    if (!repeated) {
      AddLine(out, job.reason(), message.empty() ? "" : ": ", message);
    }
  }
  AddUnkillable(job, out);
  for (const v1::FirstFailure& failure : job.past_failures()) {
    if (failure.generation() == job.first_failure().generation()) continue;
    AddLine(out, "Generation ", failure.generation(), " failed: ", FailureText(failure));
  }
  if (job.past_failures_omitted() > 0) AddLine(out, OmittedFailuresText(job) + ".");
  if (!job.has_first_failure()) return;
  AddLine(out, job.state() == v1::SUCCEEDED ? "Generation " : "First failure, generation ",
          job.first_failure().generation(), job.state() == v1::SUCCEEDED ? " failed: " : ": ",
          FailureText(job.first_failure()));
  out += FailureDetailText(job.first_failure());
  const std::string consequences = ConsequencesText(job);
  if (!consequences.empty()) AddLine(out, consequences);
}

nlohmann::ordered_json SlowestJson(const SlowestRank& slowest) {
  const v1::RankStatus& rank = *slowest.rank;
  const char* by[] = {"collectives", "step", "silence", "own_time"};
  nlohmann::ordered_json json;
  json["rank"] = rank.rank();
  json["node"] = rank.node();
  json["pid"] = rank.pid();
  json["judged_by"] = by[static_cast<int>(slowest.by)];
  json["collective_sequence"] = rank.progress().collective_sequence();
  json["furthest_collective_sequence"] = slowest.collectives;
  json["step"] = rank.progress().step();
  json["furthest_step"] = slowest.step;
  json["silent_seconds"] = absl::ToDoubleSeconds(Silence(rank));
  if (slowest.straggler != nullptr) {
    json["phase"] = slowest.straggler->phase();
    json["slowdown"] = SlowdownOf(*slowest.straggler, rank);
    json["since_step"] = slowest.straggler->since_step();
  }
  return json;
}

}  // namespace

const v1::Straggler* FindStraggler(const v1::Job& job, const v1::RankStatus& rank) {
  if (rank.phase() == v1::EXITED) return nullptr;
  for (const v1::Straggler& straggler : job.stragglers()) {
    if (straggler.rank() == rank.rank()) return &straggler;
  }
  return nullptr;
}

double SlowdownOf(const v1::Straggler& straggler, const v1::RankStatus& rank) {
  return rank.slowdown() > 0 ? rank.slowdown() : straggler.slowdown();
}

std::optional<SlowestRank> FindSlowest(const v1::Job& job) {
  SlowestRank slowest;
  const auto place = [](const v1::RankStatus& rank) {
    return std::make_tuple(rank.progress().collective_sequence(), rank.progress().step(),
                           -Silence(rank));
  };
  // A script may report from one rank only.
  const bool any_reports =
      std::any_of(job.ranks().begin(), job.ranks().end(),
                  [](const v1::RankStatus& rank) { return rank.has_progress(); });
  int compared = 0;
  for (const v1::RankStatus& rank : job.ranks()) {
    if (rank.phase() == v1::EXITED || rank.phase() == v1::RANK_PHASE_UNSPECIFIED) continue;
    if (any_reports && !rank.has_progress()) continue;
    ++compared;
    slowest.collectives = std::max(slowest.collectives, rank.progress().collective_sequence());
    slowest.step = std::max(slowest.step, rank.progress().step());
    if (slowest.rank == nullptr || place(rank) < place(*slowest.rank)) slowest.rank = &rank;
  }
  if (compared < 2) return std::nullopt;
  for (const v1::RankStatus& rank : job.ranks()) {
    const v1::Straggler* const straggler = FindStraggler(job, rank);
    if (straggler == nullptr) continue;
    const bool slower =
        slowest.straggler == nullptr ||
        SlowdownOf(*straggler, rank) > SlowdownOf(*slowest.straggler, *slowest.rank);
    if (!slower) continue;
    slowest.by = SlowestRank::By::kOwnTime;
    slowest.rank = &rank;
    slowest.straggler = straggler;
  }
  if (slowest.straggler != nullptr) return slowest;
  const v1::Progress& progress = slowest.rank->progress();
  if (progress.collective_sequence() < slowest.collectives) {
    slowest.by = SlowestRank::By::kCollectives;
  } else if (progress.step() < slowest.step) {
    slowest.by = SlowestRank::By::kStep;
  }
  return slowest;
}

std::string WhyText(const WhyFacts& facts, absl::Time now) {
  const v1::Job& job = facts.job;
  std::string out;
  if (job.state() == v1::QUEUED) {
    AddQueued(facts, now, out);
  } else if (job.state() == v1::HELD) {
    AddLine(out, job.job_id(), " is held",
            job.message().empty() ? "" : absl::StrCat(": ", job.message()));
    AddLine(out, "`muster release ", job.job_id(), "` lets it start.");
  } else if (job.state() == v1::STOPPING) {
    AddStopping(job, out);
  } else if (IsOver(job.state())) {
    AddOver(job, now, out);
  } else {
    AddActive(job, now, out);
  }
  return out;
}

nlohmann::ordered_json WhyJson(const WhyFacts& facts, absl::Time now) {
  const v1::Job& job = facts.job;
  const nlohmann::ordered_json whole = JobToJson(job);
  nlohmann::ordered_json json;
  const auto take = [&](const char* field) {
    if (whole.contains(field)) json[field] = whole[field];
  };
  for (const char* field : {"job_id", "state", "reason", "message", "generation", "restarts"}) {
    take(field);
  }
  json["answer"] = WhyText(facts, now);
  if (job.state() == v1::QUEUED) {
    take("queue_position");
    take("unplaceable");
    json["ahead"] = nlohmann::ordered_json::array();
    for (const v1::Job& other : facts.ahead) json["ahead"].push_back(other.job_id());
    take("estimated_start_time");
    take("estimate_basis");
  }
  take("hang");
  take("waits");
  take("stragglers");
  if (job.state() == v1::STARTING || job.state() == v1::RUNNING) {
    const std::optional<SlowestRank> slowest = FindSlowest(job);
    if (slowest.has_value()) json["slowest"] = SlowestJson(*slowest);
  }
  if (IsOver(job.state())) json["exit_code"] = ExitCodeOf(job);
  take("first_failure");
  take("past_failures");
  take("past_failures_omitted");
  return json;
}

}  // namespace muster::cli
