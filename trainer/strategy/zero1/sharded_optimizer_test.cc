// Expects ranks with sharded optimizer states to train as ranks with complete states do: on every
// backend, with uneven shards, across checkpoints and numbers of ranks.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "collectives/testing.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/guarded_device.h"
#include "spec/spec.h"
#include "trainer/data/testing.h"
#include "trainer/loop/trainer.h"
#include "trainer/loop/training_setup.h"
#include "trainer/strategy/shares.h"

namespace muster::train {
namespace {

TEST(SharesTest, DividesPaddedArrayIntoCacheLines) {
  const Shares shares(100, 3);
  EXPECT_EQ(shares.length(), 48);
  EXPECT_EQ(shares.padded(), 144);
  EXPECT_EQ(shares.of(0).end, 48);
  EXPECT_EQ(shares.of(1).begin, 48);
  EXPECT_EQ(shares.of(2).begin, 96);
  EXPECT_EQ(shares.of(2).end, 100);
  // More ranks than cache lines.
  EXPECT_EQ(Shares(20, 4).of(1).count(), 4);
  EXPECT_EQ(Shares(20, 4).of(3).count(), 0);
}

// Number of ranks on each node and the collective backend.
struct World {
  std::string backend;
  std::vector<uint32_t> ranks_on_node;

  uint32_t size() const {
    uint32_t size = 0;
    for (const uint32_t ranks : ranks_on_node) size += ranks;
    return size;
  }
};

class ShardedOptimizerTest : public ::testing::Test {
 protected:
  void SetUp() override { data::WriteSyntheticDataset(data_.path(), 330, 50); }

  // Odd parameter sizes, so that shards are uneven.
  v1::JobSpec Sgd(uint64_t steps) const {
    v1::JobSpec job;
    v1::TrainSpec& spec = *job.mutable_train();
    spec.mutable_model()->set_name("mlp");
    for (const uint32_t width : {61, 37}) spec.mutable_model()->add_hidden(width);
    spec.mutable_dataset()->set_name("fashion_mnist");
    spec.mutable_dataset()->set_path(data_.path());
    spec.set_max_steps(steps);
    spec.set_global_batch(50);
    spec.mutable_optimizer()->set_name("sgd");
    spec.mutable_optimizer()->set_learning_rate(0.02);
    spec.mutable_optimizer()->set_momentum(0.9);
    spec.mutable_optimizer()->set_weight_decay(5e-4);
    spec.mutable_optimizer()->set_exclude_norm_and_bias(true);
    spec.mutable_strategy()->set_first_bucket_bytes(4096);
    spec.mutable_strategy()->set_bucket_bytes(1 << 16);
    spec.mutable_checkpoint()->set_every_steps(5);
    spec.set_seed(1);
    spec.set_record_losses(true);
    return job;
  }
  v1::JobSpec AdamW(uint64_t steps) const {
    v1::JobSpec job = Sgd(steps);
    v1::OptimizerSpec& optimizer = *job.mutable_train()->mutable_optimizer();
    optimizer.Clear();
    optimizer.set_name("adamw");
    optimizer.set_learning_rate(0.001);
    optimizer.set_weight_decay(0.01);
    return job;
  }
  // With accumulation, clipping and a moving average.
  static v1::JobSpec Rich(v1::JobSpec job) {
    job.mutable_train()->set_accumulation_steps(2);
    job.mutable_train()->mutable_optimizer()->set_clip_norm(1);
    job.mutable_train()->mutable_ema()->set_decay(0.8);
    return job;
  }
  static v1::JobSpec Overflowing(v1::JobSpec job) {
    job.mutable_train()->set_precision("O2");
    v1::MixedPrecisionSpec& mixed = *job.mutable_train()->mutable_mixed_precision();
    mixed.set_dtype("float16");
    mixed.mutable_loss_scale()->set_initial(1 << 24);
    mixed.mutable_loss_scale()->set_growth_interval(4);
    return job;
  }
  static v1::JobSpec Sharded(v1::JobSpec job) {
    job.mutable_train()->mutable_strategy()->set_shard_optimizer(true);
    return job;
  }

