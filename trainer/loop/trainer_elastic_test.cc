// With deterministic: elastic, trainings that change their number of ranks end like one that always
// had the maximum number of ranks, to the bit.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/checkpoint/memory_checkpoint.h"
#include "trainer/loop/trainer_checkpoint_testing.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSteps = 16;
constexpr uint32_t kRanks = 4;

// A generation's number of ranks, and the number of steps after which it ends.
struct Generation {
  uint32_t ranks = 0;
  uint64_t until = kSteps;
};
using Generations = std::vector<Generation>;

enum class Recovery { kDisk, kMemory };

class TrainerElasticTest : public TrainerCheckpointTest {
 protected:
  // The results of a training that must not depend on its number of ranks.
  struct Outcome {
    std::string tensors;
    std::string weights_digest;
    double test_loss = 0;
    double test_accuracy = 0;
    std::vector<float> losses;  // by step; 0: not known
  };

  // A model with batch norm, dropout and augmentation. The last batch of an epoch is smaller, and
  // no batch is a multiple of four.
  v1::JobSpec ElasticSpec(v1::TrainSpec::Determinism determinism = v1::TrainSpec::ELASTIC) const {
    v1::JobSpec job = Spec(kSteps);
    v1::TrainSpec& train = *job.mutable_train();
    v1::ModelSpec& model = *train.mutable_model();
    model.clear_name();
    v1::Conv2dSpec& convolution = *model.add_layers()->mutable_conv2d();
    convolution.set_out_channels(4);
    convolution.set_kernel(3);
    model.add_layers()->mutable_batch_norm2d();
    model.add_layers()->mutable_relu();
    model.add_layers()->mutable_adaptive_avg_pool2d();
    model.add_layers()->mutable_flatten();
    model.add_layers()->mutable_dropout()->set_probability(0.3);
    model.add_layers()->mutable_linear();
    train.set_global_batch(150);
    train.set_deterministic(determinism);
    train.set_record_losses(true);
    train.mutable_augment()->set_flip(true);
    train.mutable_augment()->set_crop_padding(2);
    train.mutable_ema()->set_decay(0.9);
    train.mutable_checkpoint()->set_every_steps(1);  // ranks agree to stop after any step
    train.mutable_strategy()->set_first_bucket_bytes(64);
    job.mutable_resources()->mutable_nodes()->set_min(1);
    job.mutable_resources()->mutable_nodes()->set_max(kRanks);
    job.mutable_resources()->set_device("cpu");
    return job;
  }

  Outcome TrainThrough(const v1::JobSpec& spec, const Generations& generations,
                       Recovery recovery = Recovery::kDisk) {
    data::TemporaryDirectory node;
    keep_ = 1;
    memory_.reset();
    if (recovery == Recovery::kMemory) memory_ = MemoryCheckpoints(node.path() + "/job");
    Outcome outcome;
    outcome.losses.resize(kSteps);
    for (size_t i = 0; i < generations.size(); ++i) {
      const uint32_t ranks = generations[i].ranks;
      const uint64_t until = generations[i].until;
      std::atomic<bool> ended = false;
      const auto at_progress = [&](uint32_t rank, const v1::Progress& progress) {
        if (rank != 0 || progress.phase() != "training" || progress.step() == 0) return;
        outcome.losses[progress.step() - 1] = static_cast<float>(progress.loss());
        if (until == kSteps || progress.step() < until || ended.exchange(true)) return;
        if (recovery == Recovery::kMemory) {
          groups_[ranks - 1].world->Abort(absl::UnavailableError("the rank was lost"));
        } else {
          requests_[0]->RequestStop(SIGTERM);
        }
      };
      const Result result = Train(spec, ranks, i + 1, at_progress)[0];
      if (until == kSteps) {
        EXPECT_TRUE(result.status.ok()) << result.status;
        Finish(result.summary, outcome);
      } else {
        EXPECT_FALSE(result.status.ok());
        EXPECT_EQ(result.left_step.has_value(), recovery == Recovery::kMemory);
        EXPECT_GE(result.step, until);
        EXPECT_LT(result.step, kSteps) << "the generation was not interrupted";
      }
    }
    outcome.tensors = SavedTensors();
    fs::remove_all(checkpoints_.path());
    return outcome;
  }

