#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spec/spec.h"

namespace muster::spec {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTrain[] =
    "train: {model: {name: small_cnn}, dataset: {name: fashion_mnist, path: /data}, max_steps: 1,"
    " optimizer: {learning_rate: 0.1}}";

v1::JobSpec Defaulted(const std::vector<std::string>& overrides) {
  auto spec = Parse(kTrain, "job.yaml", overrides);
  EXPECT_TRUE(spec.ok()) << spec.status();
  ApplyDefaults(*spec);
  return *spec;
}

std::string Problems(const std::vector<std::string>& overrides) {
  return std::string(Validate(Defaulted(overrides)).message());
}

TEST(ValidateStrategyTest, AppliesPipelineDefaults) {
  const v1::JobSpec spec = Defaulted(
      {"train.strategy.name=pipeline", "resources.nodes=2", "resources.ranks_per_node=2"});
  const v1::PipelineSpec& pipeline = spec.train().strategy().pipeline();
  EXPECT_EQ(pipeline.stages(), 4u);
  EXPECT_EQ(pipeline.schedule(), "1f1b");
  EXPECT_EQ(pipeline.micro_batches(), 16u);
  const v1::JobSpec sequential =
      Defaulted({"train.strategy={name: pipeline, pipeline: {schedule: sequential}}",
                 "resources.ranks_per_node=2"});
  EXPECT_EQ(sequential.train().strategy().pipeline().micro_batches(), 1u);
  // Other strategies have no pipeline section.
  EXPECT_FALSE(Defaulted({}).train().strategy().has_pipeline());
}

TEST(ValidateStrategyTest, ChecksPipeline) {
  const auto problems = [](const std::string& pipeline, std::vector<std::string> overrides = {}) {
    overrides.push_back("train.strategy={name: pipeline, pipeline: {" + pipeline + "}}");
    overrides.push_back("resources.ranks_per_node=4");
    return Problems(overrides);
  };
  EXPECT_THAT(problems("stages: 2"), Not(HasSubstr("pipeline.")));
  EXPECT_THAT(problems("stages: 3"), HasSubstr("3 stages do not divide 4 ranks"));
  EXPECT_THAT(problems("schedule: interleaved"), HasSubstr("unknown 'interleaved'"));
  EXPECT_THAT(problems("stages: 4, cuts: [conv2]"), HasSubstr("1 cuts make 2 stages, not 4"));
  EXPECT_THAT(problems("stages: 4, cuts: [a, a, b]"), HasSubstr("not 'a' twice"));
  EXPECT_THAT(problems("stages: 2, micro_batches: 100"),
              HasSubstr("128 is below replicas times micro_batches, 200"));
  EXPECT_THAT(problems("", {"resources.nodes={min: 1, max: 2}"}), HasSubstr("one number"));
  EXPECT_THAT(problems("", {"train.accumulation_steps=2"}), HasSubstr("accumulation_steps"));
  EXPECT_THAT(problems("", {"train.sync_batch_norm=true"}), HasSubstr("sync_batch_norm"));
  EXPECT_THAT(problems("", {"train.objective.name=nt_xent"}),
              HasSubstr("must be cross_entropy with pipeline"));
  EXPECT_THAT(Problems({"train.strategy.pipeline.stages=1"}),
              HasSubstr("train.strategy.name is ddp; it applies only with pipeline"));
}

TEST(ValidateStrategyTest, DpAndHybridRequireOneProcessPerNode) {
  for (const std::string name : {"dp", "hybrid"}) {
    const std::string chosen = "train.strategy.name=" + name;
    EXPECT_THAT(Problems({chosen, "resources.ranks_per_node=2"}),
                HasSubstr("must be 1 with " + name));
    EXPECT_THAT(Problems({chosen, "resources.device=gpu", "resources.devices_per_rank=all"}),
                Not(HasSubstr("devices_per_rank")));
  }
  EXPECT_THAT(Problems({"train.strategy.name=dp", "resources.nodes=2"}),
              HasSubstr("resources.nodes: must be 1 with dp"));
  EXPECT_THAT(Problems({"train.strategy.name=hybrid", "resources.nodes=2"}),
              Not(HasSubstr("resources.nodes: must be 1 with dp")));
  EXPECT_THAT(Problems({"resources.device=gpu", "resources.devices_per_rank=2"}),
              HasSubstr("except with strategy dp or hybrid"));
}

TEST(ValidateStrategyTest, ChecksElasticDeterminism) {
  const auto problems = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"train.deterministic=elastic", "resources.device=cpu",
                                         "resources.nodes={min: 1, max: 3}"});
    return Problems(overrides);
  };
  EXPECT_EQ(problems({}), "");
  EXPECT_EQ(problems({"train.precision=O2"}), "");
  EXPECT_THAT(
      problems({"resources.device=auto"}),
      HasSubstr("resources.device: must be cpu with train.deterministic elastic, not auto"));
  EXPECT_THAT(problems({"train.strategy.name=hybrid"}),
              HasSubstr("train.strategy.name: must be ddp with deterministic elastic, not hybrid"));
  EXPECT_THAT(problems({"train.strategy.shard_optimizer=true"}),
              HasSubstr("train.strategy.shard_optimizer: must be false"));
  EXPECT_THAT(problems({"train.objective.name=nt_xent", "train.augment.flip=true"}),
              HasSubstr("train.objective.name: must be cross_entropy"));
  EXPECT_THAT(problems({"train.sync_batch_norm=true"}),
              HasSubstr("train.sync_batch_norm: must be false"));
  EXPECT_THAT(problems({"train.accumulation_steps=2"}),
              HasSubstr("train.accumulation_steps: must be 1 with deterministic elastic, not 2"));
  EXPECT_THAT(problems({"train.precision=O2", "train.mixed_precision.gradient_dtype=bfloat16"}),
              HasSubstr("train.mixed_precision.gradient_dtype: must be float32 or auto"));
  EXPECT_THAT(
      std::string(Parse(kTrain, "job.yaml", {"train.deterministic=sometimes"}).status().message()),
      HasSubstr("unknown 'sometimes'; one of: false, true, elastic"));
}

TEST(ValidateStrategyTest, ChecksShardedOptimizer) {
  const std::string sharded = "train.strategy.shard_optimizer=true";
  EXPECT_THAT(Problems({sharded, "train.optimizer.name=lars"}),
              HasSubstr("must be false with lars"));
  EXPECT_THAT(Problems({sharded, "train.strategy.name=dp"}),
              HasSubstr("train.strategy.name is dp; it applies only with ddp"));
  EXPECT_THAT(Problems({sharded, "train.optimizer.name=adamw"}), Not(HasSubstr("shard_optimizer")));
}

}  // namespace
}  // namespace muster::spec
