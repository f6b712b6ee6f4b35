#include "cli/logs/log_reader.h"

#include <algorithm>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "cli/exit_code.h"
#include "cli/follow/follow.h"
#include "cli/logs/log_printer.h"
#include "common/now.h"
#include "common/status.h"
#include "common/time.h"
#include "spec/spec.h"

namespace muster::cli {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Seconds(1);
// Each followed rank needs two streams and threads.
constexpr size_t kFollowedRanks = 256;

// Reports once that the coordinator or a node is unreachable, however many streams notice it.
class AwayNotice {
 public:
  explicit AwayNotice(Console& console) : console_(console) {}
  void Away(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (!std::exchange(away_, true)) {
      console_.Note(absl::StrCat("log unreachable; retrying: ", status.message()));
    }
  }
  void Back() {
    absl::MutexLock lock(&mutex_);
    away_ = false;
  }

 private:
  Console& console_;
  absl::Mutex mutex_;
  bool away_ ABSL_GUARDED_BY(mutex_) = false;
};

// Reads one stream of one rank in one generation, from its start (or tail) to its end.
class StreamReader {
 public:
  StreamReader(ClusterClient& client, const LogOptions& options, const LogSource& source,
               Stopper& stopper, AwayNotice& notice, LogPrinter printer)
      : client_(client),
        options_(options),
        stopper_(stopper),
        notice_(notice),
        printer_(std::move(printer)) {
    request_.set_job_id(options.job_id);
    request_.set_generation(source.generation);
    request_.set_rank(source.rank);
    request_.set_stream(source.is_stderr ? v1::STDERR : v1::STDOUT);
    request_.set_follow(options.follow);
    request_.set_tail_lines(options.tail_lines);
  }

  absl::Status Run() {
    const absl::Status status = ReadToEnd();
    printer_.Flush();
    if (status.ok() || status.code() == absl::StatusCode::kCancelled) return status;
    return Annotate(status, absl::StrCat("rank ", request_.rank(), ", ",
                                         request_.stream() == v1::STDOUT ? "stdout" : "stderr"));
  }

 private:
  absl::Status ReadToEnd() {
    absl::Duration pause = kFirstPause;
    SteadyTime give_up = Now().steady + options_.patience;
    while (true) {
      bool progress = false;
      bool ended = false;
      const absl::Status status =
          client_.ReadLog(request_, stopper_, [&](const v1::LogChunk& chunk) {
            progress = true;
            Take(chunk);
            ended = chunk.end();
            return !ended;
          });
      if (ended) return absl::OkStatus();
      if (stopper_.stopped()) return absl::CancelledError("interrupted");
      if (status.ok() && !options_.follow) return absl::OkStatus();
      if (progress) {
        notice_.Back();
        pause = kFirstPause;
        give_up = Now().steady + options_.patience;
      }
      const bool missing = status.code() == absl::StatusCode::kNotFound;
      if (!status.ok() && !missing && !IsTransient(status)) return status;
      if (options_.follow) {
        // While the rank may still write or start, the retries do not end.
        const absl::StatusOr<bool> over = GenerationIsOver();
        if (!over.ok() || !*over) give_up = Now().steady + options_.patience;
        if (over.ok() && *over && (missing || status.ok())) return absl::OkStatus();
      } else if (missing) {
        return status;
      }
      if (Now().steady + pause >= give_up) return status;
      if (!status.ok() && !missing) notice_.Away(status);
      if (!stopper_.SleepFor(pause)) return absl::CancelledError("interrupted");
      pause = std::min(2 * pause, kLongestPause);
    }
  }

  void Take(const v1::LogChunk& chunk) {
    // Skip bytes that were already printed.
    absl::string_view data = chunk.data();
    const bool first = request_.tail_lines() > 0;
    if (!first && chunk.offset() < request_.offset()) {
      data.remove_prefix(std::min<uint64_t>(data.size(), request_.offset() - chunk.offset()));
    }
    request_.clear_tail_lines();
    request_.set_offset(
        std::max<uint64_t>(first ? 0 : request_.offset(), chunk.offset() + chunk.data().size()));
    printer_.Write(data);
  }

  absl::StatusOr<bool> GenerationIsOver() {
    const absl::StatusOr<v1::Job> job = client_.GetJob(options_.job_id, &stopper_);
    if (!job.ok()) return job.status();
    return IsOver(job->state()) || job->generation() > request_.generation();
  }

