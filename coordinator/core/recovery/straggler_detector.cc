#include "coordinator/core/recovery/straggler_detector.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/types/span.h"
#include "common/median.h"

namespace muster::core {
namespace {

constexpr size_t kWindows = 8;  // that a rank is judged by, at least
// A load that moves from rank to rank may stay with one for two seconds.
constexpr double kShortestRun = 3;  // seconds
constexpr size_t kKeptWindows = 192;
// With fewer earlier windows, it is not known how much the rank's time varies.
constexpr size_t kEarlierWindows = 32;
constexpr size_t kWindowsAtFirst = 32;
constexpr double kNoiseFactor = 4;
constexpr double kBegin = 1.10;
constexpr double kExceeds = 1.08;  // a single window, whose time varies more than the median
constexpr double kEnd = 1.05;
// A rank with little work of its own may be relatively slow at hardly any cost.
constexpr double kLeastShareOfStep = 0.03;
constexpr double kMaxSlowdown = 100;
constexpr size_t kFirstWindows = 16;  // that growth is related to
// Ranks report at different times; a window that some have not reported for so long is dropped.
constexpr size_t kIncompleteRows = 32;

// A property of all ranks, for the median without one of them.
class Sorted {
 public:
  void Add(double value) { values_.push_back(value); }
  void Sort() { std::sort(values_.begin(), values_.end()); }
  // `value` is one of at least two.
  double MedianOfOthers(double value) const {
    const auto position = static_cast<size_t>(
        std::lower_bound(values_.begin(), values_.end(), value) - values_.begin());
    const size_t others = values_.size() - 1;
    const auto at = [&](size_t index) { return values_[index < position ? index : index + 1]; };
    return (at((others - 1) / 2) + at(others / 2)) / 2;
  }

 private:
  std::vector<double> values_;
};

double Ratio(double value, double median) {
  return median > 0 ? std::min(value / median, kMaxSlowdown) : 1;
}

}  // namespace

StragglerDetector::StragglerDetector(uint32_t ranks, const std::set<uint32_t>& slow)
    : ranks_(ranks) {
  for (const uint32_t rank : slow) {
    if (rank < ranks) ranks_[rank].slow = true;
  }
}

std::vector<StragglerDetector::Change> StragglerDetector::Add(uint32_t rank,
                                                              const v1::StepWindows& windows) {
  std::vector<Change> changes;
  for (const v1::StepWindow& window : windows.windows()) {
    if (window.last_step() <= judged_step_) continue;
    const Key key(window.last_step(), window.steps());
    Row& row = rows_[key];
    row.ranks.resize(ranks_.size());
    if (row.ranks[rank].has_value()) continue;
    row.ranks[rank] = {windows.stage(), window.compute_seconds(), window.input_seconds(),
                       window.step_seconds(), window.samples()};
    if (++row.reported < ranks_.size()) continue;
    std::vector<OwnTime> complete;
    for (const std::optional<OwnTime>& own : row.ranks) complete.push_back(*own);
    judged_step_ = key.first;
    // Ranks report windows in order: those before this one will not be completed.
    rows_.erase(rows_.begin(), rows_.upper_bound(key));
    Judge(key, std::move(complete), changes);
  }
  while (rows_.size() > kIncompleteRows) rows_.erase(rows_.begin());
  return changes;
}

bool StragglerDetector::RelateToFirst(std::vector<OwnTime>& ranks) {
  if (!has_first_) {
    first_.push_back(ranks);
    if (first_.size() < kFirstWindows) return false;
    std::vector<OwnTime> medians = ranks;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      std::vector<double> compute, input;
      for (const std::vector<OwnTime>& window : first_) {
        compute.push_back(window[rank].compute);
        input.push_back(window[rank].input);
      }
      medians[rank].compute = MedianOf(absl::MakeSpan(compute));
      medians[rank].input = MedianOf(absl::MakeSpan(input));
    }
    first_ = {std::move(medians)};
    has_first_ = true;
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const OwnTime& first = first_[0][rank];
    OwnTime& own = ranks[rank];
    if (first.compute <= 0) return false;
    own.compute = 1 + (own.compute - first.compute) / first.total();
    own.input = (own.input - first.input) / first.total();
    own.step /= first.total();
    own.samples = 0;
    own.stage = 0;
  }
  return true;
}

