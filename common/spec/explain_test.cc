#include "common/spec/explain.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/spec/spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

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
  EXPECT_GT(paths.size(), 60u);
  for (const std::string& path : paths) {
    const FieldExplanation field = Explain(path);
    EXPECT_FALSE(field.type.empty()) << path;
    EXPECT_TRUE(absl::EndsWith(field.text, ".")) << path << ": '" << field.text << "'";
  }
  EXPECT_THAT(paths, Contains("resources.nodes.max"));
  EXPECT_THAT(paths, Contains("on_lost_coordinator.stop_after"));
  EXPECT_THAT(paths, Not(Contains("time_limit.seconds")));
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
  for (const char* required : {"train.model.name", "train.dataset.path", "train.epochs", "command",
                               "train.optimizer.learning_rate", "train"}) {
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
  EXPECT_THAT(Explain("train.optimizer").fields,
              ElementsAre("name", "learning_rate", "momentum", "weight_decay"));
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
