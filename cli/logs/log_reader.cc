#include "cli/logs/log_reader.h"

#include <algorithm>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/follow/follow.h"
#include "cli/logs/lines.h"
#include "cli/logs/log_printer.h"
#include "cli/logs/stream_reader.h"
#include "common/limits.h"
#include "common/status.h"
#include "spec/spec.h"

namespace muster::cli {
namespace {

// Ranks whose lines are merged by time. When they are followed, each needs a call and a thread per
// stream.
constexpr size_t kOpenRanks = limits::kLogTransfersPerCaller / 2;
constexpr size_t kOutputBytes = 64 << 10;

// A log with its reader and printer.
struct Stream {
  Stream(ClusterClient& client, const LogOptions& options, const LogSource& source,
         bool may_lack_rank, Stopper& stopper, AwayNotice& notice, Console& console)
      : rank(source.rank),
        reader(client, StreamOptionsOf(options, source, may_lack_rank), stopper, notice),
        printer(console, source, options.style),
        splitter(printer.NewSplitter()) {}

  static StreamOptions StreamOptionsOf(const LogOptions& options, const LogSource& source,
                                       bool may_lack_rank) {
    StreamOptions stream;
    stream.job_id = options.job_id;
    stream.generation = source.generation;
    stream.rank = source.rank;
    stream.is_stderr = source.is_stderr;
    stream.may_lack_rank = may_lack_rank;
    stream.tail_lines = std::max(options.tail_lines, options.tail_per_rank);
    stream.since = options.since;
    stream.follow = options.follow;
    stream.patience = options.patience;
    return stream;
  }

  // Returns the next line that the log has now; absent at its end. An unfinished last line counts
  // as one unless the log is going to be followed.
  std::optional<LogLine> NextLine(bool follow, OpenCalls& calls) {
    v1::LogChunk chunk;
    while (true) {
      if (std::optional<LogLine> line = splitter.Next()) return line;
      if (at_end) return std::nullopt;
      calls.Use(reader);
      const absl::StatusOr<bool> more = reader.NextUntilNow(chunk);
      if (more.ok() && *more) {
        splitter.Add(chunk);
        continue;
      }
      status = more.status();
      at_end = true;
      return follow ? std::nullopt : splitter.TakeRest();
    }
  }

  // Prints what the rank writes from now on.
  void Follow() {
    printer.Continue(std::move(splitter));
    v1::LogChunk chunk;
    absl::StatusOr<bool> more = true;
    while ((more = reader.NextUntilExit(chunk)).ok() && *more) printer.Write(chunk);
    printer.Flush();
    status = more.status();
  }

  const uint32_t rank;
  StreamReader reader;
  LogPrinter printer;
  LineSplitter splitter;
  bool at_end = false;  // NextLine has returned all lines
  absl::Status status;
};

using Streams = std::vector<std::unique_ptr<Stream>>;

// Writes lines of several printers to the console in large pieces.
class LineOutput {
 public:
  void Print(LogPrinter& printer, const LogLine& line) {
    if (last_ != nullptr && last_->to_stderr() != printer.to_stderr()) Flush();
    last_ = &printer;
    printer.Format(line, buffer_);
    // A line that may be continued must be known to the console.
    const bool ends = absl::EndsWith(buffer_, "\n");
    if (!ends || !ended_ || buffer_.size() >= kOutputBytes) Flush();
    ended_ = ends;
  }
  void Flush() {
    if (last_ != nullptr) last_->Print(buffer_);
    buffer_.clear();
  }