  ClusterClient& client_;
  const LogOptions& options_;
  Stopper& stopper_;
  AwayNotice& notice_;
  LogPrinter printer_;
  v1::ReadLogRequest request_;
};

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
  if (options.follow && ranks.size() > kFollowedRanks) {
    return absl::InvalidArgumentError(absl::StrCat("cannot follow ", ranks.size(),
                                                   " ranks at once (limit: ", kFollowedRanks,
                                                   "); select ranks with --rank"));
  }
  return ranks;
}

// The two streams of each rank.
std::vector<LogSource> SourcesOf(const v1::Job& job, const LogOptions& options, uint64_t generation,
                                 const std::vector<uint32_t>& ranks) {
  const std::vector<std::string> nodes = NodesOf(job, generation);
  std::vector<LogSource> sources;
  for (const uint32_t rank : ranks) {
    for (const bool is_stderr : {false, true}) {
      LogSource source;
      source.generation = generation;
      source.rank = rank;
      source.is_stderr = is_stderr;
      if (!nodes.empty()) source.node = nodes[rank];
      if (options.wide) {
        source.prefix = absl::StrCat(rank, " ", source.node, source.node.empty() ? "" : " ",
                                     is_stderr ? "stderr| " : "stdout| ");
      } else if (ranks.size() > 1) {
        source.prefix = absl::StrCat(rank, "| ");
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
      console.Out(absl::StrFormat("generation-%d/rank-%04d.%s\n", generation, source.rank,
                                  source.is_stderr ? "stderr" : "stdout"));
    }
    return absl::OkStatus();
  }
  AwayNotice notice(console);
  std::vector<std::unique_ptr<StreamReader>> readers;
  for (const LogSource& source : sources) {
    readers.push_back(std::make_unique<StreamReader>(client, options, source, stopper, notice,
                                                     LogPrinter(console, source, options.style)));
  }
  std::vector<absl::Status> statuses(readers.size());
  if (options.follow) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < readers.size(); ++i) {
      threads.emplace_back([&readers, &statuses, i] { statuses[i] = readers[i]->Run(); });
    }
    for (std::thread& thread : threads) thread.join();
  } else {
    for (size_t i = 0; i < readers.size() && !stopper.stopped(); ++i) {
      statuses[i] = readers[i]->Run();
    }
  }
  absl::Status first;
  for (const absl::Status& status : statuses) {
    if (status.ok()) continue;
    if (first.ok()) {
      first = status;
    } else if (status.code() != absl::StatusCode::kCancelled) {
      console.Note(status.message());
    }
  }
  return first;
}

// Waits for the generation after `generation`, or for the job's end.
class NextGeneration : public FollowObserver {
 public:
  NextGeneration(uint64_t generation, Stopper& arrived, Console& console)
      : generation_(generation), arrived_(arrived), console_(console) {}

  void OnJob(const v1::Job& job) override {
    if (job.generation() > generation_) arrived_.Stop();
  }
  void OnCoordinatorAway(const absl::Status& status) override {
    console_.Note("coordinator unreachable; retrying");
  }
  void OnCoordinatorBack() override { console_.Note("coordinator reachable again"); }

 private:
  const uint64_t generation_;
  Stopper& arrived_;
  Console& console_;
};

absl::StatusOr<v1::Job> AwaitNextGeneration(ClusterClient& client, const std::string& job_id,
                                            uint64_t generation, Stopper& stopper,
                                            Console& console) {
  Stopper arrived;
  const Stopper::Registration registration(stopper, [&arrived] { arrived.Stop(); });
  NextGeneration observer(generation, arrived, console);
  absl::StatusOr<v1::Job> job = FollowJob(client, job_id, FollowOptions(), arrived, observer);
  if (stopper.stopped()) return absl::CancelledError("interrupted");
  if (arrived.stopped()) return client.GetJob(job_id, &stopper);
  return job;
}

}  // namespace

absl::Status PrintLogs(ClusterClient& client, const LogOptions& given, Stopper& stopper,
                       Console& console) {
  LogOptions options = given;
  ASSIGN_OR_RETURN(v1::Job job, client.GetJob(options.job_id, &stopper));
  options.job_id = job.job_id();  // a prefix could become ambiguous
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
    console.Note(absl::StrCat(job.job_id(), " has not started; its state is ",
                              v1::JobState_Name(job.state())));
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
    ASSIGN_OR_RETURN(job,
                     AwaitNextGeneration(client, options.job_id, generation, stopper, console));
    if (job.generation() == generation) return incomplete;
    ++generation;
    options.tail_lines = 0;
    if (generation > 1) console.Note(absl::StrCat("generation ", generation));
  }
}

}  // namespace muster::cli
