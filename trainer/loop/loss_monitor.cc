#include "trainer/loop/loss_monitor.h"

#include <cmath>
#include <utility>

#include "absl/types/span.h"
#include "common/median.h"

namespace muster::train {
namespace {

constexpr double kSpikeDeviations = 10;
constexpr double kEndDeviations = 5;
constexpr double kSpikeRatio = 1.5;
constexpr double kSpikeShareOfFirst = 0.1;
// Standard deviation of a normal distribution by its median absolute deviation.
constexpr double kDeviationOfMedian = 1.4826;

v1::LossAnomaly Anomaly(uint64_t step, double loss, double typical) {
  v1::LossAnomaly anomaly;
  anomaly.set_step(step);
  anomaly.set_loss(loss);
  anomaly.set_typical(typical);
  return anomaly;
}

}  // namespace

std::optional<v1::LossAnomaly> LossMonitor::Add(uint64_t completed_steps, double loss) {
  std::optional<v1::LossAnomaly> found;
  if (!std::isfinite(loss)) {
    if (!std::exchange(in_anomaly_, true)) found = Anomaly(completed_steps, loss, 0);
    return found;
  }
  if (window_.size() >= kFewest) {
    sorted_ = window_;
    const double median = MedianOf(absl::MakeSpan(sorted_));
    if (window_.size() < kWindow || first_level_ == 0) first_level_ = median;
    for (double& value : sorted_) value = std::abs(value - median);
    const double deviation = kDeviationOfMedian * MedianOf(absl::MakeSpan(sorted_));
    const double excess = loss - median;
    if (in_anomaly_) {
      in_anomaly_ = excess > kEndDeviations * deviation && loss > kSpikeRatio * median;
    } else if (excess > kSpikeDeviations * deviation && loss > kSpikeRatio * median &&
               excess > kSpikeShareOfFirst * first_level_) {
      in_anomaly_ = true;
      found = Anomaly(completed_steps, loss, median);
    }
  } else {
    in_anomaly_ = false;
  }
  if (window_.size() < kWindow) {
    window_.push_back(loss);
  } else {
    window_[next_] = loss;
    next_ = (next_ + 1) % kWindow;
  }
  return found;
}

}  // namespace muster::train