 private:
  LogPrinter* last_ = nullptr;
  std::string buffer_;
  bool ended_ = true;
};

// Keeps the last lines in the order of time.
void KeepLast(uint64_t max_lines, std::vector<MergedLine>& lines) {
  std::stable_sort(lines.begin(), lines.end(),
                   [](const MergedLine& a, const MergedLine& b) { return a.order < b.order; });
  if (lines.size() > max_lines) lines.erase(lines.begin(), lines.end() - max_lines);
}

// Prints the lines that exist now, merged by time.
void PrintHistory(const LogOptions& options, const Streams& streams) {
  const uint64_t tail_lines = std::max(options.tail_lines, options.tail_per_rank);
  LineOutput output;
  std::vector<MergedLine> last;  // with a tail
  const size_t group = kOpenRanks * (options.stream.empty() ? 2 : 1);
  for (size_t first = 0; first < streams.size(); first += group) {
    const size_t end = std::min(streams.size(), first + group);
    std::vector<LineSource> sources;
    OpenCalls calls;
    for (size_t i = first; i < end; ++i) {
      if (i - first < OpenCalls::kMax) {
        calls.Use(streams[i]->reader);
        streams[i]->reader.Start();
      }
      sources.push_back([&stream = *streams[i], &options, &calls] {
        return stream.NextLine(options.follow, calls);
      });
    }
    LineMerger merger(std::move(sources));
    LineTail tail(tail_lines);
    while (std::optional<MergedLine> line = merger.Next()) {
      line->source += first;
      Stream& stream = *streams[line->source];
      if (tail_lines == 0) {
        output.Print(stream.printer, line->line);
      } else {
        tail.Add(options.tail_per_rank > 0 ? stream.rank : 0, *std::move(line));
      }
    }
    for (MergedLine& line : tail.Take()) last.push_back(std::move(line));
    if (options.tail_lines > 0) KeepLast(options.tail_lines, last);
  }
  for (const MergedLine& line : last) output.Print(streams[line.source]->printer, line.line);
  output.Flush();
}

// The node on which each rank of the generation runs or ran; empty if not known.
std::vector<std::string> NodesOf(const v1::Job& job, uint64_t generation) {
  std::vector<std::string> nodes;
  if (generation != job.generation()) return nodes;
  for (const v1::RankStatus& rank : job.ranks()) nodes.push_back(rank.node());
  return nodes;
}

absl::Status NoRanksThere(const v1::Job& job, const std::string& node, uint64_t generation,
                          const std::vector<std::string>& nodes) {
  if (nodes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the nodes of generation ", generation, " of ", job.job_id(),
                     " are no longer known; use --rank instead of --node"));
  }
  const std::set<std::string> names(nodes.begin(), nodes.end());
  return absl::InvalidArgumentError(absl::StrCat("node ", node, ": ", job.job_id(),
                                                 " has no ranks on this node; its nodes are ",
                                                 absl::StrJoin(names, ", ")));
}

// The ranks to read: the requested ones, validated against the job's ranks.
absl::StatusOr<std::vector<uint32_t>> RanksOf(const v1::Job& job, const LogOptions& options,
                                              uint64_t generation) {
  const std::vector<std::string> nodes = NodesOf(job, generation);
  const uint32_t world_size = nodes.empty() ? spec::MaxWorldSize(job.spec()) : nodes.size();
  std::vector<uint32_t> ranks = options.ranks;
  if (ranks.empty()) {
    for (uint32_t rank = 0; rank < world_size; ++rank) ranks.push_back(rank);
  }
  if (ranks.back() >= world_size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", ranks.back(), ": ", job.job_id(),
                                                   " has ranks 0 to ", world_size - 1));
  }
  if (!options.node.empty()) {
    ranks.erase(
        std::remove_if(ranks.begin(), ranks.end(),
                       [&](uint32_t rank) { return nodes.empty() || nodes[rank] != options.node; }),
        ranks.end());
    if (ranks.empty()) return NoRanksThere(job, options.node, generation, nodes);
  }
  if (options.follow && ranks.size() > kOpenRanks) {
    return absl::InvalidArgumentError(absl::StrCat("cannot follow ", ranks.size(),
                                                   " ranks at once (limit: ", kOpenRanks,
                                                   "); select ranks with --rank"));
  }
  return ranks;
}

