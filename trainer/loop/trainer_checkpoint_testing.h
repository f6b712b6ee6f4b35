// Test support: trainings that write checkpoints, with one thread per rank.
#ifndef MUSTER_TRAINER_LOOP_TRAINER_CHECKPOINT_TESTING_H_
#define MUSTER_TRAINER_LOOP_TRAINER_CHECKPOINT_TESTING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "collectives/testing.h"
#include "gtest/gtest.h"
#include "kernels/device.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/checkpoint/directory_operations.h"
#include "trainer/checkpoint/memory_checkpoint.h"
#include "trainer/data/testing.h"
#include "trainer/loop/trainer.h"

namespace muster::train {

class TrainerCheckpointTest : public ::testing::Test {
 protected:
  struct Failure {
    uint64_t step = 0;
    absl::Status status;
  };

  struct Result {
    absl::Status status;
    v1::TrainSummary summary;
    uint64_t step = 0;
    std::optional<uint64_t> left_step;  // argument of TrainerOptions::on_peer_lost
  };

  using AtProgress = std::function<void(uint32_t rank, const v1::Progress&)>;

  // 1000 training samples; 5 steps per epoch.
  void SetUp() override;

  v1::JobSpec Spec(uint64_t steps) const;

  // Trains with one thread per rank, from the newest checkpoint if there is one; with `memory_`,
  // from the newest complete state in memory. A rank that fails leaves the world, as if its process
  // ended.
  std::vector<Result> Train(v1::JobSpec spec, uint32_t world, uint64_t generation = 1,
                            const AtProgress& at_progress = nullptr);

  // The rank's communicators fail.
  void Abort(uint32_t rank, const absl::Status& reason);

  // State of the newest valid checkpoint.
  std::optional<CheckpointState> Newest() const;
  // The tensor files of all checkpoints: parameters, running statistics, their average and
  // optimizer states. Sorted by name.
  std::string SavedTensors() const;
  // Expects the next generation to continue after `step` and to end like a training that was never
  // interrupted.
  void ExpectContinues(const v1::JobSpec& spec, uint32_t world, uint64_t step);
  // Makes the directory inaccessible, or accessible again.
  void SetAccessible(bool accessible);

 private:
  void ConnectRanks(const v1::JobSpec& spec, uint32_t world);

 protected:
  data::TemporaryDirectory data_;
  data::TemporaryDirectory checkpoints_;
  std::optional<MemoryCheckpoints> memory_;
  std::optional<uint32_t> without_memory_;  // a rank that leaves nothing
  std::string backend_ = "loopback";
  std::unique_ptr<collectives::FileKeyStore> keys_;  // of the groups
  std::vector<ProcessGroups> groups_;
  std::vector<std::unique_ptr<RankRequests>> requests_;
  const DirectoryOperations* operations_ = &RealDirectoryOperations();
  kernels::Device* device_ = &kernels::CpuDevice();
  uint32_t keep_ = 100;
  bool shards_ = false;
  std::vector<uint64_t> written_;
  std::vector<Failure> failures_;
  std::function<void()> at_failure_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_TRAINER_CHECKPOINT_TESTING_H_
