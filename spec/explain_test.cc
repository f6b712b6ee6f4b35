#include "spec/explain.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spec/spec.h"

namespace muster::spec {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

FieldExplanation Explain(absl::string_view path) {
  const auto explanation = ExplainField(path);
  EXPECT_TRUE(explanation.ok()) << explanation.status();
  return explanation.value_or(FieldExplanation());
}

TEST(ExplainTest, EveryFieldHasATextAndAType) {
  const std::vector<std::string> paths = FieldPaths();
  EXPECT_GT(paths.size(), 130u);
  for (const std::string& path : paths) {
    const FieldExplanation field = Explain(path);
    EXPECT_FALSE(field.type.empty()) << path;
    EXPECT_TRUE(absl::EndsWith(field.text, ".")) << path << ": '" << field.text << "'";
  }
  EXPECT_THAT(paths, Contains("resources.nodes.max"));
  EXPECT_THAT(paths, Contains("on_lost_coordinator.stop_after"));
  EXPECT_THAT(paths, Not(Contains("time_limit.seconds")));
  EXPECT_THAT(paths, Contains("train.model.layers.conv2d.kernel"));
  EXPECT_THAT(paths, Contains("train.model.layers.residual.layers"));
  // Layers within layers are the same once more.
  EXPECT_THAT(paths, Not(Contains("train.model.layers.residual.layers.conv2d")));
  EXPECT_EQ(Explain("train.model.layers.residual.layers.conv2d.kernel").type,
            "whole number above 0");
}

TEST(ExplainTest, DefaultsAreThoseThatAreApplied) {
  EXPECT_EQ(Explain("failure_timeout").default_value, "30s");
  EXPECT_EQ(Explain("resources.nodes").default_value, "1");
  EXPECT_EQ(Explain("train.global_batch").default_value, "128");
  EXPECT_EQ(Explain("train.strategy.bucket_bytes").default_value, "25MiB");
  EXPECT_EQ(Explain("train.model.batch_norm").default_value, "true");
  EXPECT_EQ(Explain("train.model.hidden").default_value, "[256, 128]");
  EXPECT_EQ(Explain("train.checkpoint.keep").default_value, "3");
  EXPECT_EQ(Explain("train.drop_last").default_value, "false");
  EXPECT_EQ(Explain("on_lost_coordinator").default_value, "continue");
  EXPECT_EQ(Explain("time_limit").default_value, "none");
  EXPECT_EQ(Explain("train.accumulation_steps").default_value, "1");
  EXPECT_EQ(Explain("train.optimizer.beta2").default_value, "0.999");
  EXPECT_EQ(Explain("train.optimizer.epsilon").default_value, "1e-08");
  EXPECT_EQ(Explain("train.optimizer.trust_coefficient").default_value, "0.001");
  EXPECT_EQ(Explain("train.schedule.factor").default_value, "0.1");
  EXPECT_EQ(Explain("train.objective.temperature").default_value, "0.5");
  EXPECT_EQ(Explain("train.objective.negatives").default_value, "global");
  EXPECT_EQ(Explain("train.augment.random_resized_crop.min_scale").default_value, "0.08");
  EXPECT_EQ(Explain("train.augment.random_erasing.max_ratio").default_value, "3.3");
  EXPECT_EQ(Explain("train.tensorboard.every_steps").default_value, "10");
  EXPECT_EQ(Explain("train.precision").default_value, "O0");
  EXPECT_EQ(Explain("train.mixed_precision.dtype").default_value, "bfloat16");
  EXPECT_EQ(Explain("train.mixed_precision.gradient_dtype").default_value, "auto");
  EXPECT_EQ(Explain("train.mixed_precision.loss_scale.growth_interval").default_value, "2000");
  EXPECT_EQ(Explain("train.mixed_precision.loss_scale.initial").default_value,
            "65536 with float16, otherwise none");
  EXPECT_EQ(Explain("train.model.layers.conv2d.stride").default_value, "1");
  EXPECT_EQ(Explain("train.model.layers.conv2d.bias").default_value, "true");
  EXPECT_EQ(Explain("train.model.layers.linear.bias").default_value, "true");
  EXPECT_EQ(Explain("train.model.layers.batch_norm2d.epsilon").default_value, "1e-05");
  EXPECT_EQ(Explain("train.image_size").default_value,
            "the data set's own: 28, or 32 for CIFAR; 224 for folders");
  for (const char* required : {"train.model.name", "train.dataset.path", "train.epochs", "command",
                               "train.optimizer.learning_rate", "train", "train.ema.decay",
                               "train.tensorboard.dir", "train.model.layers.conv2d.kernel"}) {
    EXPECT_EQ(Explain(required).default_value, "") << required;
  }
}

// What is said of a field's words is what the spec's check takes.
TEST(ExplainTest, WordsAreThoseThatAreValid) {
  int fields = 0;
  for (const std::string& path : FieldPaths()) {
    const auto problem_with = [&path](const std::string& word) {
      absl::StatusOr<v1::JobSpec> spec =
          Parse(absl::StartsWith(path, "train") ? "train: {}" : "command: [x]", "s",
                {absl::StrCat(path, "=", word)});
      EXPECT_TRUE(spec.ok()) << spec.status();
      ApplyDefaults(*spec);
      const std::string problems(Validate(*spec).message());
      const size_t line = problems.find(absl::StrCat(path, ": "));
      return line == std::string::npos ? ""
                                       : problems.substr(line, problems.find('\n', line) - line);
    };
    for (const std::string& word : WordsOf(path)) {
      ++fields;
      EXPECT_THAT(problem_with(word), Not(HasSubstr("unknown"))) << path;
    }
    for (const std::string& word : Explain(path).words_elsewhere) {
      EXPECT_THAT(problem_with(word), HasSubstr("not built in"));
    }
    if (!WordsOf(path).empty()) {
      EXPECT_THAT(problem_with("smal_cnn"), HasSubstr("unknown 'smal_cnn'")) << path;
    }
  }
  EXPECT_GT(fields, 10);
}

TEST(ExplainTest, FieldsInside) {
  EXPECT_THAT(
      Explain("train.optimizer").fields,
      ElementsAre("name", "learning_rate", "momentum", "weight_decay", "nesterov", "beta1", "beta2",
                  "epsilon", "trust_coefficient", "exclude_norm_and_bias", "clip_norm"));
  EXPECT_EQ(Explain("train.model.layers").type,
            "list of layers, as in [relu, {linear: {out_features: 10}}]");
  EXPECT_THAT(Explain("train.model.layers").fields, Contains("residual"));
  EXPECT_EQ(Explain("train.model.layers.relu").type, "a bare word");
  EXPECT_EQ(Explain("train.dataset.mean").type, "list of numbers");
  EXPECT_THAT(Explain("").fields, Contains("train"));
  EXPECT_TRUE(Explain("env").fields.empty());
}

TEST(ExplainTest, UnknownPathsNameTheNearest) {
  EXPECT_EQ(ExplainField("train.epoch").status().message(),
            "unknown field 'epoch' in train; did you mean 'epochs'?");
  EXPECT_EQ(ExplainField("epochs").status().message(),
            "unknown field 'epochs' in the spec; did you mean 'train.epochs'?");
  EXPECT_THAT(std::string(ExplainField("name.x").status().message()),
              HasSubstr("name has no fields"));
}

}  // namespace
}  // namespace muster::spec
