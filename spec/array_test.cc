#include "spec/array.h"

#include "common/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spec/spec.h"

namespace muster::spec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

MATCHER_P2(Sets, field, value, "") { return arg.field() == field && arg.value() == value; }

v1::JobSpec Parsed(const std::string& text) {
  const absl::StatusOr<v1::JobSpec> spec = Parse(text, "job.yaml");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.value_or(v1::JobSpec());
}

std::string ProblemOf(const std::string& text) {
  v1::JobSpec spec = Parsed(text);
  ApplyDefaults(spec);
  return std::string(Validate(spec).message());
}

constexpr char kTrain[] = R"(
train:
  model: {name: mlp}
  dataset: {name: fashion_mnist, path: /data}
  max_steps: 3
  optimizer: {name: sgd, learning_rate: 0.1}
)";

TEST(ExpandArrayTest, CountRepeatsTheSpec) {
  const auto tasks =
      ExpandArray(Parsed("name: a\ncommand: [x, '{array_index}']\narray: {count: 3}\n"));
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  ASSERT_EQ(tasks->size(), 3u);
  for (const ArrayTask& task : *tasks) {
    EXPECT_THAT(task.values, IsEmpty());
    EXPECT_FALSE(task.spec->has_array());
    EXPECT_EQ(task.spec->name(), "a");
    EXPECT_EQ(task.spec->backend(), "auto");
    EXPECT_EQ(task.spec, tasks->front().spec);
  }
}

TEST(ResolveTaskTest, GivesTheSpecOfATaskItsIndexAndVariables) {
  v1::Job task;
  task.set_array_id("sweep-x7k2q");
  task.set_array_index(2);
  task.set_array_count(3);
  v1::JobSpec spec = Parsed(
      "command: [x, 'a{array_index}-{array_index}', '${array_index}{array_index}', '{rank}', "
      "'echo {array_index}']\n");
  EXPECT_THAT(std::string(CheckPlaceholders(spec).message()),
              HasSubstr("command: 'a{array_index}-{array_index}' has a value only in tasks of"));
  ResolveTask(task, spec);
  EXPECT_THAT(spec.command(),
              ElementsAre("x", "a2-2", "${array_index}2", "{rank}", "echo {array_index}"));
  EXPECT_EQ(spec.env().at("MUSTER_ARRAY_ID"), "sweep-x7k2q");
  EXPECT_EQ(spec.env().at("MUSTER_ARRAY_INDEX"), "2");
  EXPECT_EQ(spec.env().at("MUSTER_ARRAY_COUNT"), "3");
  ApplyDefaults(spec);
  EXPECT_EQ(Validate(spec), absl::OkStatus());
  EXPECT_EQ(CheckPlaceholders(spec), absl::OkStatus());
  spec.mutable_array()->set_count(3);
  EXPECT_THAT(std::string(Validate(spec).message()), HasSubstr("env 'MUSTER_ARRAY_"));
}

TEST(ExpandArrayTest, MatrixCombinesAllValuesAndVariesTheLastFieldFastest) {
  const auto tasks = ExpandArray(Parsed(
      std::string(kTrain) +
      "array: {matrix: {train.optimizer.learning_rate: [0.1, 0.01], train.seed: [1, 2, 3]}}\n"));
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  ASSERT_EQ(tasks->size(), 6u);
  EXPECT_THAT((*tasks)[1].values,
              ElementsAre(Sets("train.optimizer.learning_rate", "0.1"), Sets("train.seed", "2")));
  EXPECT_THAT((*tasks)[3].values,
              ElementsAre(Sets("train.optimizer.learning_rate", "0.01"), Sets("train.seed", "1")));
  EXPECT_EQ((*tasks)[3].spec->train().optimizer().learning_rate(), 0.01);
  EXPECT_EQ((*tasks)[5].spec->train().seed(), 3u);
}

TEST(ExpandArrayTest, DefaultsFollowTheValuesButTheNameIsShared) {
  const auto tasks = ExpandArray(
      Parsed(std::string(kTrain) +
             "array: {matrix: {train.dataset.name: [fashion_mnist, cifar10], env.LR: ['a: b']}}"));
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  EXPECT_EQ((*tasks)[0].spec->train().image_size(), 28u);
  EXPECT_EQ((*tasks)[1].spec->train().image_size(), 32u);
  EXPECT_EQ((*tasks)[1].spec->name(), "mlp-fashion-mnist");
  EXPECT_EQ((*tasks)[1].spec->env().at("LR"), "a: b");
}

