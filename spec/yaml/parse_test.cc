
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spec/spec.h"

namespace muster::spec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kFull[] = R"(
name: fashion-mnist
train:
  model: {name: small_cnn, batch_norm: false, dropout: 0.25}
  dataset: {name: fashion_mnist, path: /usr/share/datasets/fashion-mnist}
  epochs: 3.5
  max_steps: 500
  global_batch: 256
  image_size: 28
  optimizer: {name: sgd, learning_rate: 0.1, momentum: 0.9, weight_decay: 5e-4}
  schedule: {name: cosine, warmup_epochs: 0.5}
  precision: O0
  strategy: {name: ddp, bucket_bytes: 25MiB, hierarchical: off}
  objective: {name: cross_entropy, label_smoothing: 0.1}
  augment: {crop_padding: 2, flip: true}
  seed: 7
  drop_last: true
  checkpoint: {dir: /var/lib/muster/ckpt, every_steps: 200, keep: 3}
env: {A: 1, B: true, C: "x y"}
resources: {nodes: {min: 1, max: 4}, ranks_per_node: 2, device: auto, devices_per_rank: all}
backend: gloo
failure_timeout: 500ms
grace_period: 1.5h
on_lost_coordinator: {stop_after: 10m}
restart: {max: 0}
time_limit: 90s
priority: -3
)";

std::string ErrorOf(absl::string_view text, const std::vector<std::string>& overrides = {}) {
  const auto spec = Parse(text, "job.yaml", overrides);
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(spec.status().message());
}

TEST(ParseTest, ParsesEveryForm) {
  const auto spec = Parse(kFull, "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const v1::TrainSpec& train = spec->train();
  EXPECT_EQ(spec->name(), "fashion-mnist");
  EXPECT_TRUE(train.model().has_batch_norm());
  EXPECT_FALSE(train.model().batch_norm());
  EXPECT_DOUBLE_EQ(train.epochs(), 3.5);
  EXPECT_DOUBLE_EQ(train.optimizer().weight_decay(), 5e-4);
  EXPECT_EQ(train.strategy().bucket_bytes(), 25u << 20);
  EXPECT_EQ(train.strategy().hierarchical(), "off");
  EXPECT_TRUE(train.augment().flip());
  EXPECT_EQ(spec->env().at("A"), "1");
  EXPECT_EQ(spec->env().at("B"), "true");
  EXPECT_EQ(spec->env().at("C"), "x y");
  EXPECT_EQ(spec->resources().nodes().min(), 1u);
  EXPECT_EQ(spec->resources().nodes().max(), 4u);
  EXPECT_EQ(spec->resources().devices_per_rank(), "all");
  EXPECT_EQ(spec->failure_timeout().nanos(), 500'000'000);
  EXPECT_EQ(spec->grace_period().seconds(), 5400);
  EXPECT_EQ(spec->on_lost_coordinator().stop_after().seconds(), 600);
  EXPECT_TRUE(spec->has_restart());
  EXPECT_EQ(spec->restart().max(), 0u);
  EXPECT_EQ(spec->priority(), -3);
}

TEST(ParseTest, ParsesShortForms) {
  const auto spec = Parse(R"(
command: [python3, train.py, "--x=1", 5]
resources: {nodes: 2, devices_per_rank: 1}
on_lost_coordinator: continue
)",
                          "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->command(), ElementsAre("python3", "train.py", "--x=1", "5"));
  EXPECT_EQ(spec->resources().nodes().min(), 2u);
  EXPECT_EQ(spec->resources().nodes().max(), 2u);
  EXPECT_EQ(spec->resources().devices_per_rank(), "1");
  EXPECT_TRUE(spec->has_on_lost_coordinator());
  EXPECT_FALSE(spec->on_lost_coordinator().has_stop_after());
}

TEST(ParseTest, ParsesJson) {
  const auto spec = Parse(
      "{\"name\": \"j\",\n\t\"command\": [\"/bin/sh\", \"-c\", \"a \\\"b\\\" \\u00e9\\/\"],\n"
      "\t\"resources\": {\"nodes\": 2}, \"train\": null}",
      "job.json");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->command(2), "a \"b\" é/");
}

