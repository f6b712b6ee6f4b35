#include "spec/explain.h"

#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
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
  // Layers within layers have the same fields and are listed once.
  EXPECT_THAT(paths, Not(Contains("train.model.layers.residual.layers.conv2d")));
  EXPECT_EQ(Explain("train.model.layers.residual.layers.conv2d.kernel").type,
            "integer from 1 to 1024, in pixels");
}

TEST(ExplainTest, ShowsDefaults) {
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
  EXPECT_EQ(Explain("train.optimizer.epsilon").default_value, "1e-8");
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
            "65536 with float16; required with bfloat16");
  EXPECT_EQ(Explain("train.model.layers.conv2d.stride").default_value, "1");
  EXPECT_EQ(Explain("train.model.layers.conv2d.bias").default_value, "true");
  EXPECT_EQ(Explain("train.model.layers.linear.bias").default_value, "true");
  EXPECT_EQ(Explain("train.model.layers.batch_norm2d.epsilon").default_value, "1e-5");
  EXPECT_EQ(Explain("train.image_size").default_value,
            "the dataset's own: 28, or 32 for CIFAR; 224 for folders");
  for (const char* required : {"train.model.name", "train.dataset.path", "train.epochs", "command",
                               "train.optimizer.learning_rate", "train", "train.ema.decay",
                               "train.tensorboard.dir", "train.model.layers.conv2d.kernel"}) {
    EXPECT_EQ(Explain(required).default_value, "") << required;
  }
}

// The listed values of a field are those that Validate accepts.
TEST(ExplainTest, ListsValidWords) {
  int fields = 0;
  for (const std::string& path : FieldPaths()) {
    const auto problem_with = [&path](const std::string& word) {
      absl::StatusOr<v1::JobSpec> spec =
          Parse(absl::StartsWith(path, "train") ? "train: {}" : "command: [x]", "s",
                {absl::StrCat(path, "=", word)});
      if (spec.ok()) ApplyDefaults(*spec);
      // Other words than those of an enum cannot be parsed.
      const std::string problems((spec.ok() ? Validate(*spec) : spec.status()).message());
      const size_t line = problems.find(absl::StrCat(path, ": "));
      return line == std::string::npos ? ""
                                       : problems.substr(line, problems.find('\n', line) - line);
    };
    for (const std::string& word : WordsOf(path)) {
      ++fields;
      EXPECT_THAT(problem_with(word), Not(HasSubstr("unknown"))) << path;
    }
    // The value of a field that does not apply is not checked.
    const bool applies = !absl::StrContains(Explain(path).text, " Only with ") &&
                         !absl::StartsWith(path, "train.mixed_precision") &&
                         !absl::StartsWith(path, "train.strategy.pipeline");
    if (!WordsOf(path).empty() && applies) {
      EXPECT_THAT(problem_with("smal_cnn"), HasSubstr("unknown 'smal_cnn'")) << path;
    }
  }
  EXPECT_GT(fields, 10);
}

TEST(ExplainTest, ListsFieldsOfSections) {
  EXPECT_THAT(
      Explain("train.optimizer").fields,
      ElementsAre("name", "learning_rate", "momentum", "weight_decay", "nesterov", "beta1", "beta2",
                  "epsilon", "trust_coefficient", "exclude_norm_and_bias", "clip_norm"));
  EXPECT_EQ(Explain("train.model.layers").type,
            "list of layers, as in [relu, {linear: {out_features: 10}}]");
  EXPECT_THAT(Explain("train.model.layers").fields, Contains("residual"));
  EXPECT_EQ(Explain("train.model.layers.relu").type, "no options");
  EXPECT_EQ(Explain("train.dataset.mean").type, "list of numbers from 0 to 1");
  EXPECT_THAT(Explain("").fields, Contains("train"));
  EXPECT_TRUE(Explain("env").fields.empty());
}

TEST(ExplainTest, SuggestsPathsForUnknownOnes) {
  EXPECT_EQ(ExplainField("train.epoch").status().message(),
            "unknown field 'epoch' in train; did you mean 'epochs'?");
  EXPECT_EQ(ExplainField("epochs").status().message(),
            "unknown field 'epochs' in the spec; did you mean 'train.epochs'?");
  EXPECT_THAT(std::string(ExplainField("name.x").status().message()),
              HasSubstr("name has no fields"));
}

TEST(ExampleSpecTest, IsValid) {
  absl::StatusOr<v1::JobSpec> spec = Parse(ExampleSpec(), "example");
  ASSERT_TRUE(spec.ok()) << spec.status();
  ApplyDefaults(*spec);
  EXPECT_EQ(Validate(*spec).message(), "");
}

// The example lists every field, and is still valid with each commented-out field set.
TEST(ExampleSpecTest, OfACommandSetsOnlyTheCommand) {
  const std::string example = ExampleSpec(JobKind::kCommand);
  absl::StatusOr<v1::JobSpec> spec = Parse(example, "example");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_GT(spec->command_size(), 0);
  spec->clear_command();
  EXPECT_EQ(spec->ByteSizeLong(), 0u) << spec->DebugString();
  EXPECT_THAT(example, HasSubstr("\n#env: "));
  EXPECT_THAT(example, Not(HasSubstr("train:")));
}

TEST(ExampleSpecTest, ListsEveryFieldWithAValidValue) {
  const std::string example = ExampleSpec();
  std::set<std::string> named;
  std::string where;
  for (const absl::string_view line : absl::StrSplit(example, '\n')) {
    EXPECT_LE(line.size(), 100u) << line;
    absl::string_view text = absl::StripLeadingAsciiWhitespace(line);
    if (text.empty() || absl::StartsWith(text, "# ")) continue;
    const bool inside = text.size() < line.size();
    const bool commented = absl::ConsumePrefix(&text, "#");
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(text, absl::MaxSplits(": ", 1));
    if (text == "train:") {
      named.insert("train");
      continue;
    }
    const std::string path = absl::StrCat(inside ? "train." : "", parts.first);
    named.insert(path);
    // Not with train, which is set.
    const bool for_commands =
        path == "command" || path == "files" || path == "launcher" || path == "checkpoint_dir";
    if (!commented || for_commands) continue;
    std::vector<std::string> overrides = {absl::StrCat(path, "=", parts.second)};
    if (path == "train.init_exclude") overrides.push_back("train.init_from=/m.safetensors");
    if (path == "train.mixed_precision") overrides.push_back("train.precision=O2");
    absl::StatusOr<v1::JobSpec> spec = Parse(example, "example", overrides);
    ASSERT_TRUE(spec.ok()) << spec.status();
    ApplyDefaults(*spec);
    EXPECT_EQ(Validate(*spec).message(), "") << line;
  }
  for (const std::string& name : Explain("").fields) EXPECT_TRUE(named.count(name)) << name;
  for (const std::string& name : Explain("train").fields) {
    EXPECT_TRUE(named.count("train." + name)) << name;
  }
}

TEST(SpecReferenceTest, PageIsUpToDate) {
  std::ifstream file("docs/reference/spec.md");
  ASSERT_TRUE(file);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(page == SpecReference())
      << "run: bazel run //spec:write_reference > docs/reference/spec.md";
}

}  // namespace

}  // namespace muster::spec
