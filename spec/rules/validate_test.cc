#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/limits.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "spec/spec.h"

namespace muster::spec {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTrain[] = R"(
train:
  model: {name: small_cnn}
  dataset: {name: fashion_mnist, path: /data}
  epochs: 3
  optimizer: {learning_rate: 0.1}
)";

v1::JobSpec Defaulted(absl::string_view text, const std::vector<std::string>& overrides = {}) {
  auto spec = Parse(text, "job.yaml", overrides);
  EXPECT_TRUE(spec.ok()) << spec.status();
  if (!spec.ok()) return {};
  ApplyDefaults(*spec);
  return *std::move(spec);
}

TEST(DefaultsTest, AppliesTrainDefaults) {
  const v1::JobSpec spec = Defaulted(kTrain);
  EXPECT_TRUE(Validate(spec).ok()) << Validate(spec);
  EXPECT_EQ(spec.name(), "small-cnn-fashion-mnist");
  EXPECT_EQ(spec.resources().nodes().min(), 1u);
  EXPECT_EQ(spec.resources().nodes().max(), 1u);
  EXPECT_EQ(spec.resources().ranks_per_node(), 1u);
  EXPECT_EQ(spec.resources().threads_per_rank(), 1u);
  EXPECT_EQ(spec.resources().device(), "auto");
  EXPECT_EQ(spec.resources().devices_per_rank(), "1");
  EXPECT_EQ(spec.backend(), "auto");
  EXPECT_EQ(spec.output(), "joined");
  EXPECT_EQ(spec.failure_timeout().seconds(), 30);
  EXPECT_EQ(spec.grace_period().seconds(), 30);
  EXPECT_EQ(spec.restart().max(), 3u);
  EXPECT_FALSE(spec.has_time_limit());
  const v1::TrainSpec& train = spec.train();
  EXPECT_TRUE(train.model().batch_norm());
  EXPECT_EQ(train.global_batch(), 128u);
  EXPECT_EQ(train.image_size(), 28u);
  EXPECT_EQ(train.optimizer().name(), "sgd");
  EXPECT_EQ(train.schedule().name(), "constant");
  EXPECT_EQ(train.precision(), "O0");
  EXPECT_EQ(train.strategy().bucket_bytes(), 25u << 20);
  EXPECT_EQ(train.strategy().first_bucket_bytes(), 1u << 20);
  EXPECT_EQ(train.strategy().hierarchical(), "auto");
  EXPECT_EQ(train.objective().name(), "cross_entropy");
  EXPECT_EQ(train.seed(), 1u);
  EXPECT_EQ(train.loader().threads(), 0u);  // auto
  EXPECT_EQ(train.loader().prefetch(), 4u);
  EXPECT_EQ(train.checkpoint().dir(), "");
  EXPECT_EQ(train.checkpoint().every_steps(), 0u);
  EXPECT_EQ(train.checkpoint().every().seconds(), 600);
  EXPECT_EQ(train.checkpoint().keep(), 3u);
  EXPECT_EQ(train.checkpoint().keep_best(), "");
  EXPECT_EQ(train.checkpoint().final(), "required");
}

// Both intervals apply, and none without checkpoints.
TEST(DefaultsTest, WritesCheckpointsByTimeInAdditionToSteps) {
  const auto checkpoint = [](const char* text) {
    return Defaulted(kTrain, {absl::StrCat("train.checkpoint=", text)}).train().checkpoint();
  };
  EXPECT_EQ(checkpoint("{every_steps: 5}").every().seconds(), 600);
  EXPECT_EQ(checkpoint("{every: 90s}").every().seconds(), 90);
  EXPECT_EQ(checkpoint("{every: never}").every().seconds(), 0);
  EXPECT_EQ(checkpoint("{every: 0s}").every().seconds(), 0);
  EXPECT_FALSE(checkpoint("{keep: 0}").has_every());
}

TEST(DefaultsTest, StopsRanksWithSigterm) {
  EXPECT_EQ(Defaulted(kTrain).stop_signal(), "SIGTERM");
  EXPECT_EQ(Defaulted("command: [x]\nstop_signal: SIGUSR1").stop_signal(), "SIGUSR1");
}