  // Trains on all ranks and returns rank 0's summary.
  v1::TrainSummary Train(v1::JobSpec spec, const World& world, const TrainerOptions& options = {}) {
    spec::ApplyDefaults(spec);
    collectives::FileKeyStore keys;
    std::vector<v1::TrainSummary> summaries(world.size());
    const auto run = [&](uint32_t rank) -> absl::Status {
      ASSIGN_OR_RETURN(auto setup, SetUpTraining(spec, world.size(), "", {device_}));
      collectives::WorldOptions group;
      group.backend = world.backend;
      group.rank = rank;
      group.world_size = world.size();
      group.ranks_on_node = world.ranks_on_node;
      group.store = &keys;
      group.interface_address = "127.0.0.1";
      ASSIGN_OR_RETURN(const ProcessGroups groups, ProcessGroups::Create(group, {}));
      TrainerOptions own = options;
      own.progress = [](const v1::Progress&) {};
      Trainer trainer(std::move(setup), &groups, std::move(own));
      ASSIGN_OR_RETURN(summaries[rank], trainer.Run());
      return absl::OkStatus();
    };
    EXPECT_THAT(collectives::RunRankThreads(world.size(), run), ::testing::Each(""));
    EXPECT_EQ(summaries[0].differing_replicas(), 0);
    return summaries[0];
  }

  static void ExpectNear(const v1::TrainSummary& actual, const v1::TrainSummary& expected,
                         double tolerance) {
    ASSERT_EQ(actual.losses_size(), expected.losses_size());
    EXPECT_GT(actual.losses_size(), 0);
    for (int i = 0; i < actual.losses_size(); ++i) {
      EXPECT_NEAR(actual.losses(i), expected.losses(i), tolerance * expected.losses(i)) << i;
    }
    EXPECT_EQ(actual.skipped_steps(), expected.skipped_steps());
  }

  TrainerOptions WithCheckpoints(const data::TemporaryDirectory& directory,
                                 uint64_t generation = 1) const {
    TrainerOptions options;
    options.job_id = "job";
    options.generation = generation;
    auto checkpoints =
        CheckpointDirectory::OpenForWriting({directory.path(), "job", generation, 10});
    EXPECT_TRUE(checkpoints.ok()) << checkpoints.status();
    options.checkpoints = *std::move(checkpoints);
    return options;
  }