TEST(ParseTest, ParsesLayers) {
  const auto spec = Parse(R"(
train:
  model:
    layers:
      - conv2d: {out_channels: 8, kernel: 3, bias: false}
      - relu
      - max_pool2d: {kernel: 2}
      - residual:
          layers: [batch_norm2d, relu6: {}, {dropout: {probability: 0.5}}]
          shortcut: [{relu: }]
      - flatten:
      - linear
)",
                          "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto& layers = spec->train().model().layers();
  ASSERT_EQ(layers.size(), 6);
  EXPECT_EQ(layers[0].conv2d().out_channels(), 8u);
  EXPECT_TRUE(layers[0].conv2d().has_bias());
  EXPECT_FALSE(layers[0].conv2d().bias());
  EXPECT_TRUE(layers[1].has_relu());
  EXPECT_EQ(layers[2].max_pool2d().kernel(), 2u);
  ASSERT_EQ(layers[3].residual().layers_size(), 3);
  EXPECT_TRUE(layers[3].residual().layers(0).has_batch_norm2d());
  EXPECT_TRUE(layers[3].residual().layers(1).has_relu6());
  EXPECT_DOUBLE_EQ(layers[3].residual().layers(2).dropout().probability(), 0.5);
  EXPECT_TRUE(layers[3].residual().shortcut(0).has_relu());
  EXPECT_TRUE(layers[4].has_flatten());
  EXPECT_TRUE(layers[5].has_linear());
}

TEST(ParseTest, LayerErrorsNameTheLayer) {
  const std::pair<const char*, const char*> cases[] = {
      {"[relu, reluu]", "train.model.layers[1]: unknown layer 'reluu'; did you mean 'relu'?"},
      {"[{conv3d: {}}]", "train.model.layers[0]: unknown layer 'conv3d'; did you mean 'conv2d'?"},
      {"[relu, relu, relu, {conv2d: {kernel: big}}]",
       "train.model.layers[3].conv2d.kernel: expected an integer"},
      {"[{conv2d: {kernel_size: 3}}]",
       "unknown field 'kernel_size' in train.model.layers[0].conv2d; did you mean 'kernel'?"},
      {"[{residual: {layers: [relu, {linear: {out_features: -1}}]}}]",
       "train.model.layers[0].residual.layers[1].linear.out_features: expected an integer"},
      {"[{conv2d: , kernel: 3}]",
       "train.model.layers[0]: expected one layer, as in relu or {conv2d: {…}}, found 2 fields"},
      {"[[relu]]",
       "train.model.layers[0]: expected one layer, as in relu or {conv2d: {…}}, "
       "found a list"},
      {"[{relu: {slope: 1}}]", "unknown field 'slope' in train.model.layers[0].relu"},
      {"[{conv2d: 3}]", "train.model.layers[0].conv2d: expected fields, as in {out_channels: …}"},
      {"[{relu: 3}]", "train.model.layers[0].relu: expected no fields, found '3'"},
      {"relu", "train.model.layers: expected a list"},
  };
  for (const auto& [layers, expected] : cases) {
    EXPECT_THAT(ErrorOf(absl::StrCat("train: {model: {layers: ", layers, "}}")),
                HasSubstr(expected))
        << layers;
  }
  EXPECT_THAT(ErrorOf("name: a", {"train.model.layers.conv2d.kernel=3"}),
              HasSubstr("train.model.layers is a list; set it as a whole"));
}