TEST(DefaultsTest, RestartsOnlyTrainJobs) {
  for (const char* unset : {"restart={}", "restart.max=", "restart="}) {
    EXPECT_EQ(Defaulted(kTrain, {unset}).restart().max(), 3u) << unset;
    EXPECT_EQ(Defaulted("command: [train]", {unset}).restart().max(), 0u) << unset;
  }
  EXPECT_EQ(Defaulted("command: [train]", {"restart.max=2"}).restart().max(), 2u);
}

TEST(DefaultsTest, RestartsCommandsThatRestartAfterAHang) {
  const char* const kRestarts = "{command: [x], on_hang: restart}";
  for (const char* unset : {"restart={}", "restart.max=", "restart="}) {
    EXPECT_EQ(Defaulted(kRestarts, {unset}).restart().max(), 3u) << unset;
  }
  EXPECT_EQ(Defaulted(kRestarts, {"restart.max=1"}).restart().max(), 1u);
  EXPECT_EQ(Defaulted("{command: [x], on_hang: report}").restart().max(), 0u);
}

TEST(DefaultsTest, KeepsGivenValues) {
  const v1::JobSpec spec =
      Defaulted(kTrain, {"restart.max=0", "train.model.batch_norm=false", "train.seed=9",
                         "train.checkpoint.dir=/c", "resources.nodes={max: 3}"});
  EXPECT_EQ(spec.restart().max(), 0u);
  EXPECT_FALSE(spec.train().model().batch_norm());
  EXPECT_EQ(spec.train().seed(), 9u);
  EXPECT_EQ(spec.train().checkpoint().keep(), 3u);
  EXPECT_EQ(Defaulted(kTrain, {"train.checkpoint={keep: 0}"}).train().checkpoint().keep(), 0u);
  EXPECT_EQ(spec.resources().nodes().min(), 1u);
  EXPECT_EQ(spec.resources().nodes().max(), 3u);
}

TEST(DefaultsTest, DerivesNameFromCommand) {
  EXPECT_EQ(Defaulted("command: [/usr/bin/Python3.11]").name(), "python3-11");
  EXPECT_EQ(Defaulted("command: [__]").name(), "job");
  const std::pair<const char*, const char*> cases[] = {
      {"[python3, train.py, --lr, '0.1']", "train"},
      {"[/usr/bin/python3.11, -u, -W, ignore, src/Train_V2.py]", "train-v2"},
      {"[python, -m, project.pretrain, x.py]", "pretrain"},
      {"[python3, -c, 'import x']", "python3"},
      {"[python3]", "python3"},
      {"[torchrun, --nproc-per-node, '2', train.py]", "train"},
      {"[python3, -m, torch.distributed.run, --nnodes, '2', train.py]", "train"},
      {"[torchrun, --nnodes=2, -m, pkg.mod]", "mod"},
      {"[env, A=1, accelerate, launch, train.py]", "train"},
      {"[bash, -ex, scripts/run.sh]", "run"},
      {"[/bin/sh, -ec, 'echo hi']", "sh"},
      {"[./train.sh]", "train"},
      {"[/opt/app/prog-1.2]", "prog-1-2"},
      {"[sleep, '600']", "sleep"},
  };
  for (const auto& [command, name] : cases) {
    EXPECT_EQ(Defaulted(std::string("command: ") + command).name(), name) << command;
  }
  EXPECT_EQ(Defaulted(absl::StrCat("command: [", std::string(200, 'a'), "]")).name(),
            std::string(63, 'a'));
}

TEST(DefaultsTest, AppliesMlpDefaults) {
  const v1::JobSpec spec = Defaulted(kTrain, {"train.model={name: mlp}"});
  EXPECT_TRUE(Validate(spec).ok()) << Validate(spec);
  EXPECT_THAT(spec.train().model().hidden(), testing::ElementsAre(256u, 128u));
  EXPECT_FALSE(spec.train().model().has_batch_norm());
}

TEST(DefaultsTest, IsIdempotent) {
  v1::JobSpec spec = Defaulted(kTrain);
  const v1::JobSpec once = spec;
  ApplyDefaults(spec);
  EXPECT_TRUE(MessageDifferencer::Equals(once, spec));
}

