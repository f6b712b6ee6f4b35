#include "trainer/strategy/testing.h"

#include <numeric>
#include <utility>

#include "collectives/testing.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spec/spec.h"
#include "trainer/loop/training_setup.h"
#include "trainer/strategy/create_strategy.h"

namespace muster::train {

uint32_t TestWorld::size() const {
  return std::accumulate(ranks_on_node.begin(), ranks_on_node.end(), 0u);
}

v1::JobSpec SmallTraining(const std::string& data_path, uint64_t steps) {
  v1::JobSpec job;
  v1::TrainSpec& spec = *job.mutable_train();
  spec.mutable_model()->set_name("small_cnn");
  spec.mutable_model()->set_batch_norm(false);
  spec.mutable_model()->set_dropout(0.2);
  spec.mutable_dataset()->set_name("fashion_mnist");
  spec.mutable_dataset()->set_path(data_path);
  spec.set_max_steps(steps);
  spec.set_global_batch(50);
  spec.mutable_optimizer()->set_name("sgd");
  spec.mutable_optimizer()->set_learning_rate(0.02);
  spec.mutable_optimizer()->set_momentum(0.9);
  spec.mutable_strategy()->set_first_bucket_bytes(4096);
  spec.set_seed(1);
  spec.set_record_losses(true);
  return job;
}

std::vector<v1::TrainSummary> TrainRanks(v1::JobSpec spec, const TestWorld& world) {
  spec::ApplyDefaults(spec);
  collectives::FileKeyStore keys;
  std::vector<v1::TrainSummary> summaries(world.size());
  const auto run = [&](uint32_t rank) -> absl::Status {
    ASSIGN_OR_RETURN(auto setup, SetUpTraining(spec, world.size(), "", world.devices));
    collectives::WorldOptions options;
    options.backend = world.backend;
    options.rank = rank;
    options.world_size = world.size();
    options.ranks_on_node = world.ranks_on_node;
    options.store = &keys;
    options.interface_address = "127.0.0.1";
    ASSIGN_OR_RETURN(const ProcessGroups groups,
                     ProcessGroups::Create(options, RequiredGroupsOf(spec.train())));
    TrainerOptions own = world.options;
    own.progress = [](const v1::Progress&) {};
    Trainer trainer(std::move(setup), &groups, std::move(own));
    ASSIGN_OR_RETURN(summaries[rank], trainer.Run());
    // A rank must not leave while a peer may still need it.
    return groups.world->Barrier()->Wait();
  };
  EXPECT_THAT(collectives::RunRankThreads(world.size(), run), ::testing::Each(""));
  EXPECT_EQ(summaries[0].differing_replicas(), 0);
  return summaries;
}

void ExpectLossesNear(const v1::TrainSummary& actual, const v1::TrainSummary& expected,
                      double tolerance) {
  ASSERT_EQ(actual.losses_size(), expected.losses_size());
  EXPECT_GT(actual.losses_size(), 0);
  for (int i = 0; i < actual.losses_size(); ++i) {
    EXPECT_NEAR(actual.losses(i), expected.losses(i), tolerance * expected.losses(i)) << i;
  }
}

}  // namespace muster::train
