#include "trainer/checkpoint/training_identity.h"

#include <functional>
#include <set>
#include <string>

#include "common/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spec/spec.h"

namespace muster::train {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

using Change = std::function<void(v1::TrainSpec&)>;

v1::TrainSpec Spec(const Change& change = [](v1::TrainSpec&) {}) {
  v1::JobSpec job;
  v1::TrainSpec& spec = *job.mutable_train();
  spec.mutable_model()->set_name("mlp");
  spec.mutable_dataset()->set_name("mnist");
  spec.mutable_dataset()->set_path("/data");
  spec.set_epochs(2);
  spec.set_global_batch(256);
  change(spec);
  spec::ApplyDefaults(job);
  return *job.mutable_train();
}

TrainingIdentity IdentityOf(const v1::TrainSpec& spec, uint32_t shares = 2) {
  return TrainingIdentityOf(spec, shares);
}

// Resumes a checkpoint of one training in another one: the differences.
std::string Resume(const Change& before, const Change& now) {
  CheckpointState state;
  state.training = IdentityOf(Spec(before)).fields;
  return TrainingDifferences(state, IdentityOf(Spec(now)));
}
std::string Resume(const Change& now) {
  return Resume([](v1::TrainSpec&) {}, now);
}

TEST(TrainingIdentityTest, FieldsAreReadable) {
  EXPECT_THAT(IdentityOf(Spec()).fields,
              UnorderedElementsAre(
                  Pair("train.model.name", "mlp"), Pair("train.model.hidden", "[256, 128]"),
                  Pair("train.model.dropout", "0"), Pair("train.dataset.name", "mnist"),
                  Pair("train.global_batch", "256"), Pair("train.image_size", "28"),
                  Pair("train.optimizer.name", "sgd"), Pair("train.precision", "O0"),
                  Pair("train.objective.name", "cross_entropy"), Pair("train.seed", "1"),
                  Pair("train.accumulation_steps", "1")));
}

TEST(TrainingIdentityTest, NumbersAndLayersHaveCanonicalTexts) {
  const TrainingFields fields = IdentityOf(Spec([](v1::TrainSpec& s) {
                                  s.mutable_model()->Clear();
                                  v1::LayerSpec* layer = s.mutable_model()->add_layers();
                                  layer->mutable_batch_norm2d()->set_momentum(0.3);
                                  layer = s.mutable_model()->add_layers();
                                  layer->mutable_residual()->add_layers()->mutable_relu();
                                  s.mutable_dataset()->add_mean(0.1f);
                                  s.mutable_augment()->set_flip(true);
                                })).fields;
  EXPECT_EQ(fields.at("train.model.layers[0]"), "batch_norm2d");
  EXPECT_EQ(fields.at("train.model.layers[0].batch_norm2d.momentum"), "0.3");
  EXPECT_EQ(fields.at("train.model.layers[0].batch_norm2d.epsilon"), "1e-05");
  EXPECT_EQ(fields.at("train.model.layers[1].residual.layers[0]"), "relu");
  EXPECT_EQ(fields.at("train.dataset.mean"), "[0.1]");
  EXPECT_EQ(fields.at("train.augment.flip"), "true");
}

TEST(TrainingIdentityTest, AllowsChangesThatDoNotAffectTheState) {
  EXPECT_EQ(Resume([](v1::TrainSpec& s) { s.set_epochs(9); }), "");
  EXPECT_EQ(Resume([](v1::TrainSpec& s) { s.mutable_optimizer()->set_learning_rate(9); }), "");
  EXPECT_EQ(Resume([](v1::TrainSpec& s) { s.mutable_dataset()->set_path("/elsewhere"); }), "");
  EXPECT_EQ(Resume([](v1::TrainSpec& s) { s.set_deterministic(v1::TrainSpec::NOT_DETERMINISTIC); }),
            "");
  EXPECT_EQ(Resume([](v1::TrainSpec& s) { s.set_tf32(true); }), "");
}

// The state depends on the division of batches, unlike without elastic.
TEST(TrainingIdentityTest, ElasticTrainingKeepsItsNumberOfShares) {
  const v1::TrainSpec elastic =
      Spec([](v1::TrainSpec& s) { s.set_deterministic(v1::TrainSpec::ELASTIC); });
  CheckpointState state;
  state.training = IdentityOf(elastic, 4).fields;
  EXPECT_EQ(TrainingDifferences(state, IdentityOf(elastic, 4)), "");
  EXPECT_EQ(TrainingDifferences(state, IdentityOf(elastic, 1)),
            "train.deterministic: elastic up to 4 ranks, now elastic up to 1 rank");
  EXPECT_EQ(TrainingDifferences(state, IdentityOf(Spec(), 4)),
            "train.deterministic: elastic up to 4 ranks, now true");
  state.training = IdentityOf(Spec(), 4).fields;
  EXPECT_EQ(TrainingDifferences(state, IdentityOf(Spec(), 2)), "");
}

TEST(TrainingIdentityTest, NamesDifferences) {
  EXPECT_EQ(Resume([](v1::TrainSpec& s) {
              s.set_global_batch(512);
              s.set_seed(7);
              s.set_drop_last(true);
            }),
            "train.drop_last: false, now true; train.global_batch: 256, now 512; train.seed: 1, "
            "now 7");
  EXPECT_EQ(Resume([](v1::TrainSpec& s) { s.mutable_model()->add_hidden(9); }),
            "train.model.hidden: [256, 128], now [9]");
}

TEST(TrainingIdentityTest, NamesDifferentLayers) {
  const auto layers = [](const std::string& kinds) {
    return [kinds](v1::TrainSpec& s) {
      s.mutable_model()->Clear();
      for (const char kind : kinds) {
        v1::LayerSpec* const layer = s.mutable_model()->add_layers();
        if (kind == 'r') layer->mutable_relu();
        if (kind == 'f') layer->mutable_flatten();
        if (kind == 'l') layer->mutable_linear();
      }
    };
  };
  EXPECT_EQ(Resume(layers("rfl"), layers("rfl")), "");
  EXPECT_EQ(Resume(layers("rfl"), layers("ffl")), "train.model.layers[0]: relu, now flatten");
  EXPECT_EQ(Resume(layers("rf"), layers("rfr")), "train.model.layers[2]: none, now relu");
  EXPECT_THAT(Resume(layers("rfrfrfrfrfrf"), layers("")), EndsWith("; and 4 more"));
}

TEST(TrainingIdentityTest, DistinguishesPrecisions) {
  const auto mixed = [](const std::string& level, const std::string& dtype) {
    return IdentityOf(Spec([&](v1::TrainSpec& s) {
             s.set_precision(level);
             if (level != "O0") s.mutable_mixed_precision()->set_dtype(dtype);
           }))
        .fields;
  };
  const std::set<TrainingFields> trainings = {mixed("O0", ""), mixed("O1", "bfloat16"),
                                              mixed("O2", "bfloat16"), mixed("O2", "float16"),
                                              mixed("O3", "float16")};
  EXPECT_EQ(trainings.size(), 5u);
}

TEST(TrainingIdentityTest, AbsentFieldHasItsDefault) {
  const TrainingIdentity training = IdentityOf(Spec());
  CheckpointState state;
  state.training = training.fields;
  // As if a release after that of the checkpoint had added them.
  for (const char* path : {"train.accumulation_steps", "train.precision", "train.model.hidden"}) {
    ASSERT_EQ(state.training.erase(path), 1u);
  }
  const TrainingIdentity changed =
      IdentityOf(Spec([](v1::TrainSpec& s) { s.set_accumulation_steps(2); }));
  EXPECT_EQ(TrainingDifferences(state, training), "");
  EXPECT_EQ(TrainingDifferences(state, changed), "train.accumulation_steps: 1, now 2");
  // As if a later release had written the checkpoint.
  state.training["train.augment.flip"] = "false";
  state.training["train.augment.random_erasing.probability"] = "0.5";
  EXPECT_EQ(TrainingDifferences(state, training), "");
  state.training["train.model.attention.heads"] = "8";
  EXPECT_EQ(TrainingDifferences(state, training), "train.model.attention.heads: 8, now none");
}

TEST(TrainingIdentityTest, ComparesDigestOfEarlierReleases) {
  CheckpointState state;
  state.training_digest = Sha256Hex(
      "model { name: \"mlp\" dropout: 0 hidden: 256 hidden: 128 } dataset { name: \"mnist\" } "
      "global_batch: 256 image_size: 28 optimizer { name: \"sgd\" } precision: \"O0\" "
      "objective { name: \"cross_entropy\" } augment { } seed: 1 accumulation_steps: 1");
  EXPECT_EQ(TrainingDifferences(state, IdentityOf(Spec())), "");
  const TrainingIdentity other = IdentityOf(Spec([](v1::TrainSpec& s) { s.set_seed(2); }));
  EXPECT_THAT(TrainingDifferences(state, other), HasSubstr("seed or augmentation differs"));
}

}  // namespace
}  // namespace muster::train
