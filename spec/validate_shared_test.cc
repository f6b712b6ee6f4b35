// Parsing and validation of the fields that matter on a shared cluster: secrets, constraints,
// dependencies.
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spec/spec.h"

namespace muster::spec {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string ProblemsOf(const std::string& text, const std::string& change) {
  absl::StatusOr<v1::JobSpec> spec = Parse(text, "job.yaml", {change});
  if (!spec.ok()) return std::string(spec.status().message());
  ApplyDefaults(*spec);
  return std::string(Validate(*spec).message());
}

std::string ErrorOf(const std::string& text) {
  return std::string(Parse(text, "job.yaml").status().message());
}

TEST(ParseSharedTest, ReadsSecretsOfTheEnvironment) {
  const std::string text =
      "command: [x]\nsecret_env: {B: b}\nenv: {A: 1, TOKEN: {secret: hf-token}}\n";
  const auto spec = Parse(text, "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->env_size(), 1);
  EXPECT_EQ(spec->secret_env().at("TOKEN"), "hf-token");
  EXPECT_EQ(spec->secret_env().at("B"), "b");
  EXPECT_THAT(ToYaml(*spec), HasSubstr("env: {A: 1, B: {secret: b}, TOKEN: {secret: hf-token}}\n"));
  EXPECT_THAT(ToYaml(*spec), Not(HasSubstr("secret_env")));
  const auto changed =
      Parse(text, "job.yaml", {"env.A={secret: a}", "env.TOKEN=open", "env.C={secret: c}"});
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_THAT(ToYaml(*changed),
              HasSubstr("env: {TOKEN: open, A: {secret: a}, B: {secret: b}, C: {secret: c}}\n"));
  const auto replaced = Parse(text, "job.yaml", {"env={D: 1}"});
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  EXPECT_THAT(ToYaml(*replaced), HasSubstr("env: {D: 1}\n"));
  EXPECT_THAT(ErrorOf("env: {A: {secret: [b]}}"),
              HasSubstr("env 'A'.secret: expected the name of a secret, found a list"));
  EXPECT_THAT(ErrorOf("env: {A: {secret: b, file: c}}"),
              HasSubstr("env 'A': expected a string or {secret: NAME}, found a map"));
}

TEST(ValidateSharedTest, ReportsProblemsOfCommands) {
  const std::pair<const char*, const char*> cases[] = {
      {"env.TOKEN={secret: hf-token_1.a}", ""},
      {"env.TOKEN={secret: a/b}",
       "env 'TOKEN'.secret: must be 1 to 63 letters, digits, '.', '_' "
       "and '-', not 'a/b'"},
      {"env.TOKEN={secret: ..}", "env 'TOKEN'.secret: must be 1 to 63 letters"},
      {"env.RANK={secret: a}", "env 'RANK': is set by Muster; choose another name"},
      {"env.MUSTER_X={secret: a}", "env 'MUSTER_X': is set by Muster; choose another name"},
      {"env.MUSTER_HOSTED_STORE=1", ""},
      {"env.MUSTER_HOSTED_STORE=yes", "env 'MUSTER_HOSTED_STORE': must be 0 or 1, not 'yes'"},
      {"secret_env={A: a}", "env 'A': has both a value and a secret; remove one of them"},
      {"resources={select: {gpu: h100, rack: a}, exclude_nodes: [n1], prefer_nodes: [n2]}", ""},
      {"resources={exclude_nodes: [n1], prefer_nodes: [n1]}",
       "resources.prefer_nodes: 'n1' is also in exclude_nodes"},
      {"resources={select: {'': a}}", "resources.select '': is not a label"},
      {"resources={gpu_model: H100, gpu_memory: 80GiB, exclusive: true}", ""},
      {"resources={gpu_model: H100, device: cpu}",
       "resources.gpu_model: is given, but resources.device is cpu; remove one of them"},
      {"resources={gpu_memory: 80GiB, device: cpu}", "resources.gpu_memory: is given, but"},
      {"resources={ranks: 7}", ""},
      {"resources={ranks: 131073}", "resources.ranks: must be from 1 to 131072, not 131073"},
      {"resources={ranks: 7, nodes: 2}",
       "resources.ranks: is given in place of resources.nodes, which is also set"},
      {"resources={ranks: 7, ranks_per_node: 2}",
       "resources.ranks: is given in place of resources.ranks_per_node, which is also set"},
      {"priority_class=urgent", "priority_class: unknown 'urgent'; one of: low, normal, high"},
      {"after={ok: [a, b-12345], any: [c]}", ""},
      {"after={ok: ['']}", "after.ok: must be ids or names of jobs, none empty"},
      {"after={ok: [a], failed: [a]}", "after: 'a' is in both ok and failed"},
  };
  for (const auto& [change, problem] : cases) {
    const std::string problems = ProblemsOf("command: [x]\nenv: {A: 1}", change);
    if (*problem == '\0') {
      EXPECT_EQ(problems, "") << change;
    } else {
      EXPECT_THAT(problems, HasSubstr(problem)) << change;
    }
  }
}

TEST(ValidateSharedTest, TrainingHasNoTotalNumberOfRanks) {
  EXPECT_THAT(ProblemsOf("train: {}", "resources.ranks=4"),
              HasSubstr("resources.ranks: is only for command jobs; set resources.nodes and "
                        "ranks_per_node"));
}

TEST(ValidateSharedTest, PriorityClassIsNormalByDefault) {
  absl::StatusOr<v1::JobSpec> spec = Parse("command: [x]", "job.yaml");
  ASSERT_TRUE(spec.ok());
  ApplyDefaults(*spec);
  EXPECT_EQ(spec->priority_class(), "normal");
}

}  // namespace
}  // namespace muster::spec