TEST(ParseTest, ParsesListsOfNumbers) {
  const auto spec =
      Parse("train: {dataset: {mean: [0.5, 1]}, schedule: {milestones: [1, 2.5]}}", "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->train().dataset().mean(), ElementsAre(0.5f, 1.0f));
  EXPECT_THAT(spec->train().schedule().milestones(), ElementsAre(1, 2.5));
  EXPECT_THAT(ErrorOf("train: {dataset: {mean: [1e300]}}"),
              HasSubstr("train.dataset.mean[0]: expected a number"));
}

TEST(ParseTest, SuggestsFieldsForNamesOfOtherTools) {
  const std::pair<const char*, const char*> cases[] = {
      {"lr: 0.1", "in the spec; did you mean 'train.optimizer.learning_rate'?"},
      {"train: {lr: 0.1}", "in train; did you mean 'train.optimizer.learning_rate'?"},
      {"train: {optimizer: {lr: 0.1}}", "in train.optimizer; did you mean 'learning_rate'?"},
      {"train: {batch_size: 64}", "in train; did you mean 'global_batch'?"},
      {"train: {ddp: true}", "in train; did you mean 'strategy'?"},
      {"ranks: 2", "in the spec; did you mean 'resources.ranks'?"},
      {"gpus: 2", "in the spec; did you mean 'resources.ranks_per_node'?"},
      {"resources: {gpus: 2}", "in resources; did you mean 'ranks_per_node'?"},
      {"frobnicate: 1", "unknown field 'frobnicate' in the spec"},
  };
  for (const auto& [text, end] : cases) {
    EXPECT_THAT(std::string(Parse(text, "s").status().message()), testing::EndsWith(end)) << text;
  }
}

TEST(ParseTest, UnknownFieldErrorHasLineAndSuggestion) {
  EXPECT_EQ(ErrorOf("name: x\ntrain:\n  epoch: 3\n"),
            "job.yaml:3: unknown field 'epoch' in train; did you mean 'epochs'?");
  EXPECT_EQ(ErrorOf("epochs: 3\n"),
            "job.yaml:1: unknown field 'epochs' in the spec; did you mean 'train.epochs'?");
  EXPECT_EQ(ErrorOf("train: {optimizer: {lerning_rate: 1}}\n"),
            "job.yaml:1: unknown field 'lerning_rate' in train.optimizer; did you mean "
            "'learning_rate'?");
  EXPECT_EQ(ErrorOf("train: {checkpoint: {required: true}}\n"),
            "job.yaml:1: unknown field 'required' in train.checkpoint; did you mean 'final'?");
}

TEST(ParseTest, ReportsAllErrors) {
  EXPECT_EQ(ErrorOf("nme: x\ntrain:\n  epochs: many\n  drop_last: maybe\n"),
            "job.yaml:1: unknown field 'nme' in the spec; did you mean 'name'?\n"
            "job.yaml:3: train.epochs: expected a number (above 0), found 'many'\n"
            "job.yaml:4: train.drop_last: expected true or false, found 'maybe'");
}

TEST(ParseReportingAllTest, AddsRuleViolationsOfTheRest) {
  const auto error = [](const std::string& text, std::vector<std::string> overrides = {}) {
    return std::string(ParseReportingAll(text, "s", overrides).status().message());
  };
  EXPECT_EQ(
      error("command: [x]\nprio: 3\nbackend: glo\nresources: {nodes: two}\n",
            {"failure_timeout=90", "workdir=~"}),
      "s:2: unknown field 'prio' in the spec; did you mean 'priority'?\n"
      "s:4: resources.nodes: expected an integer (above 0), or {min: …, max: …}, found 'two'\n"
      "--set 'failure_timeout=90': failure_timeout: '90' needs a unit: '90s' or '90m'\n"
      "workdir: must be an absolute path on the node, not '~'\n"
      "backend: unknown 'glo'; did you mean 'gloo'? One of: auto, shm, gloo, hierarchical, "
      "nccl");
  // Problems that the unread fields may cause are left out, others that something is missing are
  // not.
  EXPECT_EQ(error("train:\n  epoch: 3\n  global_batch: many\n  model: {name: small_cnn}\n"
                  "  dataset: {name: mnist, path: /d}\n"),
            "s:2: unknown field 'epoch' in train; did you mean 'epochs'?\n"
            "s:3: train.global_batch: expected an integer (above 0), found 'many'\n"
            "train.optimizer.learning_rate: is missing; set the learning rate after warmup");
  EXPECT_EQ(error("lr: 0.1\ntrain:\n  epochs: 3\n  model: {name: small_cnn}\n"
                  "  dataset: {name: mnist, path: /d}\n"),
            "s:1: unknown field 'lr' in the spec; did you mean 'train.optimizer.learning_rate'?");
  EXPECT_EQ(error("comand: [x]\n"),
            "s:1: unknown field 'comand' in the spec; did you mean 'command'?");
  EXPECT_EQ(error("command: [x]\nfoo: {bar\n"), "s:3: not YAML: end of map flow not found");
  EXPECT_TRUE(ParseReportingAll("priority: 5000", "s").ok());
}

TEST(ParseReportingAllTest, AddsErrorsOfAmendment) {
  const auto parse = [](const char* text, std::vector<std::string> overrides) {
    return ParseReportingAll(text, "s", overrides, [](v1::JobSpec& spec) {
      spec.add_command("train");
      spec.set_priority(5000);
      return std::vector<absl::Status>{absl::OkStatus(), absl::NotFoundError("no a"),
                                       absl::NotFoundError("no b")};
    });
  };
  const absl::Status all = parse("{}", {"lr=1", "backend=[", "time_limit=90"}).status();
  EXPECT_EQ(all.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(all.message()),
            "--set 'lr=1': unknown field 'lr' in the spec; did you mean "
            "'train.optimizer.learning_rate'?\n"
            "--set 'backend=[': not YAML: end of sequence flow not found\n"
            "--set 'time_limit=90': time_limit: '90' needs a unit: '90s' or '90m'\n"
            "no a\nno b\n"
            "priority: must be from -1000 to 1000, not 5000");
  const auto single = [](absl::Status error) {
    return ParseReportingAll("command: [x]", "s", {}, [&](v1::JobSpec& spec) {
      spec.set_priority(5);
      return std::vector<absl::Status>{error};
    });
  };
  EXPECT_TRUE(absl::IsNotFound(single(absl::NotFoundError("no a")).status()));
  EXPECT_EQ(single(absl::OkStatus())->priority(), 5);
}

TEST(ParseTest, RejectsWrongTypes) {
  const std::pair<const char*, const char*> cases[] = {
      {"name: [a]", "job.yaml:1: name: expected a string, found a list"},
      {"name:", "job.yaml:1: name: expected a string, found nothing"},
      {"train: small_cnn", "train: expected fields, as in {model: …}, found 'small_cnn'"},
      {"command: echo hi", "command: expected a list, as in [a, b], found 'echo hi'"},
      {"command: [[a]]", "command[0]: expected a string, found a list"},
      {"command: [ls, ~]", "command[1]: expected a string, found nothing"},
      {"env: [a]", "env: expected a map, as in {NAME: value}, found a list"},
      {"env: {A: {}}", "env 'A': expected a string or {secret: NAME}, found a map"},
      {"env: {A: 1, A: 2}", "env: 'A' is given twice"},
      {"name: a\nname: b", "job.yaml:2: name is given twice"},
      {"failure_timeout: 30", "failure_timeout: '30' needs a unit: '30s' or '30m'"},
      {"resources: {nodes: 0}", "resources.nodes: expected a number above 0"},
      {"resources: {nodes: -1}", "expected an integer from 0 to 4294967295, or {min: …"},
      {"resources: {nodes: two}", "found 'two'"},
      {"resources: {nodes: {mim: 1}}", "did you mean 'min'?"},
      {"resources: {ranks_per_node: 0}", "resources.ranks_per_node: expected a number above 0"},
      {"resources: {ranks_per_node: 1.5}", "expected an integer"},
      {"priority: 3000000000", "expected an integer from -2147483648 to 2147483647"},
      {"train: {epochs: nan}", "train.epochs: expected a number"},
      {"train: {epochs: .inf}", "train.epochs: expected a number"},
      {"train: {seed: 0}", "train.seed: expected a number above 0"},
      {"train: {strategy: {bucket_bytes: 25Mb}}", "'25Mb' is not a size in bytes"},
      {"train: {model: {hidden: [1, x]}}", "train.model.hidden[1]: expected an integer"},
      {"on_lost_coordinator: stop", "expected 'continue' or {stop_after: 10m}, found 'stop'"},
      {"? [a]\n: b", "a field's name cannot be a list"},
      {"[a, b]", "the spec: expected fields, as in {name: …}, found a list"},
      {"", "the spec is empty"},
      {"# nothing", "the spec is empty"},
      {"name: a\n---\nname: b", "job.yaml:2: a second YAML document begins here"},
      {"name: a\n]\n", "job.yaml:2: "},
      {"name: 'a", "job.yaml:1: "},
      {"name: *nowhere", "job.yaml:1: "},
      {"a: b: c", "job.yaml:1: "},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(ErrorOf(text), HasSubstr(expected)) << text;
  }
}

TEST(ParseTest, EmptySectionsCountAsAbsent) {
  const auto spec = Parse("train:\nenv:\ncommand: [x]\nresources:\n", "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->env_size(), 0);
  EXPECT_FALSE(spec->has_train());
  EXPECT_FALSE(spec->has_resources());
}

TEST(ParseTest, AppliesOverrides) {
  const auto spec =
      Parse(kFull, "job.yaml",
            {"train.epochs=5", "train.optimizer={learning_rate: 0.2}", "env.X.Y=1=2", "env.A=2",
             "resources.nodes=3", "train.model.hidden=[8, 9]", "time_limit=", "name=other",
             "failure_timeout=20s", "train.strategy.bucket_bytes=1MiB", "restart.max=2"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_DOUBLE_EQ(spec->train().epochs(), 5);
  EXPECT_DOUBLE_EQ(spec->train().optimizer().learning_rate(), 0.2);
  EXPECT_DOUBLE_EQ(spec->train().optimizer().momentum(), 0);  // the whole field was replaced
  EXPECT_EQ(spec->env().at("X.Y"), "1=2");
  EXPECT_EQ(spec->env().at("A"), "2");
  EXPECT_EQ(spec->env_size(), 4);
  EXPECT_EQ(spec->resources().nodes().max(), 3u);
  EXPECT_THAT(spec->train().model().hidden(), ElementsAre(8u, 9u));
  EXPECT_FALSE(spec->has_time_limit());
  EXPECT_EQ(spec->name(), "other");
  EXPECT_EQ(spec->failure_timeout().seconds(), 20);
  EXPECT_EQ(spec->train().strategy().bucket_bytes(), 1u << 20);
  EXPECT_EQ(spec->restart().max(), 2u);
}

TEST(ParseTest, RejectsInvalidOverrides) {
  EXPECT_EQ(ErrorOf("name: a", {"train.epoch=5"}),
            "--set 'train.epoch=5': unknown field 'epoch' in train; did you mean 'epochs'?");
  EXPECT_THAT(ErrorOf("name: a", {"epochs"}), HasSubstr("expected field=value"));
  EXPECT_THAT(ErrorOf("name: a", {"=3"}), HasSubstr("expected field=value"));
  EXPECT_THAT(ErrorOf("name: a", {"name.x=3"}), HasSubstr("name has no fields"));
  EXPECT_THAT(ErrorOf("name: a", {"failure_timeout.seconds=3"}), HasSubstr("has no fields"));
  EXPECT_THAT(ErrorOf("name: a", {"train.epochs=[1"}), HasSubstr("--set 'train.epochs=[1'"));
  EXPECT_THAT(ErrorOf("name: a", {"train..epochs=1"}), HasSubstr("unknown field '' in train"));
}

TEST(ParseTest, ParsesFiles) {
  const auto spec =
      Parse("files: [train.py, conf/, {path: run.sh, executable: true}]", "s", {"name=x"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->files_size(), 3);
  EXPECT_EQ(spec->files(0).path(), "train.py");
  EXPECT_EQ(spec->files(1).path(), "conf/");
  EXPECT_EQ(spec->files(2).path(), "run.sh");
  EXPECT_TRUE(spec->files(2).executable());
  EXPECT_THAT(ErrorOf("files: [[a]]"), HasSubstr("files[0]: expected a path"));
  EXPECT_THAT(ErrorOf("files: train.py"), HasSubstr("files: expected a list"));
  EXPECT_THAT(ErrorOf("files: [{name: a}]"), HasSubstr("unknown field 'name' in files[0]"));
}

// A shell expands an unquoted ~ only.
TEST(ParseTest, OverrideWithTildeIsText) {
  EXPECT_EQ(Parse("workdir: /a", "s", {"workdir=~"})->workdir(), "~");
  EXPECT_EQ(Parse("workdir: /a", "s", {"workdir="})->workdir(), "");
  EXPECT_THAT(ErrorOf("name: a", {"train.epochs=null"}),
              HasSubstr("expected a number, found nothing"));
}

TEST(ParseTest, RejectsInvalidYaml) {
  EXPECT_EQ(ErrorOf("command: [x]\nenv:\n\tA: 1\n"),
            "job.yaml:3: not YAML: the line is indented with a tab; use spaces");
  EXPECT_EQ(ErrorOf("command: [x]\nresources:\n  nodes: 2\n \tdevice: cpu\n"),
            "job.yaml:4: not YAML: the line is indented with a tab; use spaces");
  EXPECT_EQ(ErrorOf("#!/bin/sh\necho hi: there: you\n"), "job.yaml:2: not YAML: illegal map value");
  EXPECT_EQ(ErrorOf(absl::string_view("name: a\0b", 9)), "job.yaml: contains a NUL character");
  EXPECT_EQ(ErrorOf("name: \xff"), "job.yaml: is not UTF-8");
  EXPECT_EQ(ErrorOf("command: " + std::string(100'000, '[')), "job.yaml:1: nested too deeply");
}

// ---- hostile input

TEST(ParseBoundsTest, RejectsTooLargeText) {
  const std::string text = "name: a\n#" + std::string(limits::kSpecBytes, 'x');
  EXPECT_EQ(Parse(text, "s").status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ParseBoundsTest, CountsEveryUseOfAnAlias) {
  std::string text = "name: &a " + std::string(100'000, 'x') + "\ncommand: [";
  for (int i = 0; i < 50'000; ++i) absl::StrAppend(&text, "*a, ");
  absl::StrAppend(&text, "end]\n");
  EXPECT_EQ(Parse(text, "s").status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ParseBoundsTest, DoesNotExpandNestedAliases) {
  // Expanding the aliases would give 9^10 elements.
  std::string text = "a: &a0 [x]\n";
  for (int i = 1; i < 10; ++i) {
    absl::StrAppend(&text, "b", i, ": &a", i, " [");
    for (int k = 0; k < 9; ++k) absl::StrAppend(&text, "*a", i - 1, ", ");
    absl::StrAppend(&text, "x]\n");
  }
  ErrorOf(text + "command: *a9\n");
  ErrorOf("train: &t {model: *t}\n");
}

TEST(ParseBoundsTest, LimitsNestedLayers) {
  const std::string too_deep = "layers are nested more than 8 deep";
  std::string layers = "[relu]";
  for (int depth = 1; depth < 8; ++depth) {
    layers = absl::StrCat("[{residual: {layers: ", layers, "}}]");
  }
  EXPECT_TRUE(Parse(absl::StrCat("train: {model: {layers: ", layers, "}}"), "s").ok());
  EXPECT_THAT(
      ErrorOf(absl::StrCat("train: {model: {layers: [{residual: {layers: ", layers, "}}]}}")),
      HasSubstr(too_deep));
  // An anchor that contains itself.
  EXPECT_THAT(ErrorOf("train: {model: {layers: &l [{residual: {layers: *l}}]}}"),
              HasSubstr(too_deep));
  // Seven times ten, each in the one before.
  std::string nested =
      "train:\n  model:\n    layers:\n    - residual:\n        layers: &a0 [relu]\n";
  for (int i = 1; i < 8; ++i) {
    absl::StrAppend(&nested, "    - residual:\n        layers: &a", i, " [");
    for (int k = 0; k < 10; ++k) {
      absl::StrAppend(&nested, "{residual: {layers: *a", i - 1, "}}, ");
    }
    absl::StrAppend(&nested, "relu]\n");
  }
  EXPECT_EQ(Parse(nested, "s").status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ParseBoundsTest, RejectsDeepNesting) {
  for (const char* open : {"[", "{a: ", "- ", "? ", "[{", "!!x ", "&a "}) {
    std::string text;
    while (text.size() < 100'000) text += open;
    EXPECT_FALSE(Parse(text, "s").ok()) << open;
  }
}

TEST(ParseBoundsTest, LimitsReportedErrors) {
  std::string text;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&text, "field", i, ": 1\n");
  const std::string error = ErrorOf(text);
  EXPECT_LT(error.size(), 4000u);
  EXPECT_TRUE(absl::EndsWith(error, "further errors omitted"));
}

TEST(ParseBoundsTest, HandlesEveryPrefixOfAValidFile) {
  const std::string text = kFull;
  int good = 0;
  for (size_t length = 0; length <= text.size(); ++length) {
    const auto spec = Parse(absl::string_view(text).substr(0, length), "s");
    if (spec.ok()) {
      ++good;
    } else {
      EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
  // At least the prefixes that end with a top-level field are valid specs.
  EXPECT_GT(good, 8);
}

TEST(ParseBoundsTest, ReturnsAStatusForDamagedFiles) {
  const std::string text = kFull;
  uint64_t state = 1;  // a small linear congruential generator: the same bytes everywhere
  const auto next = [&state] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state >> 33);
  };
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = text;
    for (uint32_t edits = 1 + next() % 8; edits > 0; --edits) {
      damaged[next() % damaged.size()] = static_cast<char>(next());
    }
    const auto spec = Parse(damaged, "s");
    if (!spec.ok()) {
      EXPECT_FALSE(spec.status().message().empty());
      continue;
    }
    // The result can be serialized: all strings are valid UTF-8.
    v1::JobSpec copy;
    EXPECT_TRUE(copy.ParseFromString(spec->SerializeAsString()));
  }
  for (int round = 0; round < 3000; ++round) {
    std::string noise(next() % 200, '\0');
    for (char& c : noise) c = static_cast<char>(next());
    const auto spec = Parse(noise, "s");
    EXPECT_FALSE(spec.ok());
  }
}

}  // namespace
}  // namespace muster::spec
