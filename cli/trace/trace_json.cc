#include "cli/trace/trace_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"

namespace muster::cli {
namespace {

using nlohmann::ordered_json;

constexpr int kCoordinator = 1;  // process id
enum CoordinatorThread { kStates = 1, kRecovery = 2, kEvents = 3 };
constexpr char kConnecting[] = "connecting";

double UnixSeconds(const google::protobuf::Timestamp& time) {
  return absl::ToDoubleSeconds(FromProto(time) - absl::UnixEpoch());
}

// Collects trace events. Times are Unix seconds of the coordinator's clock.
class TraceWriter {
 public:
  explicit TraceWriter(double origin) : origin_(origin) {}

  void NameProcess(int process, const std::string& name) {
    Name("process_name", process, 0, name);
    list_.push_back({{"name", "process_sort_index"},
                     {"ph", "M"},
                     {"pid", process},
                     {"tid", 0},
                     {"args", {{"sort_index", process}}}});
  }
  void NameThread(int process, int thread, const std::string& name) {
    Name("thread_name", process, thread, name);
  }
  void Span(int process, int thread, const std::string& name, double begin, double end,
            ordered_json arguments = ordered_json::object()) {
    const int64_t start = Micros(begin);
    list_.push_back({{"name", name},
                     {"ph", "X"},
                     {"ts", start},
                     {"dur", std::max<int64_t>(0, Micros(end) - start)},
                     {"pid", process},
                     {"tid", thread},
                     {"args", std::move(arguments)}});
  }
  void Instant(int process, int thread, const std::string& name, double time,
               ordered_json arguments) {
    list_.push_back({{"name", name},
                     {"ph", "i"},
                     {"s", "t"},
                     {"ts", Micros(time)},
                     {"pid", process},
                     {"tid", thread},
                     {"args", std::move(arguments)}});
  }
  ordered_json Take() { return std::move(list_); }

 private:
  int64_t Micros(double time) const { return std::llround((time - origin_) * 1e6); }
  void Name(const char* kind, int process, int thread, const std::string& name) {
    list_.push_back({{"name", kind},
                     {"ph", "M"},
                     {"pid", process},
                     {"tid", thread},
                     {"args", {{"name", name}}}});
  }