TEST(ExpandArrayTest, MatrixMayProvideARequiredField) {
  const auto tasks = ExpandArray(
      Parsed("train: {model: {name: mlp}, dataset: {name: mnist, path: /d}, optimizer: {name: sgd, "
             "learning_rate: 1}}\narray: {matrix: {train.max_steps: [1, 2]}}\n"));
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  EXPECT_EQ((*tasks)[1].spec->train().max_steps(), 2u);
}

TEST(ExpandArrayTest, TasksSetTheirOwnFields) {
  const auto tasks =
      ExpandArray(Parsed(std::string(kTrain) +
                         "array: {tasks: [{train.precision: O2, resources.ranks_per_node: 2}, {}, "
                         "{train.dataset.name: cifar10, env.LR: 'a: b'}], concurrency: 2}\n"));
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  ASSERT_EQ(tasks->size(), 3u);
  EXPECT_THAT((*tasks)[0].values,
              ElementsAre(Sets("train.precision", "O2"), Sets("resources.ranks_per_node", "2")));
  EXPECT_EQ((*tasks)[0].spec->train().precision(), "O2");
  EXPECT_EQ((*tasks)[0].spec->resources().ranks_per_node(), 2u);
  EXPECT_FALSE((*tasks)[0].spec->has_array());
  EXPECT_THAT((*tasks)[1].values, IsEmpty());
  EXPECT_EQ((*tasks)[1].spec->train().precision(), "O0");
  EXPECT_EQ((*tasks)[2].spec->train().image_size(), 32u);
  EXPECT_EQ((*tasks)[2].spec->env().at("LR"), "a: b");
  EXPECT_EQ((*tasks)[2].spec->name(), "mlp-fashion-mnist");
}

TEST(ExpandArrayTest, EachTaskMayProvideARequiredField) {
  const char text[] =
      "train: {model: {name: mlp}, dataset: {name: mnist, path: /d}, optimizer: {name: sgd, "
      "learning_rate: 1}}\narray: {tasks: [{train.max_steps: 1}, {train.epochs: 2}]}\n";
  const auto tasks = ExpandArray(Parsed(text));
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  EXPECT_EQ((*tasks)[0].spec->train().max_steps(), 1u);
  EXPECT_EQ((*tasks)[1].spec->train().epochs(), 2);
  // A task without it is not valid, although the first one is.
  v1::JobSpec spec = Parsed(text);
  spec.mutable_array()->mutable_tasks(1)->clear_values();
  EXPECT_THAT(std::string(ExpandArray(spec).status().message()),
              HasSubstr("array.tasks[1]: the task with no values is not valid:\n"));
}

TEST(ExpandArrayTest, NamesTheTaskThatIsNotValid) {
  const auto tasks =
      ExpandArray(Parsed(std::string(kTrain) + "array: {matrix: {train.global_batch: [1, 4], "
                                               "resources.nodes: [1, 2]}}\n"));
  EXPECT_THAT(std::string(tasks.status().message()),
              HasSubstr("array.matrix: the task with train.global_batch=1, resources.nodes=2 is "
                        "not valid:\ntrain.global_batch: 1 is below the number of ranks, 2"));
}