  static std::string OptimizerBytes(const data::TemporaryDirectory& directory, uint64_t step) {
    std::ifstream in(
        absl::StrFormat("%s/step-%08d.g1/optimizer.safetensors", directory.path(), step),
        std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  kernels::Device* device_ = &kernels::CpuDevice();
  data::TemporaryDirectory data_;
};

// Configurations that add in the same order in both cases.
TEST_F(ShardedOptimizerTest, TrainsBitIdentically) {
  for (const World& world :
       {World{"loopback", {1}}, World{"loopback", {2}}, World{"loopback", {3}},
        World{"loopback", {4}}, World{"shm", {2}}, World{"shm", {4}}, World{"gloo", {2}}}) {
    for (const v1::JobSpec& spec : {Sgd(8), AdamW(8)}) {
      SCOPED_TRACE(absl::StrFormat("%s on %d: %s", world.backend, world.size(),
                                   spec.train().optimizer().name()));
      const v1::TrainSummary whole = Train(spec, world);
      const v1::TrainSummary sharded = Train(Sharded(spec), world);
      EXPECT_EQ(sharded.weights_digest(), whole.weights_digest());
      EXPECT_THAT(sharded.losses(), ::testing::ElementsAreArray(whole.losses()));
    }
  }
}

TEST_F(ShardedOptimizerTest, TrainsIdenticallyOnEveryBackend) {
  for (const World& world :
       {World{"gloo", {4}}, World{"hierarchical", {2, 2}}, World{"hierarchical", {1, 2}},
        World{"loopback", {3}}, World{"shm", {3}}}) {
    for (const v1::JobSpec& spec :
         {Sgd(8), Rich(Sgd(8)), Rich(AdamW(8)), Overflowing(Rich(Sgd(12)))}) {
      SCOPED_TRACE(absl::StrFormat("%s on %d: %s", world.backend, world.size(),
                                   spec.train().ShortDebugString()));
      // The order of additions may differ, and 16-bit rounding amplifies the difference.
      const double tolerance = spec.train().precision().empty() ? 1e-6 : 1e-5;
      ExpectNear(Train(Sharded(spec), world), Train(spec, world), tolerance);
    }
  }
}

TEST_F(ShardedOptimizerTest, AllRanksSkipOverflowingSteps) {
  const v1::TrainSummary summary = Train(Sharded(Overflowing(Rich(Sgd(12)))), {"gloo", {3}});
  EXPECT_GT(summary.skipped_steps(), 1);
  EXPECT_LT(summary.skipped_steps(), 12);
}

// A device whose memory the process cannot access.
TEST_F(ShardedOptimizerTest, TrainsInDeviceMemory) {
  for (const v1::JobSpec& spec : {Sgd(6), Rich(AdamW(6)), Overflowing(Rich(Sgd(8)))}) {
    device_ = &kernels::CpuDevice();
    const v1::TrainSummary expected = Train(Sharded(spec), {"gloo", {2}});
    device_ = &kernels::GuardedDevice();
    const v1::TrainSummary actual = Train(Sharded(spec), {"gloo", {2}});
    EXPECT_EQ(actual.weights_digest(), expected.weights_digest());
    EXPECT_EQ(actual.skipped_steps(), expected.skipped_steps());
  }
}

TEST_F(ShardedOptimizerTest, EachRankHoldsItsShardOfStates) {
  for (const World& world : {World{"gloo", {3}}, World{"shm", {3}}}) {
    const v1::TrainSummary whole = Train(AdamW(3), world);
    const v1::TrainSummary sharded = Train(Sharded(AdamW(3)), world);
    ASSERT_EQ(whole.devices_size(), 3);
    ASSERT_EQ(sharded.devices_size(), 3);
    uint64_t sum = 0;
    for (int rank = 0; rank < 3; ++rank) {
      const uint64_t all = whole.devices(rank).optimizer_bytes();
      const uint64_t own = sharded.devices(rank).optimizer_bytes();
      EXPECT_LT(own, all / 3 + 2 * 64);
      EXPECT_GT(own, all / 3 - 4 * 64);
      sum += own;
    }
    EXPECT_EQ(sum, whole.devices(0).optimizer_bytes());
  }
}

// Checkpoints written with and without the option are resumed with and without it.
TEST_F(ShardedOptimizerTest, CheckpointsContainCompleteStates) {
  for (const v1::JobSpec& spec : {Sgd(8), AdamW(8)}) {
    for (const std::string backend : {"loopback", "shm"}) {
      SCOPED_TRACE(backend + " " + spec.train().optimizer().name());
      const data::TemporaryDirectory replicated, sharded;
      const World four{backend, {4}}, three{backend, {3}}, one{backend, {1}};
      Train(spec, four, WithCheckpoints(replicated));
      Train(Sharded(spec), four, WithCheckpoints(sharded));
      for (const uint64_t step : {5, 8}) {
        EXPECT_FALSE(OptimizerBytes(replicated, step).empty());
        EXPECT_EQ(OptimizerBytes(sharded, step), OptimizerBytes(replicated, step));
      }
      uint64_t generation = 1;
      const auto resume = [&](const v1::JobSpec& how, const World& world,
                              const data::TemporaryDirectory& from) {
        TrainerOptions options = WithCheckpoints(from, ++generation);
        // The root need not be rank 0.
        options.resume =
            ResumePoint{.rank = world.size() - 1, .step = 5, .name = "step-00000005.g1"};
        const v1::TrainSummary summary = Train(how, world, options);
        EXPECT_EQ(summary.resumed_from_step(), 5);
        EXPECT_EQ(summary.losses_size(), 8) << "of all generations";
        return summary.weights_digest();
      };
      const std::string expected = resume(spec, three, replicated);
      EXPECT_EQ(resume(Sharded(spec), three, sharded), expected);
      EXPECT_EQ(resume(Sharded(spec), three, replicated), expected);
      EXPECT_EQ(resume(spec, three, sharded), expected);
      EXPECT_EQ(resume(Sharded(spec), one, sharded), resume(spec, one, replicated));
    }
  }
}

TEST_F(ShardedOptimizerTest, RejectsDifferentParameterLayouts) {
  v1::JobSpec spec = Sharded(Sgd(2));
  spec::ApplyDefaults(spec);
  const auto run = [&](uint32_t rank) -> absl::Status {
    ASSIGN_OR_RETURN(auto setup, SetUpTraining(spec, 2, "", {device_}));
    static collectives::FileKeyStore keys;
    collectives::WorldOptions group;
    group.rank = rank;
    group.world_size = 2;
    group.ranks_on_node = {2};
    group.store = &keys;
    ASSIGN_OR_RETURN(const ProcessGroups groups, ProcessGroups::Create(group, {}));
    TrainerOptions options;
    options.canonical_layout = true;
    options.progress = [](const v1::Progress&) {};
    Trainer trainer(std::move(setup), &groups, std::move(options));
    return trainer.Run().status();
  };
  EXPECT_THAT(
      collectives::RunRankThreads(2, run),
      ::testing::Each(::testing::HasSubstr("train.strategy.shard_optimizer: the ranks lay out")));
}

}  // namespace
}  // namespace muster::train