  const double origin_;
  ordered_json list_ = ordered_json::array();
};

// When the coordinator saw a generation reach its stages.
struct GenerationTimes {
  std::optional<double> placed;
  std::optional<double> joined;  // all ranks
  std::optional<double> running;
  std::optional<double> failed;  // the first sign of the failure that ended it
  std::optional<double> verdict;
  std::optional<double> first_step;  // of the lowest rank that recorded one
  std::string failure;
  double end = 0;
};

using Generations = std::map<uint64_t, GenerationTimes>;

bool IsFailure(const std::string& type) {
  return type == "RankFailed" || type == "NodeLost" || type == "FirstFailure";
}

Generations TimesOf(absl::Span<const v1::JobEvent> events, double end) {
  Generations generations;
  for (const v1::JobEvent& event : events) {
    if (event.generation() == 0) continue;
    GenerationTimes& times = generations[event.generation()];
    const double time = UnixSeconds(event.time());
    times.end = time;
    if (event.type() == "Placed") times.placed = time;
    if (event.type() == "WorldSent") times.joined = time;
    if (event.type() == "Running") times.running = time;
    if (IsFailure(event.type()) && !times.failed.has_value()) times.failed = time;
    if (event.type() == "FirstFailure") {
      times.verdict = time;
      times.failure = event.message();
    }
  }
  if (!generations.empty()) generations.rbegin()->second.end = end;
  return generations;
}

// The shift of a node's clock: see TraceJson.
double ShiftOf(const std::string& node, absl::Span<const RankTrace> ranks,
               const Generations& generations) {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  for (const RankTrace& rank : ranks) {
    const auto found = generations.find(rank.generation);
    if (rank.node != node || rank.phases.empty() || found == generations.end()) continue;
    if (found->second.placed.has_value()) {
      least = std::max(least, *found->second.placed - rank.phases.front().start);
    }
    for (const RankTrace::Phase& phase : rank.phases) {
      if (phase.name == kConnecting && found->second.joined.has_value()) {
        most = std::min(most, *found->second.joined - phase.start);
      }
    }
  }
  if (least > 0) return least;
  return most < 0 ? most : 0;
}

void Shift(double seconds, RankTrace& rank) {
  for (RankTrace::Phase& phase : rank.phases) phase.start += seconds;
  for (RankTrace::Step& step : rank.steps) step.end += seconds;
}

// The name of the job's state after an event; empty if the event does not change it.
std::string StateAfter(const v1::JobEvent& event, const std::string& state, bool trains) {
  const std::string& type = event.type();
  if (type == "Submitted" || type == "Released" || type == "Requeued") return "queued";
  if (type == "Held") return "held";
  if (type == "Placed") return "launch and join";
  if (type == "WorldSent") return "connect";
  if (type == "Running") return trains ? "first step" : "running";
  if (type == "Stopping") return "stopping";
  const bool active = state != "queued" && state != "held";
  return IsFailure(type) && active ? "failed" : "";
}

// The states of the job, one after the other.
void WriteStates(const v1::Job& job, absl::Span<const v1::JobEvent> events,
                 const Generations& generations, double end, TraceWriter& out) {
  std::string state;
  double since = 0;
  uint64_t generation = 0;
  const auto enter = [&](const std::string& next, double time, uint64_t number) {
    if (next == state) return;
    ordered_json arguments = ordered_json::object();
    if (generation > 0) arguments["generation"] = generation;
    if (!state.empty()) out.Span(kCoordinator, kStates, state, since, time, arguments);
    state = next;
    since = time;
    generation = number;
  };
  // The first step is no event.
  const auto pass_first_step = [&](double until) {
    const auto found = generations.find(generation);
    if (state != "first step" || found == generations.end()) return;
    const std::optional<double>& first = found->second.first_step;
    if (first.has_value() && *first <= until) {
      enter("training", std::max(since, *first), generation);
    }
  };
  for (const v1::JobEvent& event : events) {
    const double time = UnixSeconds(event.time());
    pass_first_step(time);
    if (event.type() == "Finished") {
      enter("", time, 0);
      continue;
    }
    const std::string next = StateAfter(event, state, job.spec().has_train());
    if (!next.empty()) enter(next, time, next == "queued" ? 0 : event.generation());
  }
  pass_first_step(end);
  enter("", end, 0);
}

// A span from each failure to the first step of the next generation, or until it runs.
void WriteRecoveries(const Generations& generations, TraceWriter& out) {
  for (auto found = generations.begin(); found != generations.end(); ++found) {
    const auto next = std::next(found);
    const GenerationTimes& failed = found->second;
    if (!failed.failed.has_value() || next == generations.end()) continue;
    const GenerationTimes& resumed = next->second;
    ordered_json arguments = {{"failure", failed.failure}, {"generation", next->first}};
    const std::pair<const char*, std::optional<double>> marks[] = {
        {"verdict", failed.verdict},
        {"placed", resumed.placed},
        {"joined", resumed.joined},
        {"running", resumed.running},
        {"first_step", resumed.first_step}};
    double end = *failed.failed;
    for (const auto& [name, time] : marks) {
      if (!time.has_value()) continue;
      arguments[absl::StrCat(name, "_after_seconds")] = *time - *failed.failed;
      end = std::max(end, *time);
    }
    out.Span(kCoordinator, kRecovery, absl::StrCat("recovery to generation ", next->first),
             *failed.failed, end, std::move(arguments));
  }
}

void WriteEvents(absl::Span<const v1::JobEvent> events, TraceWriter& out) {
  for (const v1::JobEvent& event : events) {
    out.Instant(kCoordinator, kEvents, event.type(), UnixSeconds(event.time()),
                {{"message", event.message()}, {"generation", event.generation()}});
  }
}

// The parts follow each other from the beginning of the step: their lengths are measured, their
// order is that in which a step begins with them.
void WriteStep(const RankTrace::Step& step, int process, int thread, double earliest, double latest,
               TraceWriter& out) {
  const double end = std::min(step.end, latest);
  const double begin = std::max(step.end - step.seconds, earliest);
  if (begin >= end) return;
  out.Span(process, thread, absl::StrCat("step ", step.number), begin, end,
           {{"step", step.number}});
  double from = begin;
  for (const RankTrace::Part& part : step.parts) {
    const double to = std::min(from + part.seconds, end);
    if (to > from) out.Span(process, thread, part.name, from, to);
    from = to;
  }
}

void WriteRank(const RankTrace& rank, int process, double end, TraceWriter& out) {
  const int thread = static_cast<int>(rank.rank) + 1;
  const double last = rank.steps.empty() ? 0 : rank.steps.back().end;
  size_t step = 0;
  for (size_t i = 0; i < rank.phases.size(); ++i) {
    const RankTrace::Phase& phase = rank.phases[i];
    const bool is_last = i + 1 == rank.phases.size();
    const double until = is_last ? std::max({end, last, phase.start})
                                 : std::max(rank.phases[i + 1].start, phase.start);
    out.Span(process, thread, phase.name, phase.start, until, {{"generation", rank.generation}});
    double earliest = phase.start;
    for (; step < rank.steps.size() && (is_last || rank.steps[step].end <= until); ++step) {
      WriteStep(rank.steps[step], process, thread, earliest, until, out);
      earliest = std::max(earliest, std::min(rank.steps[step].end, until));
    }
  }
}

// Adds the coordinator's view of a rank that has recorded nothing, such as one of a command job.
void WriteUnrecorded(const v1::RankStatus& rank, const GenerationTimes& times, uint64_t generation,
                     int process, TraceWriter& out) {
  if (!times.placed.has_value()) return;
  ordered_json arguments = {{"generation", generation}};
  if (rank.has_exit()) {
    arguments["exit_code"] = rank.exit().exit_code();
    if (rank.exit().signal() != 0) arguments["signal"] = rank.exit().signal();
  }
  const double end = rank.exit().has_time() ? UnixSeconds(rank.exit().time()) : times.end;
  out.Span(process, static_cast<int>(rank.rank()) + 1, "process", *times.placed,
           std::max(end, *times.placed), std::move(arguments));
}

// A process per node, a thread per rank.
class Nodes {
 public:
  explicit Nodes(TraceWriter& out) : out_(out) {}

