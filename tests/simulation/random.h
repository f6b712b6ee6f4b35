// The random source of a simulation; everything derives from one seed.
#ifndef MUSTER_TESTS_SIMULATION_RANDOM_H_
#define MUSTER_TESTS_SIMULATION_RANDOM_H_

#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace muster::simulation {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  uint64_t Next() { return engine_(); }
  // A value from 0 to bound - 1. (The distributions of std differ between libraries, and a seed
  // must give the same simulation everywhere.)
  uint64_t Below(uint64_t bound) { return engine_() % bound; }
  bool Chance(double probability) {
    return static_cast<double>(engine_() >> 11) * 0x1.0p-53 < probability;
  }
  absl::Duration Between(absl::Duration low, absl::Duration high) {
    return low + absl::Microseconds(Below(absl::ToInt64Microseconds(high - low) + 1));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_RANDOM_H_