TEST(ArrayRulesTest, ReportProblems) {
  const struct {
    const char* array;
    const char* problem;
  } cases[] = {
      {"{}", "array: is empty; set count, matrix or tasks"},
      {"{count: 2, matrix: {env.A: [1]}}",
       "array: has more than one of count, matrix and tasks; keep one of them"},
      {"{count: 2, tasks: [{}, {}]}",
       "array: has more than one of count, matrix and tasks; keep one of them"},
      {"{count: 10001}", "array.count: must be from 1 to 10000, not 10001"},
      {"{count: 2, concurrency: 10001}", "array.concurrency: must be from 1 to 10000, not 10001"},
      {"{matrix: {name: [a, b]}}",
       "array.matrix 'name': is the same for all tasks of an array; remove it from the array"},
      {"{matrix: {after.ok: [[a]]}}", "array.matrix 'after.ok': is the same for all tasks"},
      {"{matrix: {files: [[a], [b]]}}", "array.matrix 'files': is the same for all tasks"},
      {"{matrix: {array.count: [1]}}", "array.matrix 'array.count': is the same for all tasks"},
      {"{matrix: {resources.node: [1]}}",
       "array.matrix 'resources.node': unknown field 'node' in resources; did you mean 'nodes'?"},
      {"{matrix: {priority: [1, high]}}",
       "array.matrix 'priority': priority: expected an integer, found 'high'"},
      {"{matrix: {priority: []}}", "array.matrix 'priority': has no values"},
      {"{matrix: {priority: [2000]}}", "priority: must be from -1000 to 1000, not 2000"},
      {"{tasks: [{}, {files: [a]}]}",
       "array.tasks[1] 'files': is the same for all tasks of an array; remove it from the array"},
      {"{tasks: [{resources.node: 1}, {resources.nod: 1}]}",
       "array.tasks[0] 'resources.node': unknown field 'node' in resources; did you mean 'nodes'?"},
      {"{tasks: [{priority: 1}, {priority: 2000}]}",
       "array.tasks[1]: the task with priority=2000 is not valid:\n"
       "priority: must be from -1000 to 1000, not 2000"},
  };
  for (const auto& [array, problem] : cases) {
    EXPECT_THAT(ProblemOf(std::string("command: [x]\narray: ") + array), HasSubstr(problem))
        << array;
  }
  EXPECT_EQ(ProblemOf("command: [x]\narray: {count: 10000, concurrency: 4}"), "");
}

TEST(ArrayRulesTest, LimitTheNumberOfTasksAndTheirSize) {
  v1::JobSpec spec = Parsed("command: [x]\narray: {matrix: {env.A: [1], env.B: [1]}}");
  for (int i = 0; i < 101; ++i) {
    spec.mutable_array()->mutable_matrix(0)->add_values("1");
    spec.mutable_array()->mutable_matrix(1)->add_values("1");
  }
  ApplyDefaults(spec);
  EXPECT_THAT(std::string(Validate(spec).message()),
              HasSubstr("array.matrix: has more than 10000 combinations of values"));
  spec = Parsed("command: [x]\narray: {count: 10000}");
  (*spec.mutable_env())["A"] = std::string(16000, 'a');
  ApplyDefaults(spec);
  EXPECT_EQ(Validate(spec), absl::OkStatus()) << "all tasks share one spec";
  spec.mutable_array()->clear_count();
  v1::ArrayAxis& axis = *spec.mutable_array()->add_matrix();
  axis.set_field("env.B");
  for (int i = 0; i < 10000; ++i) axis.add_values("1");
  EXPECT_THAT(std::string(Validate(spec).message()), HasSubstr("the limit is 67108864"));
}

TEST(ArrayYamlTest, IsPrintedAsItIsRead) {
  const std::string text =
      "array: {matrix: {train.optimizer: [\"{name: sgd}\", {name: adamw}], env.A: [1, \"a: b\", "
      "\"\", \"null\"], train.milestones: [[1, 2], [3]]}, concurrency: 2}";
  const v1::JobSpec spec = Parsed("command: [x]\n" + text);
  const v1::ArraySpec& array = spec.array();
  ASSERT_EQ(array.matrix_size(), 3);
  EXPECT_THAT(array.matrix(0).values(), ElementsAre("\"{name: sgd}\"", "{name: adamw}"));
  EXPECT_THAT(array.matrix(1).values(), ElementsAre("1", "\"a: b\"", "\"\"", "\"null\""));
  EXPECT_THAT(array.matrix(2).values(), ElementsAre("[1, 2]", "[3]"));
  const std::string printed = ToYaml(spec);
  EXPECT_THAT(printed, HasSubstr("train.milestones: [[1, 2], [3]]"));
  EXPECT_EQ(Parsed(printed).DebugString(), spec.DebugString()) << printed;
}