TEST(ValidateTest, RefusesNamesOfVariablesThatYamlCannotContain) {
  v1::JobSpec spec = Defaulted("command: [a]");
  (*spec.mutable_env())[std::string(256, 'x')] = "1";
  EXPECT_TRUE(Validate(spec).ok()) << Validate(spec);
  (*spec.mutable_env())[std::string(257, 'x')] = "1";
  EXPECT_EQ(Validate(spec).message(), "env: contains a name of 257 bytes; at most 256 are allowed");
}

TEST(ValidateTest, ReportsEachProblemWithItsPath) {
  const std::pair<const char*, const char*> cases[] = {
      {"name=Bad_Name", "name: must be 1 to 63 lower-case letters"},
      {"name=-a", "name: must be"},
      {"command=[x]", "command: a job has either train or command; remove one of them"},
      {"env.RANK=1", "env 'RANK': is set by Muster"},
      {"env.MUSTER_X=1", "env 'MUSTER_X': is set by Muster"},
      {"env.A=1", ""},
      {"env.MUSTER_HOSTED_STORE=1", "env 'MUSTER_HOSTED_STORE': is only for command jobs"},
      {"workdir=here", "workdir: must be an absolute path on the node, not 'here'"},
      {"files=[a]", "files: are only for command jobs; remove them"},
      {"launcher=mpi", "launcher: is only for command jobs; remove it"},
      {"checkpoint_dir=/c", "checkpoint_dir: is only for command jobs; set train.checkpoint.dir"},
      {"resources.nodes={}", "resources.nodes: must be from 1 to 16384, not 0"},
      {"resources.nodes={min: 3, max: 2}", "resources.nodes: max 2 is below min 3"},
      {"resources.device=tpu", "resources.device: "},
      {"resources={device: gpu, devices_per_rank: 2}",
       "must be 1, not 2: a rank computes on one GPU"},
      {"resources={device: gpu, devices_per_rank: all}",
       "must be 1, not all: a rank computes on one GPU"},
      {"resources.devices_per_rank=none", "resources.devices_per_rank: must be 'all' or from 1"},
      {"resources.devices_per_rank=0", "resources.devices_per_rank: must be 'all' or from 1"},
      {"resources={ranks_per_node: 2, devices_per_rank: all}",
       "resources.devices_per_rank: is all, which leaves no device for a second rank"},
      {"resources.threads_per_rank=9999", "resources.threads_per_rank: must be from 1"},
      {"backend=glo", "backend: unknown 'glo'; did you mean 'gloo'? One of: auto, shm"},
      {"backend=mpi",
       "backend: mpi is not a backend of jobs; for an MPI program, set command and launcher: mpi"},
      {"failure_timeout=1ms", "failure_timeout: must be from 1s to 87600h, not 1ms"},
      {"time_limit=0s", "time_limit: must be from 1s to 87600h, not 0s"},
      {"on_lost_coordinator={stop_after: 0s}", "on_lost_coordinator.stop_after: must be"},
      {"restart.max=5000", "restart.max: must be from 0 to 1000, not 5000"},
      {"priority=1001", "priority: must be from -1000 to 1000, not 1001"},
      {"train.model.name=small_cn", "unknown 'small_cn'; did you mean 'small_cnn'?"},
      {"train.model.name=", "train.model.name: is missing; one of: small_cnn, mlp"},
      {"train.model.dropout=1", "train.model.dropout: must be from 0 to below 1"},
      {"train.model.hidden=[3]",
       "train.model.hidden: is given, but train.model.name is small_cnn; it applies only with mlp"},
      {"train.model={name: mlp, batch_norm: true}",
       "train.model.batch_norm: is given, but train.model.name is mlp"},
      {"train.model={name: mlp, hidden: [0]}",
       "train.model.hidden[0]: must be from 1 to 65536, not 0"},
      {"train.dataset.path=", "train.dataset.path: is missing"},
      {"train.dataset.path=data", "train.dataset.path: must be an absolute path"},
      {"train.epochs=", "train: epochs or max_steps is missing"},
      {"train.epochs=-1", "train.epochs: must be above 0 and at most 1000000, not -1"},
      {"train.global_batch=1", ""},
      {"train.optimizer.learning_rate=", "train.optimizer.learning_rate: is missing"},
      {"train.optimizer.learning_rate=-1", "train.optimizer.learning_rate: must be above 0"},
      {"train.optimizer.momentum=1", "train.optimizer.momentum: must be from 0 to below 1"},
      {"train.optimizer.weight_decay=-1", "train.optimizer.weight_decay: must be 0 or more"},
      {"train.dataset.name=cifar", "train.dataset.name: unknown 'cifar'; did you mean 'cifar10'?"},
      {"train.optimizer.name=adam", "train.optimizer.name: unknown 'adam'"},
      {"train.schedule.name=cosin", "did you mean 'cosine'?"},
      {"train.schedule.warmup_epochs=4",
       "train.schedule.warmup_epochs: must be at most train.epochs, 3, not 4"},
      {"train.precision=O2", ""},
      {"train.precision=fp16", "train.precision: unknown 'fp16'; did you mean 'O1'? One of: O0"},
      {"train.precision=double", "train.precision: unknown 'double'; one of: O0"},
      {"train.strategy.bucket_bytes=5GiB",
       "train.strategy.bucket_bytes: must be from 1 to 4GiB, not 5GiB"},
      {"train.objective.label_smoothing=1", "train.objective.label_smoothing: must be"},
      {"train.augment.crop_padding=29", "train.augment.crop_padding: must be at most"},
      {"train.init_from=model.safetensors", "train.init_from: must be an absolute path"},
      {"train.init_from=/model.pt", "train.init_from: must be a .safetensors file"},
      {"train.init_from=/step-1/model.pt", "train.init_from: must be a .safetensors file"},
      {"train.init_from=/model.safetensors.index.json", ""},
      {"train.init_from=/checkpoints/step-00000010.g2/", ""},
      {"train.checkpoint={keep: 0, every_steps: 5}",
       "train.checkpoint.every_steps: is given, but keep is 0, which writes no checkpoints; remove "
       "one of them"},
      {"train.checkpoint={keep: 0, every: 5m}", "train.checkpoint.every: is given, but keep is 0"},
      {"train.checkpoint={keep: 0, every: never, resume_from: /c}", ""},
      {"train.checkpoint={keep: 0, dir: /c}", "train.checkpoint.dir: is given, but keep is 0"},
      {"train.checkpoint={keep: 0, final: required}",
       "train.checkpoint.final: is given, but keep is 0"},
      {"train.checkpoint={final: optional}", ""},
      {"train.checkpoint={final: never}",
       "train.checkpoint.final: unknown 'never'; one of: required, optional"},
      {"train.checkpoint={keep: 0, keep_best: test_loss}",
       "train.checkpoint.keep_best: is given, but keep is 0"},
      {"train.checkpoint={keep_best: test_loss}",
       "train.checkpoint.keep_best: needs evaluations during the training to choose from; set "
       "train.evaluate_every_epochs"},
      {"train.checkpoint={every: 10ms}",
       "train.checkpoint.every: must be from 1s to 87600h, or never, not 10ms"},
      {"stop_signal=SIGUSR1", ""},
      {"stop_signal=USR1", "stop_signal: unknown 'USR1'; did you mean 'SIGUSR1'? One of: SIGTERM"},
      {"stop_signal=SIGKILL", "stop_signal: unknown 'SIGKILL'"},
      {"train.checkpoint.dir=ckpt", "train.checkpoint.dir: must be an absolute path"},
      {"train.checkpoint={dir: /c, keep: 5000}", "train.checkpoint.keep: must be from 0"},
      {"train.loader.threads=5000", "train.loader.threads: must be from 1"},
  };
  for (const auto& [override_text, expected] : cases) {
    if (expected[0] == '\0') {
      EXPECT_TRUE(Validate(Defaulted(kTrain, {override_text})).ok()) << override_text;
      continue;
    }
    const absl::Status status = Validate(Defaulted(kTrain, {override_text}));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << override_text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected)) << override_text;
    EXPECT_FALSE(absl::StrContains(status.message(), "\n")) << status;  // only that problem
  }
}

