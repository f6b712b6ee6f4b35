#include "cli/text/top_text.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/output/table.h"
#include "cli/output/words.h"
#include "cli/text/job_text.h"
#include "cli/text/why.h"
#include "common/time/proto_time.h"

namespace muster::cli {
namespace {

// How the table uses the terminal's columns.
struct Layout {
  const char* step_time;  // head of the column
  size_t step;            // columns of the step; longer ones are shown without the total
  size_t others;          // columns for everything but the name, at most
};
constexpr Layout kWide = {"STEP TIME", 11, 54};
constexpr Layout kNarrow = {"TIME", 7, 47};
constexpr size_t kWideColumns = 68;
// Characters at the end of a shortened name, which tell ids of the same name apart.
constexpr size_t kNameEnd = 6;
// A rank without a report for this long is marked.
constexpr absl::Duration kSilent = absl::Seconds(10);

// "fashion-m...-x7k2p".
std::string Shortened(const std::string& name, size_t columns) {
  if (name.size() <= columns) return name;
  return absl::StrCat(name.substr(0, columns - kNameEnd - 3), "...",
                      name.substr(name.size() - kNameEnd));
}

std::string StepCell(const v1::Progress& progress, size_t columns) {
  if (progress.step() == 0) return "";
  const std::string step = absl::StrCat(progress.step());
  if (progress.total_steps() == 0) return step;
  const std::string both = absl::StrCat(step, "/", progress.total_steps());
  return both.size() <= columns ? both : step;
}

std::string RateCell(const v1::Progress& progress) {
  if (!(progress.images_per_second() > 0)) return "";
  return Grouped(static_cast<uint64_t>(std::llround(std::min(progress.images_per_second(), 1e15))));
}

std::string StepTimeCell(const v1::Progress& progress) {
  const double seconds = progress.step_seconds();
  if (!(seconds > 0)) return "";
  return seconds < 1 ? absl::StrFormat("%.1f ms", 1000 * seconds)
                     : absl::StrFormat("%.2f s", seconds);
}

// "1.2G", "512M": at most five columns.
std::string MemoryCell(uint64_t bytes) {
  if (bytes == 0) return "";
  constexpr const char* kUnits[] = {"B", "K", "M", "G", "T", "P"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.*f%s", value < 9.95 && unit > 0 ? 1 : 0, value, kUnits[unit]);
}

uint64_t MemoryOf(const v1::Job& job) {
  uint64_t bytes = 0;
  for (const v1::RankStatus& rank : job.ranks()) bytes += rank.memory_bytes();
  return bytes;
}

// "  3 gpu-node-1", with the node's name shortened.
std::string RankName(const v1::RankStatus& rank, size_t columns) {
  const std::string number = absl::StrCat("  ", rank.rank(), " ");
  const size_t room = columns - std::min(columns, number.size());
  return absl::StrCat(
      number, room > kNameEnd + 3 ? Shortened(rank.node(), room) : rank.node().substr(0, room));
}

std::string JobNote(const v1::Job& job) {
  if (job.has_hang()) return "hung";
  return job.state() == v1::RUNNING ? "" : StateWord(job.state());
}

// "21% slow"; the factor if it is large.
std::string SlowNote(double slowdown) {
  return slowdown < 2 ? absl::StrFormat("%.0f%% slow", 100 * (slowdown - 1))
                      : absl::StrFormat("%.0fx slow", slowdown);
}

std::string RankNote(const v1::Job& job, const v1::RankStatus& rank,
                     const std::optional<SlowestRank>& slowest) {
  if (const v1::Straggler* const straggler = FindStraggler(job, rank); straggler != nullptr) {
    return SlowNote(SlowdownOf(*straggler, rank));
  }
  if (slowest.has_value() && slowest->rank == &rank && slowest->by != SlowestRank::By::kSilence) {
    return "slowest";
  }
  if (rank.phase() == v1::EXITED) return "exited";
  const absl::Duration silence =
      rank.has_last_seen() ? FromProto(rank.last_seen()) : absl::ZeroDuration();
  return silence >= kSilent ? "silent" : "";
}

// The ranks to show: the slowest one and the first others, by rank.
std::vector<const v1::RankStatus*> Shown(const v1::Job& job,
                                         const std::optional<SlowestRank>& slowest,
                                         size_t max_ranks) {
  std::vector<const v1::RankStatus*> ranks;
  for (const v1::RankStatus& rank : job.ranks()) ranks.push_back(&rank);
  if (ranks.size() <= max_ranks) return ranks;
  const v1::RankStatus* const first = slowest.has_value() ? slowest->rank : nullptr;
  std::stable_partition(ranks.begin(), ranks.end(),
                        [first](const v1::RankStatus* rank) { return rank == first; });
  ranks.resize(max_ranks);
  std::sort(ranks.begin(), ranks.end(),
            [](const v1::RankStatus* a, const v1::RankStatus* b) { return a->rank() < b->rank(); });
  return ranks;
}

void AddJob(const v1::Job& job, const Layout& layout, size_t columns, size_t max_ranks,
            Table& table) {
  table.AddRow({Shortened(job.job_id(), columns), StepCell(job.progress(), layout.step),
                RateCell(job.progress()), StepTimeCell(job.progress()), MemoryCell(MemoryOf(job)),
                JobNote(job)});
  const std::optional<SlowestRank> slowest = FindSlowest(job);
  const std::vector<const v1::RankStatus*> shown = Shown(job, slowest, max_ranks);
  for (const v1::RankStatus* const rank : shown) {
    // The rate is that of all ranks, which the job's row shows.
    table.AddRow({RankName(*rank, columns), StepCell(rank->progress(), layout.step), "",
                  StepTimeCell(rank->progress()), MemoryCell(rank->memory_bytes()),
                  RankNote(job, *rank, slowest)});
  }
  const size_t more = static_cast<size_t>(job.ranks_size()) - shown.size();
  if (more > 0) table.AddRow({absl::StrCat("  ", more, " more"), "", "", "", "", ""});
}

std::string Count(size_t number, absl::string_view what) {
  return absl::StrCat(number, " ", what, number == 1 ? "" : "s");
}

}  // namespace

std::string TopText(const TopFacts& facts, size_t width, size_t max_ranks) {
  size_t ranks = 0;
  for (const v1::Job& job : facts.jobs) ranks += static_cast<size_t>(job.ranks_size());
  std::string out = absl::StrCat(Count(facts.jobs.size() + facts.more_jobs, "active job"), ", ",
                                 Count(ranks, "rank"), ", ", facts.queued, " queued\n");
  if (facts.jobs.empty()) return out;
  const Layout& layout = width < kWideColumns ? kNarrow : kWide;
  Table table({"JOB, RANK", "STEP", "IMAGES/S", layout.step_time, "MEMORY", "NOTE"});
  const size_t columns = width - std::min(width, layout.others);
  for (const v1::Job& job : facts.jobs) AddJob(job, layout, columns, max_ranks, table);
  absl::StrAppend(&out, "\n", table.Text(width));
  if (facts.more_jobs > 0) absl::StrAppend(&out, "and ", Count(facts.more_jobs, "more job"), "\n");
  return out;
}

}  // namespace muster::cli
