// For tests: trainings of a strategy, whose ranks are threads of the test.
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
  // Of each rank.
  std::vector<kernels::Device*> devices = {&kernels::CpuDevice()};
  TrainerOptions options;  // of all ranks; without progress

  uint32_t size() const;
};

// small_cnn with batch norm, dropout and momentum, on the synthetic data set at `data_path`.
v1::JobSpec SmallTraining(const std::string& data_path, uint64_t steps);

// By rank, after the spec's defaults are filled in. An error of a rank, and ranks that end with
// other weights, fail the test.
std::vector<v1::TrainSummary> TrainRanks(v1::JobSpec spec, const TestWorld& world);

// Losses within `tolerance` of the expected ones, relatively.
void ExpectLossesNear(const v1::TrainSummary& actual, const v1::TrainSummary& expected,
                      double tolerance);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_TESTING_H_