void StragglerDetector::Judge(const Key& key, std::vector<OwnTime> ranks,
                              std::vector<Change>& changes) {
  const double seconds = ranks[0].step * key.second;
  std::map<uint32_t, uint32_t> sizes;
  for (const OwnTime& own : ranks) ++sizes[own.stage];
  const bool by_growth =
      std::any_of(sizes.begin(), sizes.end(), [](const auto& stage) { return stage.second == 1; });
  if (ranks.size() < 2 || (by_growth && !RelateToFirst(ranks))) return;

  struct Peers {
    Sorted totals, per_sample, computes, inputs;
    bool computes_known = true;
    bool samples_known = true;
  };
  const auto per_sample = [](const OwnTime& own) { return own.total() / own.samples; };
  std::map<uint32_t, Peers> stages;
  for (const OwnTime& own : ranks) {
    Peers& peers = stages[own.stage];
    peers.totals.Add(own.total());
    peers.computes.Add(own.compute);
    peers.inputs.Add(own.input);
    peers.computes_known &= own.compute > 0;
    peers.samples_known &= own.samples > 0;
    if (peers.samples_known) peers.per_sample.Add(per_sample(own));
  }
  for (auto& [stage, peers] : stages) {
    for (Sorted* sorted : {&peers.totals, &peers.per_sample, &peers.computes, &peers.inputs}) {
      sorted->Sort();
    }
  }
  const size_t earlier_changes = changes.size();
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    const OwnTime& own = ranks[rank];
    const Peers& peers = stages.at(own.stage);
    const double more_compute = own.compute - peers.computes.MedianOfOthers(own.compute);
    const double more_input = own.input - peers.inputs.MedianOfOthers(own.input);
    double excess = more_input;
    Comparison comparison;
    if (peers.computes_known) {
      const double median = peers.totals.MedianOfOthers(own.total());
      excess = own.total() - median;
      comparison.slowdown = Ratio(own.total(), median);
      if (peers.samples_known) {
        const double value = per_sample(own);
        comparison.slowdown =
            std::min(comparison.slowdown, Ratio(value, peers.per_sample.MedianOfOthers(value)));
      }
    } else if (excess > 0) {
      comparison.slowdown = Ratio(own.step, own.step - excess);
    }
    comparison.exceeds = comparison.slowdown > kExceeds && excess > kLeastShareOfStep * own.step;
    comparison.input = more_input > more_compute || !peers.computes_known;
    comparison.seconds = seconds;
    comparison.first_step = key.first - std::min<uint64_t>(key.first, key.second) + 1;
    Update(rank, key, comparison, by_growth, changes);
  }
  for (size_t i = earlier_changes; i < changes.size(); ++i) {
    if (!changes[i].begins) ForgetSince(ranks_[changes[i].rank].slow_since);
  }
}

size_t StragglerDetector::ShortestRun(const std::deque<Comparison>& windows) {
  double seconds = 0;
  size_t count = 0;
  for (auto window = windows.rbegin(); window != windows.rend(); ++window) {
    if (count >= kWindows && seconds >= kShortestRun) return count;
    seconds += window->seconds;
    ++count;
  }
  return seconds >= kShortestRun ? count : windows.size() + 1;
}

std::optional<StragglerDetector::Run> StragglerDetector::SlowRun(
    const std::deque<Comparison>& windows, size_t count) {
  Run run;
  std::vector<double> slowdowns;
  size_t exceeding = 0, input = 0;
  for (size_t i = windows.size() - count; i < windows.size(); ++i) {
    const Comparison& window = windows[i];
    slowdowns.push_back(window.slowdown);
    if (!window.exceeds) continue;
    if (exceeding++ == 0) run.first_step = window.first_step;
    if (window.input) ++input;
  }
  if (exceeding + count / kWindows < count) return std::nullopt;
  run.slowdown = MedianOf(absl::MakeSpan(slowdowns));
  if (run.slowdown <= kBegin) return std::nullopt;
  run.input = 2 * input > exceeding;
  const size_t earlier = windows.size() - count;
  if (earlier < kEarlierWindows) {
    return count >= kWindowsAtFirst ? std::optional<Run>(run) : std::nullopt;
  }
  // Differences of successive levels, to which a level that changes once adds little.
  double squares = 0;
  for (size_t i = kWindows; i < earlier; ++i) {
    squares += std::pow(windows[i].level - windows[i - kWindows].level, 2);
  }
  const double variance = squares / static_cast<double>(earlier - kWindows) / 2;
  // Levels are medians of kWindows windows; those of more windows vary less.
  const double noise =
      std::sqrt(variance * static_cast<double>(kWindows) / static_cast<double>(count));
  return run.slowdown - 1 > kNoiseFactor * noise ? std::optional<Run>(run) : std::nullopt;
}

void StragglerDetector::ForgetSince(uint64_t step) {
  for (RankState& state : ranks_) {
    while (!state.windows.empty() && state.windows.back().first_step >= step) {
      state.windows.pop_back();
    }
  }
}

void StragglerDetector::Update(uint32_t rank, const Key& key, const Comparison& comparison,
                               bool by_growth, std::vector<Change>& changes) {
  RankState& state = ranks_[rank];
  std::deque<Comparison>& windows = state.windows;
  windows.push_back(comparison);
  if (windows.size() > kKeptWindows) windows.pop_front();
  if (windows.size() < kWindows) return;
  std::vector<double> slowdowns;
  for (size_t i = windows.size() - kWindows; i < windows.size(); ++i) {
    slowdowns.push_back(windows[i].slowdown);
  }
  state.slowdown = windows.back().level = MedianOf(absl::MakeSpan(slowdowns));
  Change change{.rank = rank, .slowdown = state.slowdown, .by_growth = by_growth};
  if (state.slow) {
    if (state.slowdown >= kEnd) return;
    change.step = key.first;
  } else {
    if (!comparison.exceeds) return;
    std::optional<Run> run;
    // More windows show a slowdown in spite of noise.
    for (size_t count = ShortestRun(windows); count <= windows.size() && !run.has_value();
         count *= 2) {
      run = SlowRun(windows, count);
    }
    if (!run.has_value()) return;
    change.begins = true;
    change.phase = run->input ? Phase::kInput : Phase::kCompute;
    change.slowdown = run->slowdown;
    change.step = run->first_step;
  }
  state.slow = change.begins;
  if (change.begins) state.slow_since = change.step;
  changes.push_back(change);
}

}  // namespace muster::core