TEST(ValidateTest, RestartAfterAHangNeedsRestarts) {
  for (const char* spec : {kTrain, "{command: [x]}"}) {
    EXPECT_EQ(Validate(Defaulted(spec, {"on_hang=restart", "restart.max=0"})).message(),
              "restart.max: is 0, but on_hang is restart, which needs at least 1; set a larger "
              "maximum, or on_hang to report");
    EXPECT_TRUE(Validate(Defaulted(spec, {"on_hang=restart"})).ok());
    EXPECT_TRUE(Validate(Defaulted(spec, {"on_hang=report", "restart.max=0"})).ok());
  }
}

TEST(ValidateTest, KeepsBestCheckpointOfEvaluations) {
  const auto problems = [](const char* metric) {
    return std::string(
        Validate(Defaulted(kTrain, {"train.evaluate_every_epochs=1",
                                    absl::StrCat("train.checkpoint.keep_best=", metric)}))
            .message());
  };
  EXPECT_EQ(problems("test_accuracy"), "");
  EXPECT_EQ(problems("test_loss"), "");
  EXPECT_THAT(problems("val_loss"), HasSubstr("unknown 'val_loss'; did you mean 'test_loss'?"));
}

TEST(ValidateTest, RejectsGlobalBatchBelowRanks) {
  const absl::Status status = Validate(Defaulted(
      kTrain, {"train.global_batch=7", "resources={nodes: {min: 1, max: 4}, ranks_per_node: 2}"}));
  EXPECT_EQ(status.message(), "train.global_batch: 7 is below the number of ranks, 8");
}

