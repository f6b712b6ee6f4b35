// Test support: trains with a strategy whose ranks are threads of the test.
#ifndef MUSTER_TRAINER_STRATEGY_TESTING_H_
#define MUSTER_TRAINER_STRATEGY_TESTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/loop/trainer.h"

namespace muster::train {

struct TestWorld {
  std::string backend = "loopback";
  std::vector<uint32_t> ranks_on_node = {1};
  // Devices of each rank.
  std::vector<kernels::Device*> devices = {&kernels::CpuDevice()};
  TrainerOptions options;  // used by all ranks; progress is ignored

  uint32_t size() const;
};

// small_cnn with dropout and momentum, without batch norm, on the synthetic dataset at
// `data_path`.
v1::JobSpec SmallTraining(const std::string& data_path, uint64_t steps);

// Fills in the spec's defaults, trains, and returns the summaries by rank. The test fails if a rank
// returns an error or if ranks end with different weights.
std::vector<v1::TrainSummary> TrainRanks(v1::JobSpec spec, const TestWorld& world);

// Expects losses within a relative `tolerance` of the expected ones.
void ExpectLossesNear(const v1::TrainSummary& actual, const v1::TrainSummary& expected,
                      double tolerance);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_TESTING_H_
