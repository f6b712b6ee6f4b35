// Sets up a train job on a rank before it knows its peers: opens the data and compiles the model.
#ifndef MUSTER_TRAINER_LOOP_TRAINING_SETUP_H_
#define MUSTER_TRAINER_LOOP_TRAINING_SETUP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/worker.pb.h"
#include "trainer/checkpoint/training_identity.h"
#include "trainer/data/cache_file.h"
#include "trainer/data/dataset.h"
#include "trainer/data/sampler.h"
#include "trainer/optim/schedule.h"
#include "trainer/precision/training_precision.h"
#include "trainer/strategy/strategy.h"

namespace muster::train {

struct TrainingSetup {
  v1::TrainSpec spec;
  uint32_t world_size = 0;  // number of ranks
  std::unique_ptr<data::ImageDataset> training;
  std::unique_ptr<data::ImageDataset> test;
  data::StepMap steps;
  uint64_t total_steps = 0;
  Schedule schedule;
  TrainingPrecision precision;
  uint32_t max_samples = 0;  // CompileOptions::max_batch
  uint32_t shares = 1;       // BatchDivision::shares
  std::unique_ptr<StrategySetup> strategy;
  TrainingIdentity identity;  // for checkpoints
  // Properties that must agree between all ranks but that the spec does not determine; see
  // JoinInfo.fingerprint.
  std::vector<v1::FingerprintEntry> fingerprint;
};

// Errors carry an exit code: kExitNoInput for data that cannot be read, kExitBadSpec for an invalid
// spec, kExitNoDevice if the device lacks a library; none: DEADLINE_EXCEEDED of OpenDataset.
// `devices` are the rank's devices and outlive the setup; only strategies that drive several
// devices use more than the first. Reports the progress of opening the data to `cache`.
absl::StatusOr<std::unique_ptr<TrainingSetup>> SetUpTraining(
    const v1::JobSpec& spec, uint32_t world_size, const data::Cache& cache,
    const std::vector<kernels::Device*>& devices = {&kernels::CpuDevice()});

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_TRAINING_SETUP_H_