// The ranks' stderr is in the log of their stdout.
bool IsJoined(const v1::Job& job) { return job.spec().output() == "joined"; }

// The selected streams of each rank. A worker of an earlier version also has two logs of a job with
// joined output.
std::vector<LogSource> SourcesOf(const v1::Job& job, const LogOptions& options, uint64_t generation,
                                 const std::vector<uint32_t>& ranks) {
  const std::vector<std::string> nodes = NodesOf(job, generation);
  std::vector<LogSource> sources;
  for (const uint32_t rank : ranks) {
    for (const bool is_stderr : {false, true}) {
      if (options.stream == (is_stderr ? "stdout" : "stderr")) continue;
      LogSource source;
      source.generation = generation;
      source.rank = rank;
      source.is_stderr = is_stderr;
      if (!nodes.empty()) source.node = nodes[rank];
      source.task = options.task;
      const std::string task = options.task.has_value() ? absl::StrCat(*options.task) : "";
      if (options.wide) {
        source.prefix =
            absl::StrCat(task, task.empty() ? "" : "/", rank, " ", source.node,
                         source.node.empty() ? "" : " ", is_stderr ? "stderr| " : "stdout| ");
      } else if (ranks.size() > 1) {
        source.prefix = absl::StrCat(task, task.empty() ? "" : "/", rank, "| ");
      } else if (!task.empty()) {
        source.prefix = absl::StrCat(task, "| ");
      }
      sources.push_back(std::move(source));
    }
  }
  return sources;
}

absl::Status PrintGeneration(ClusterClient& client, const LogOptions& options, const v1::Job& job,
                             uint64_t generation, Stopper& stopper, Console& console) {
  ASSIGN_OR_RETURN(const std::vector<uint32_t> ranks, RanksOf(job, options, generation));
  const std::vector<LogSource> sources = SourcesOf(job, options, generation, ranks);
  if (options.names_only) {
    for (const LogSource& source : sources) {
      if (source.is_stderr && IsJoined(job)) continue;
      const std::string task =
          source.task.has_value() ? absl::StrFormat("task-%04d/", *source.task) : "";
      console.Out(absl::StrFormat("%sgeneration-%d/rank-%04d.%s\n", task, generation, source.rank,
                                  source.is_stderr ? "stderr" : "stdout"));
    }
    return absl::OkStatus();
  }
  if (ranks.size() > kOpenRanks) {
    console.Note("merging the lines of ", ranks.size(), " ranks in groups of ", kOpenRanks,
                 " ranks");
  }
  AwayNotice notice(console);
  // How many ranks an earlier generation of an elastic job had is not known here.
  const bool may_lack_rank = options.ranks.empty() && generation != job.generation();
  Streams streams;
  for (const LogSource& source : sources) {
    streams.push_back(
        std::make_unique<Stream>(client, options, source, may_lack_rank, stopper, notice, console));
  }
  PrintHistory(options, streams);
  if (options.follow) {
    std::vector<std::thread> threads;
    for (const auto& stream : streams) threads.emplace_back([&stream] { stream->Follow(); });
    for (std::thread& thread : threads) thread.join();
  }
  absl::Status first;
  for (const auto& stream : streams) {
    if (stream->status.ok()) continue;
    if (first.ok()) {
      first = stream->status;
    } else if (!absl::IsCancelled(stream->status) && stream->status != first) {
      console.Note(stream->status.message());
    }
  }
  return first;
}

// Waits for the generation after `generation`, or for the job's end.
class NextGeneration : public QuietObserver {
 public:
  NextGeneration(uint64_t generation, Stopper& arrived, Console& console, bool silent)
      : QuietObserver(console, silent), generation_(generation), arrived_(arrived) {}

  void OnJob(const v1::Job& job) override {
    if (job.generation() > generation_) arrived_.Stop();
  }

