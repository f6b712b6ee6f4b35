// Finds ranks of one generation that take longer per step than their peers.
#ifndef MUSTER_COORDINATOR_CORE_RECOVERY_STRAGGLER_DETECTOR_H_
#define MUSTER_COORDINATOR_CORE_RECOVERY_STRAGGLER_DETECTOR_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// In synchronous training every step takes all ranks equally long, because the fast ones wait. What
// differs is a rank's own time: computing and waiting for its input, without waiting for peers.
// Ranks report it in windows of steps (v1::StepWindows), which begin and end with the same steps on
// all ranks, so that whatever slows all of them down cancels out.
//
// For each window, a rank's own time is divided by the median own time of its peers: the other
// ranks of its pipeline stage, or of the job without a pipeline, which do the same work. If their
// shares of the batch differ, the rank has to exceed the median per sample, too. If a stage has one
// rank only, the ranks of the job are compared by how much their own times have grown since the
// first windows; a rank that is slow from the start cannot be found then.
//
// A window exceeds the median if it is more than 8 % above it, and by more than 3 % of the step's
// time. A rank becomes slow when 7 of 8 of its last windows exceed the median, which one long
// interruption cannot cause, and the median of these windows exceeds that of the peers by more than
// 10 % and by 4 times what such medians have varied by before. They are the windows of the last 3
// seconds, so that a load which moves from rank to rank is not taken for a slow rank, and at least
// 8; with more noise, 2, 4 or more times as many, whose median varies less; and at least 32 before
// the rank has had 40. It is no longer slow when the median of its last 8 windows is less than 5 %
// above that of its peers. The windows while it was slow are then forgotten, of all ranks: they do
// not show how much own times vary.
//
// On devices that execute asynchronously the compute time is unknown: only a rank that waits longer
// for its input is found there.
//
// Not thread-safe.
class StragglerDetector {
 public:
  enum class Phase { kCompute, kInput };
  struct Change {
    uint32_t rank = 0;
    bool begins = false;  // the rank has become slow; otherwise, it no longer is
    Phase phase = Phase::kCompute;
    double slowdown = 1;     // median of its windows
    uint64_t step = 0;       // first slow step, or last step of the windows
    bool by_growth = false;  // compared by how much own times have grown
  };

  // `slow`: ranks that were found before a restart of the coordinator.
  StragglerDetector(uint32_t ranks, const std::set<uint32_t>& slow);

  // Takes the windows that a rank below `ranks` reports, which may repeat earlier ones.
  std::vector<Change> Add(uint32_t rank, const v1::StepWindows& windows);

  // Median of the rank's last windows; 0 before there are enough.
  double slowdown(uint32_t rank) const { return ranks_[rank].slowdown; }

 private:
  // Seconds per step.
  struct OwnTime {
    uint32_t stage = 0;
    double compute = 0;
    double input = 0;
    double step = 0;
    double samples = 0;
    double total() const { return compute + input; }
  };
  // A window by rank.
  struct Row {
    std::vector<std::optional<OwnTime>> ranks;
    uint32_t reported = 0;
  };
  // A window of a rank, compared with its peers.
  struct Comparison {
    double slowdown = 1;
    bool exceeds = false;
    bool input = false;  // most of the excess is waiting for input
    uint64_t first_step = 0;
    double seconds = 0;  // that the window took
    double level = 1;    // median of the windows up to this one
  };
  struct RankState {
    std::deque<Comparison> windows;  // oldest first
    bool slow = false;
    uint64_t slow_since = 0;  // Change::step at the beginning; 0 after a restart of the coordinator
    double slowdown = 0;
  };
  using Key = std::pair<uint64_t, uint32_t>;  // last step and number of steps

  void Judge(const Key& key, std::vector<OwnTime> ranks, std::vector<Change>& changes);
  // Removes the windows that begin with the step or later.
  void ForgetSince(uint64_t step);
  // Replaces own times by their ratios to the first windows. Returns false while these are being
  // collected, or if they are unknown.
  bool RelateToFirst(std::vector<OwnTime>& ranks);
  // Slow windows without interruption.
  struct Run {
    double slowdown = 1;  // median
    bool input = false;   // most of them wait for input
    uint64_t first_step = 0;
  };
  // Number of the newest windows that last long enough to name a rank; more than windows.size() if
  // all of them do not.
  static size_t ShortestRun(const std::deque<Comparison>& windows);
  // Whether the newest `count` windows show that the rank is slow. `count` is at least
  // ShortestRun(windows), and at most windows.size().
  static std::optional<Run> SlowRun(const std::deque<Comparison>& windows, size_t count);
  // Adds the rank's comparison, and the change if it has become slow or no longer is.
  void Update(uint32_t rank, const Key& key, const Comparison& comparison, bool by_growth,
              std::vector<Change>& changes);

  std::map<Key, Row> rows_;  // of which not all ranks have reported
  uint64_t judged_step_ = 0;
  std::vector<RankState> ranks_;
  std::vector<std::vector<OwnTime>> first_;  // the first windows; one entry once they are averaged
  bool has_first_ = false;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECOVERY_STRAGGLER_DETECTOR_H_
