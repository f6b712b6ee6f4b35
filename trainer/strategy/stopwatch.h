// Measures elapsed time in a scope.
#ifndef MUSTER_TRAINER_STRATEGY_STOPWATCH_H_
#define MUSTER_TRAINER_STRATEGY_STOPWATCH_H_

#include "absl/time/time.h"
#include "common/time/now.h"
#include "common/time/time.h"

namespace muster::train {

// Adds its own lifetime to `total`, which outlives it.
class Stopwatch {
 public:
  explicit Stopwatch(absl::Duration& total) : total_(total), start_(Now().steady) {}
  ~Stopwatch() { total_ += Now().steady - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  absl::Duration& total_;
  const SteadyTime start_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_STOPWATCH_H_