TEST(ValidateTest, LimitsNumberOfRanks) {
  const std::pair<const char*, const char*> cases[] = {
      {"resources.nodes=16385", "resources.nodes: must be from 1 to 16384, not 16385"},
      {"resources.ranks_per_node=1025",
       "resources.ranks_per_node: must be from 1 to 1024, not 1025"},
      {"resources={nodes: 16384, ranks_per_node: 1024}",
       "resources: 16777216 ranks; the limit is 131072"},
  };
  for (const auto& [override_text, expected] : cases) {
    EXPECT_EQ(Validate(Defaulted("command: [x]", {override_text})).message(), expected);
  }
}

TEST(ValidateTest, ChecksBackendAgainstResources) {
  EXPECT_THAT(
      std::string(Validate(Defaulted(kTrain, {"backend=shm", "resources.nodes=2"})).message()),
      HasSubstr("shm supports only one node"));
  EXPECT_THAT(
      std::string(Validate(Defaulted(kTrain, {"backend=loopback", "resources.nodes=2"})).message()),
      HasSubstr("loopback supports only one rank"));
  EXPECT_THAT(
      std::string(Validate(Defaulted(kTrain, {"backend=nccl", "resources.device=cpu"})).message()),
      HasSubstr("nccl requires GPUs"));
  EXPECT_THAT(std::string(Validate(Defaulted(kTrain, {"backend=hierarchical",
                                                      "train.strategy.hierarchical=off"}))
                              .message()),
              HasSubstr("hierarchical: is off, but backend is hierarchical"));
  EXPECT_THAT(
      std::string(Validate(Defaulted(kTrain, {"backend=gloo", "train.strategy.hierarchical=on"}))
                      .message()),
      HasSubstr("hierarchical: is on, but backend gloo is not hierarchical"));
  for (const char* word : {"train.strategy.hierarchical=on", "train.strategy.hierarchical=off"}) {
    EXPECT_TRUE(Validate(Defaulted(kTrain, {word, "resources.nodes=2"})).ok()) << word;
  }
}

TEST(ValidateTest, ReportsAllProblems) {
  const absl::Status status =
      Validate(Defaulted(kTrain, {"train.epochs=", "train.precision=O4", "priority=5000"}));
  const std::vector<std::string> lines = absl::StrSplit(status.message(), '\n');
  EXPECT_EQ(lines.size(), 3u) << status;
}

TEST(ValidateTest, RejectsEmptySpec) {
  v1::JobSpec spec;
  ApplyDefaults(spec);
  EXPECT_EQ(Validate(spec).message(), "train: is missing; a job needs train or command");
  // Without defaults, too, Validate returns an error instead of crashing.
  EXPECT_FALSE(Validate(v1::JobSpec()).ok());
}