  int ProcessOf(const std::string& node, uint32_t rank) {
    const auto [found, is_new] =
        processes_.try_emplace(node, kCoordinator + 1 + static_cast<int>(processes_.size()));
    if (is_new) out_.NameProcess(found->second, absl::StrCat("node ", node));
    if (ranks_.emplace(node, rank).second) {
      out_.NameThread(found->second, static_cast<int>(rank) + 1, absl::StrCat("rank ", rank));
    }
    return found->second;
  }

 private:
  TraceWriter& out_;
  std::map<std::string, int> processes_;
  std::set<std::pair<std::string, uint32_t>> ranks_;
};

void NoteFirstSteps(absl::Span<const RankTrace> ranks, Generations& generations) {
  for (const RankTrace& rank : ranks) {
    const auto found = generations.find(rank.generation);
    if (found == generations.end() || rank.steps.empty()) continue;
    std::optional<double>& first = found->second.first_step;
    if (!first.has_value()) first = rank.steps.front().end;
  }
}

}  // namespace

ordered_json TraceJson(const v1::Job& job, absl::Span<const v1::JobEvent> events,
                       absl::Span<const RankTrace> ranks, absl::Time now) {
  const double end = job.has_finish_time() ? UnixSeconds(job.finish_time())
                                           : absl::ToDoubleSeconds(now - absl::UnixEpoch());
  Generations generations = TimesOf(events, end);
  std::vector<RankTrace> shifted(ranks.begin(), ranks.end());
  std::stable_sort(shifted.begin(), shifted.end(), [](const RankTrace& a, const RankTrace& b) {
    return std::pair(a.generation, a.rank) < std::pair(b.generation, b.rank);
  });
  std::map<std::string, double> shifts;
  for (const RankTrace& rank : ranks) {
    if (shifts.count(rank.node) == 0) shifts[rank.node] = ShiftOf(rank.node, ranks, generations);
  }
  for (RankTrace& rank : shifted) Shift(shifts[rank.node], rank);
  NoteFirstSteps(shifted, generations);

  TraceWriter out(UnixSeconds(job.submit_time()));
  out.NameProcess(kCoordinator, absl::StrCat("coordinator: ", job.job_id()));
  out.NameThread(kCoordinator, kStates, "state");
  out.NameThread(kCoordinator, kRecovery, "recovery");
  out.NameThread(kCoordinator, kEvents, "events");
  WriteStates(job, events, generations, end, out);
  WriteRecoveries(generations, out);
  WriteEvents(events, out);
  Nodes nodes(out);
  std::set<uint32_t> recorded;  // ranks of the newest generation
  for (const RankTrace& rank : shifted) {
    const double rank_end =
        generations.count(rank.generation) > 0 ? generations[rank.generation].end : end;
    WriteRank(rank, nodes.ProcessOf(rank.node, rank.rank), rank_end, out);
    if (rank.generation == job.generation()) recorded.insert(rank.rank);
  }
  for (const v1::RankStatus& rank : job.ranks()) {
    if (recorded.count(rank.rank()) > 0) continue;
    WriteUnrecorded(rank, generations[job.generation()], job.generation(),
                    nodes.ProcessOf(rank.node(), rank.rank()), out);
  }
  ordered_json corrections = ordered_json::object();
  for (const auto& [node, seconds] : shifts) corrections[node] = seconds;
  return {{"traceEvents", out.Take()},
          {"displayTimeUnit", "ms"},
          {"otherData",
           {{"job_id", job.job_id()},
            {"start_time", absl::FormatTime("%Y-%m-%d%ET%H:%M:%E*SZ", FromProto(job.submit_time()),
                                            absl::UTCTimeZone())},
            {"clock",
             "the coordinator's; of ranks the clocks of their nodes, shifted by "
             "clock_corrections_seconds"},
            {"clock_corrections_seconds", corrections}}}};
}

}  // namespace muster::cli