TEST(ArrayRulesTest, LimitTheSizeOfListedTasks) {
  v1::JobSpec spec = Parsed("command: [x]\narray: {tasks: [{}]}");
  (*spec.mutable_env())["A"] = std::string(80000, 'a');
  ApplyDefaults(spec);
  v1::ArraySpec& array = *spec.mutable_array();
  for (int i = 1; i < 800; ++i) {
    v1::ArrayValue& value = *array.add_tasks()->add_values();
    value.set_field("env.B");
    value.set_value("1");
  }
  // The list itself is not part of the tasks.
  EXPECT_EQ(Validate(spec), absl::OkStatus());
  for (int i = 800; i < 10000; ++i) array.add_tasks();
  EXPECT_THAT(std::string(Validate(spec).message()), HasSubstr("the limit is 67108864"));
  array.add_tasks();
  EXPECT_THAT(std::string(Validate(spec).message()),
              HasSubstr("array.tasks: has 10001 entries; at most 10000"));
}

TEST(ArrayRulesTest, ListAFieldOfATaskOnce) {
  v1::JobSpec spec = Parsed("command: [x]\narray: {tasks: [{env.A: 1}]}");
  v1::ArrayTaskValues& task = *spec.mutable_array()->mutable_tasks(0);
  *task.add_values() = task.values(0);
  ApplyDefaults(spec);
  EXPECT_THAT(std::string(Validate(spec).message()),
              HasSubstr("array.tasks[0] 'env.A': is given twice"));
}

TEST(ArrayYamlTest, TasksArePrintedAsTheyAreRead) {
  const std::string text =
      "array: {tasks: [{train.optimizer: \"{name: sgd}\", env.A: \"a: b\"}, {}, "
      "{train.optimizer: {name: adamw}, train.milestones: [1, 2], env.A: \"\"}]}";
  const v1::JobSpec spec = Parsed("command: [x]\n" + text);
  ASSERT_EQ(spec.array().tasks_size(), 3);
  EXPECT_EQ(spec.array().tasks(0).values(1).value(), "\"a: b\"");
  EXPECT_EQ(spec.array().tasks(2).values(0).value(), "{name: adamw}");
  const std::string printed = ToYaml(spec);
  EXPECT_THAT(printed, HasSubstr("    - {}\n"));
  EXPECT_EQ(Parsed(printed).DebugString(), spec.DebugString()) << printed;
}

TEST(ArrayYamlTest, OverridesReplaceTheTasks) {
  const auto spec = Parse("command: [x]\narray: {tasks: [{env.A: 1}, {env.A: 2}]}", "job.yaml",
                          {"array.tasks=[{env.B: 3}]"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(ToYaml(*spec), HasSubstr("tasks: [{env.B: 3}]"));
}

TEST(ArrayYamlTest, OverridesReplaceAnAxis) {
  const auto spec = Parse("command: [x]\narray: {matrix: {env.A: [1], env.B: [2]}}", "job.yaml",
                          {"array.matrix.env.A=[3, 4]", "array.matrix.env.C=[5]"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(ToYaml(*spec), HasSubstr("{env.B: [2], env.A: [3, 4], env.C: [5]}"));
}

TEST(ArrayYamlTest, ReportsWhatIsNotAnArray) {
  const struct {
    const char* array;
    const char* problem;
  } cases[] = {
      {"{matrix: [a]}",
       "array.matrix: expected a map of lists, as in {train.epochs: [1, 2]}, found a list"},
      {"{matrix: {env.A: 1}}",
       "array.matrix 'env.A': expected a list of values, as in [a, b], found '1'"},
      {"{matrix: {env.A: [~]}}", "array.matrix 'env.A'[0]: expected a value, found nothing"},
      {"{matrix: {env.A: [1], env.A: [2]}}", "array.matrix: 'env.A' is given twice"},
      {"{tasks: {env.A: 1}}", "array.tasks: expected a list, as in [a, b], found a map"},
      {"{tasks: [{env.A: 1}, 2]}",
       "array.tasks[1]: expected a map, as in {train.epochs: 1}, found '2'"},
      {"{tasks: [{env.A: ~}]}", "array.tasks[0] 'env.A': expected a value, found nothing"},
      {"{tasks: [{env.A: 1, env.A: 2}]}", "array.tasks[0]: 'env.A' is given twice"},
  };
  for (const auto& [array, problem] : cases) {
    const auto spec = Parse(std::string("command: [x]\narray: ") + array, "job.yaml");
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr(problem)) << array;
  }
}

}  // namespace
}  // namespace muster::spec