  static void ExpectSame(const Outcome& actual, const Outcome& expected) {
    EXPECT_TRUE(actual.tensors == expected.tensors);
    EXPECT_EQ(actual.weights_digest, expected.weights_digest);
    EXPECT_EQ(actual.test_loss, expected.test_loss);
    EXPECT_EQ(actual.test_accuracy, expected.test_accuracy);
    for (uint64_t step = 0; step < kSteps; ++step) {
      if (actual.losses[step] == 0) continue;
      EXPECT_EQ(actual.losses[step], expected.losses[step]) << "step " << step;
    }
  }

 private:
  static void Finish(const v1::TrainSummary& summary, Outcome& outcome) {
    EXPECT_EQ(summary.differing_replicas(), 0u);
    outcome.weights_digest = summary.weights_digest();
    outcome.test_loss = summary.test_loss();
    outcome.test_accuracy = summary.test_accuracy();
    std::copy_backward(summary.losses().begin(), summary.losses().end(), outcome.losses.end());
  }
};

TEST_F(TrainerElasticTest, AnyNumberOfRanksTrainsTheSame) {
  const v1::JobSpec spec = ElasticSpec();
  const Outcome expected = TrainThrough(spec, {{kRanks}});
  EXPECT_GT(expected.tensors.size(), 0u);
  for (uint32_t ranks = 1; ranks < kRanks; ++ranks) {
    SCOPED_TRACE(ranks);
    const Outcome outcome = TrainThrough(spec, {{ranks}});
    ExpectSame(outcome, expected);
    EXPECT_EQ(outcome.losses, expected.losses);
  }
}

TEST_F(TrainerElasticTest, ChangesOfTheNumberOfRanksLeaveNoTrace) {
  const v1::JobSpec spec = ElasticSpec();
  const Outcome expected = TrainThrough(spec, {{kRanks}});
  for (const Recovery recovery : {Recovery::kDisk, Recovery::kMemory}) {
    SCOPED_TRACE(recovery == Recovery::kDisk ? "disk" : "memory");
    ExpectSame(TrainThrough(spec, {{4, 3}, {2, 8}, {4}}, recovery), expected);
    ExpectSame(TrainThrough(spec, {{4, 2}, {3, 6}, {1, 10}, {4}}, recovery), expected);
  }
}

// Without the tree, the same changes give other bits: the tests above depend on it.
TEST_F(TrainerElasticTest, OtherTrainingsDependOnTheNumberOfRanks) {
  const v1::JobSpec spec = ElasticSpec(v1::TrainSpec::DETERMINISTIC);
  const Outcome four = TrainThrough(spec, {{kRanks}});
  EXPECT_NE(TrainThrough(spec, {{2}}).tensors, four.tensors);
  EXPECT_NE(TrainThrough(spec, {{4, 3}, {2, 8}, {4}}).tensors, four.tensors);
}

TEST_F(TrainerElasticTest, MixedPrecisionAndOtherOptimizersTrainTheSame) {
  v1::JobSpec spec = ElasticSpec();
  v1::TrainSpec& train = *spec.mutable_train();
  train.set_precision("O2");
  train.mutable_mixed_precision()->set_dtype("float16");
  train.mutable_optimizer()->set_name("adamw");
  train.mutable_optimizer()->clear_momentum();
  train.mutable_optimizer()->set_clip_norm(0.5);
  ExpectSame(TrainThrough(spec, {{4, 3}, {3}}), TrainThrough(spec, {{kRanks}}));
}

}  // namespace
}  // namespace muster::train