 private:
  const uint64_t generation_;
  Stopper& arrived_;
};

absl::StatusOr<v1::Job> AwaitNextGeneration(ClusterClient& client, const LogOptions& options,
                                            uint64_t generation, Stopper& stopper,
                                            Console& console) {
  Stopper arrived;
  const Stopper::Registration registration(stopper, [&arrived] { arrived.Stop(); });
  NextGeneration observer(generation, arrived, console, options.lines_only);
  absl::StatusOr<v1::Job> job =
      FollowJob(client, options.job_id, FollowOptions(), arrived, observer);
  if (stopper.stopped()) return absl::CancelledError("interrupted");
  if (arrived.stopped()) return client.GetJob(options.job_id, &stopper);
  return job;
}

LogOptions OptionsFor(const v1::Job& task, LogOptions options) {
  options.job_id = task.job_id();
  options.task = task.array_index();
  return options;
}

}  // namespace

absl::Status PrintLogs(ClusterClient& client, const LogOptions& given, Stopper& stopper,
                       Console& console) {
  LogOptions options = given;
  options.style.live = options.follow;
  ASSIGN_OR_RETURN(v1::Job job, client.GetJob(options.job_id, &stopper));
  options.job_id = job.job_id();  // a prefix could become ambiguous
  if (options.stream == "stderr" && IsJoined(job)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--stream stderr: the stdout and stderr of ", job.job_id(),
        " are joined in one log; omit --stream, or set output: separate in the job's spec"));
  }
  if (options.generation > job.generation()) {
    return absl::InvalidArgumentError(absl::StrCat("generation ", options.generation, ": ",
                                                   job.job_id(), "'s newest generation is ",
                                                   job.generation()));
  }
  if (options.generation > 0) {
    return PrintGeneration(client, options, job, options.generation, stopper, console);
  }
  uint64_t generation = job.generation();
  if (!options.follow) {
    if (generation > 0) {
      return PrintGeneration(client, options, job, generation, stopper, console);
    }
    console.Note(job.job_id(), " has not started; its state is ", v1::JobState_Name(job.state()));
    return absl::OkStatus();
  }
  absl::Status incomplete;
  while (true) {
    if (generation > 0) {
      const absl::Status status =
          PrintGeneration(client, options, job, generation, stopper, console);
      // The logs of a lost node cannot be read; later generations can.
      if (!IsTransient(status) && !status.ok()) return status;
      if (stopper.stopped()) return absl::CancelledError("interrupted");
      incomplete.Update(status);
    }
    ASSIGN_OR_RETURN(job, AwaitNextGeneration(client, options, generation, stopper, console));
    if (job.generation() == generation) return incomplete;
    ++generation;
    options.tail_lines = options.tail_per_rank = 0;
    if (generation > 1 && !options.lines_only) console.Note("generation ", generation);
  }
}

absl::Status PrintArrayLogs(ClusterClient& client, const v1::GetArrayResponse& array,
                            const LogOptions& options, Stopper& stopper, Console& console) {
  absl::Status first;
  if (!options.follow) {
    for (const v1::Job& task : array.tasks()) {
      if (task.generation() == 0) continue;
      first.Update(PrintLogs(client, OptionsFor(task, options), stopper, console));
      if (stopper.stopped()) break;
    }
    return first;
  }
  if (array.tasks_size() > kFollowedTasks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot follow ", array.tasks_size(), " tasks at once (limit: ", kFollowedTasks,
        "); follow a single task, as in muster logs ", array.tasks(0).job_id(), " -f"));
  }
  std::vector<absl::Status> statuses(array.tasks_size());
  std::vector<std::thread> threads;
  for (int i = 0; i < array.tasks_size(); ++i) {
    threads.emplace_back([&, i] {
      statuses[i] = PrintLogs(client, OptionsFor(array.tasks(i), options), stopper, console);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) first.Update(status);
  return first;
}

}  // namespace muster::cli