TEST(ValidateTest, ChecksCommandJobs) {
  EXPECT_TRUE(Validate(Defaulted("command: [/bin/sh, -c, 'exit 7']\nenv: {A: 1}\n"
                                 "resources: {device: gpu, devices_per_rank: all}"))
                  .ok());
  v1::JobSpec spec = Defaulted("command: ['']");
  EXPECT_THAT(std::string(Validate(spec).message()), HasSubstr("the program's name is empty"));
}

TEST(ValidateTest, ChecksLauncher) {
  for (const char* launcher : {"muster", "mpi"}) {
    const v1::JobSpec spec = Defaulted(absl::StrCat("{command: [./a], launcher: ", launcher, "}"));
    EXPECT_EQ(Validate(spec).message(), "") << launcher;
  }
  EXPECT_THAT(std::string(Validate(Defaulted("{command: [./a], launcher: slurm}")).message()),
              HasSubstr("launcher: unknown 'slurm'; one of: muster, mpi"));
}

// Values that YAML cannot contain, but a request or an argument list can.
TEST(ValidateTest, RejectsHostileStringsAndNumbers) {
  v1::JobSpec spec = Defaulted("command: [x]");
  spec.add_command(std::string("a\0b", 3));
  EXPECT_EQ(Validate(spec).message(), "command[1]: contains a NUL character");
  for (const char* bad : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    spec.set_command(1, bad);
    EXPECT_EQ(Validate(spec).message(), "command[1]: is not UTF-8");
  }
  spec.set_command(1, "h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_TRUE(Validate(spec).ok()) << Validate(spec);
  spec.mutable_failure_timeout()->set_seconds(std::numeric_limits<int64_t>::max());
  spec.mutable_grace_period()->set_nanos(-5);
  const std::string text(Validate(spec).message());
  EXPECT_THAT(text, HasSubstr("failure_timeout: must be"));
  EXPECT_THAT(text, HasSubstr("grace_period: must be"));

  v1::JobSpec train = Defaulted(kTrain);
  train.mutable_train()->set_epochs(std::numeric_limits<double>::quiet_NaN());
  train.mutable_train()->mutable_optimizer()->set_learning_rate(
      std::numeric_limits<double>::infinity());
  train.mutable_train()->mutable_model()->set_dropout(std::numeric_limits<double>::quiet_NaN());
  const std::vector<std::string> lines = absl::StrSplit(Validate(train).message(), '\n');
  EXPECT_EQ(lines.size(), 3u);

  v1::JobSpec huge = Defaulted("command: [x]");
  huge.add_command(std::string(limits::kSpecBytes, 'x'));
  EXPECT_EQ(Validate(huge).code(), absl::StatusCode::kInvalidArgument);
}

TEST(MaxWorldSizeTest, SaturatesInsteadOfWrapping) {
  v1::JobSpec spec;
  spec.mutable_resources()->mutable_nodes()->set_max(UINT32_MAX);
  spec.mutable_resources()->set_ranks_per_node(UINT32_MAX);
  EXPECT_EQ(MaxWorldSize(spec), UINT32_MAX);
  spec.mutable_resources()->mutable_nodes()->set_max(3);
  spec.mutable_resources()->set_ranks_per_node(2);
  EXPECT_EQ(MaxWorldSize(spec), 6u);
}

TEST(ValidateTest, FilesNeedPathsAndOwnDirectories) {
  EXPECT_THAT(
      std::string(Validate(Defaulted("{command: [x], workdir: /srv, files: [a]}")).message()),
      HasSubstr("files: are placed in each rank's own directory, but workdir is set"));
  EXPECT_THAT(std::string(Validate(Defaulted("{command: [x], files: [a, {}]}")).message()),
              HasSubstr("files[1].path: is missing"));
}

// ---- ToYaml

TEST(ToYamlTest, RoundTrips) {
  const std::vector<std::vector<std::string>> variants = {
      {},
      {"train.checkpoint={dir: '/c/{node}', every_steps: 10}", "resources.nodes={min: 1, max: 4}"},
      {"on_lost_coordinator={stop_after: 90s}", "time_limit=1h30m", "restart.max=0"},
      {"train.model={name: mlp, hidden: [10, 20], dropout: 0.123456789012345}"},
      {"env={A: 'true', B: '~', C: '', D: \"a: b # c\\n\\x01\", E: '- x', F: \"é\", 'G H': '{'}"},
      {"train.strategy.bucket_bytes=12345", "failure_timeout=1500ms", "priority=-5"},
      {"train.epochs=", "train.max_steps=18446744073709551615"},
      {"resources.share_device=true"},
      {"hang_timeout=never", "on_hang=restart"},
  };
  for (const auto& overrides : variants) {
    const v1::JobSpec spec = Defaulted(kTrain, overrides);
    ASSERT_TRUE(Validate(spec).ok()) << Validate(spec);
    const std::string yaml = ToYaml(spec);
    const auto again = Parse(yaml, "again.yaml");
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << yaml;
    std::string difference;
    MessageDifferencer differencer;
    differencer.ReportDifferencesToString(&difference);
    EXPECT_TRUE(differencer.Compare(spec, *again)) << difference << yaml;
  }
}

TEST(ToYamlTest, PrintsFiles) {
  const std::string digest(64, 'a');
  v1::JobSpec spec = Defaulted("{command: [x], files: [train.py, {path: 'a b'}]}");
  EXPECT_TRUE(Validate(spec).ok()) << Validate(spec);
  EXPECT_THAT(ToYaml(spec), HasSubstr("files: [train.py, \"a b\"]\n"));
  for (v1::FileSpec& file : *spec.mutable_files()) {
    file.set_sha256(digest);
    file.set_size_bytes(1025);
    file.set_executable(true);
  }
  const std::string yaml = ToYaml(spec);
  EXPECT_THAT(yaml, HasSubstr("files:\n  - {path: train.py, sha256: aaaa"));
  const auto again = Parse(yaml, "again.yaml");
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << yaml;
  EXPECT_TRUE(MessageDifferencer::Equals(spec, *again)) << yaml;
}

TEST(ToYamlTest, PrintsHangTimeout) {
  EXPECT_EQ(Defaulted(kTrain).has_hang_timeout(), false);
  EXPECT_EQ(Defaulted(kTrain).on_hang(), "");
  EXPECT_EQ(Defaulted(kTrain, {"hang_timeout=10m"}).on_hang(), "report");
  EXPECT_THAT(ToYaml(Defaulted("command: [x]")), HasSubstr("hang_timeout: 10m\non_hang: report\n"));
  EXPECT_THAT(ToYaml(Defaulted("command: [x]", {"hang_timeout=never"})),
              HasSubstr("hang_timeout: never\n"));
}

TEST(ToYamlTest, PrintsCommandJobs) {
  const v1::JobSpec spec = Defaulted("command: [/bin/sh, -c, 'echo $RANK; exit 7', 'null', '~']");
  EXPECT_THAT(ToYaml(spec),
              HasSubstr("command: [/bin/sh, \"-c\", \"echo $RANK; exit 7\", \"null\", \"~\"]\n"));
  EXPECT_THAT(ToYaml(spec), HasSubstr("failure_timeout: 30s\n"));
  EXPECT_THAT(ToYaml(spec), HasSubstr("on_lost_coordinator: continue\n"));
  EXPECT_THAT(ToYaml(spec), HasSubstr("restart: {max: 0}\n"));
  EXPECT_THAT(ToYaml(spec),
              HasSubstr("resources:\n  nodes: 1\n  ranks_per_node: 1\n  device: auto\n  "
                        "devices_per_rank: 1\n  threads_per_rank: 1\n  share_device: false\n"));
}

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

TEST(ExamplesTest, AllExamplesAreValid) {
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator("deploy/examples")) {
    ++examples;
    const std::string path = entry.path().string();
    std::ifstream file(path);
    ASSERT_TRUE(file) << path;
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    auto spec = Parse(text, path);
    ASSERT_TRUE(spec.ok()) << spec.status();
    ApplyDefaults(*spec);
    EXPECT_TRUE(Validate(*spec).ok()) << path << ": " << Validate(*spec);
  }
  EXPECT_GE(examples, 12);
}

}  // namespace

}  // namespace muster::spec
