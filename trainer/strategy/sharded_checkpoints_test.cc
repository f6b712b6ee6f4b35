// Expects checkpoints that several ranks write to have the same contents as those that one rank
// gathers and writes, and trainings to resume from them with any strategy and number of ranks.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "trainer/checkpoint/tensor_set.h"
#include "trainer/data/testing.h"
#include "trainer/strategy/testing.h"

namespace muster::train {
namespace {

constexpr uint64_t kSteps = 6;
constexpr char kName[] = "step-00000006.g1";

using Contents = std::map<std::string, std::string>;  // header entry and bytes by file and tensor

Contents ContentsOf(const SafetensorsFile& file) {
  const auto* const bytes = reinterpret_cast<const char*>(file.bytes().data());
  uint64_t length = 0;
  std::memcpy(&length, bytes, sizeof(length));
  Contents contents;
  const auto header = nlohmann::json::parse(bytes + 8, bytes + 8 + length);
  for (const auto& item : header.items()) {
    const size_t begin = item.value()["data_offsets"][0], end = item.value()["data_offsets"][1];
    contents[item.key()] = absl::StrCat(item.value()["dtype"].dump(), item.value()["shape"].dump(),
                                        std::string(bytes + 8 + length + begin, end - begin));
  }
  return contents;
}

class ShardedCheckpointsTest : public ::testing::Test {
 protected:
  void SetUp() override { data::WriteSyntheticDataset(data_.path(), 330, 50); }

  // Two optimizer states and an average.
  v1::JobSpec Spec() const {
    v1::JobSpec job = SmallTraining(data_.path(), kSteps);
    v1::OptimizerSpec& optimizer = *job.mutable_train()->mutable_optimizer();
    optimizer.Clear();
    optimizer.set_name("adamw");
    optimizer.set_learning_rate(0.001);
    optimizer.set_weight_decay(0.01);
    job.mutable_train()->mutable_ema()->set_decay(0.8);
    job.mutable_train()->mutable_checkpoint()->set_every_steps(2);
    return job;
  }
  static v1::JobSpec Zero1(v1::JobSpec job) {
    job.mutable_train()->mutable_strategy()->set_shard_optimizer(true);
    return job;
  }
  static v1::JobSpec Pipeline(v1::JobSpec job) {
    v1::StrategySpec& strategy = *job.mutable_train()->mutable_strategy();
    strategy.set_name("pipeline");
    strategy.mutable_pipeline()->set_stages(2);
    strategy.mutable_pipeline()->set_micro_batches(3);
    // Otherwise a measurement chooses, which may differ between two runs.
    strategy.mutable_pipeline()->add_cuts(job.train().model().batch_norm() ? "4" : "3");
    return job;
  }
  // Each rank drives several devices.
  static v1::JobSpec Devices(v1::JobSpec job, const std::string& strategy) {
    job.mutable_train()->mutable_strategy()->set_name(strategy);
    return job;
  }
  // Options that write to a directory of this name.
  TrainerOptions WriteTo(const std::string& name, bool shards) const {
    TrainerOptions options;
    options.job_id = name;
    options.shards_checkpoints = shards;
    auto directory = CheckpointDirectory::OpenForWriting(
        {.path = absl::StrCat(checkpoints_.path(), "/", name), .job_id = name, .generation = 1});
    EXPECT_TRUE(directory.ok()) << directory.status();
    options.checkpoints = *std::move(directory);
    return options;
  }
  // Trains with this strategy and returns the directory of the checkpoint.
  CheckpointDirectory Train(const v1::JobSpec& spec, const std::string& backend, uint32_t ranks,
                            const TrainerOptions& options, size_t devices = 1) const {
    TrainRanks(spec, {.backend = backend,
                      .ranks_on_node = {ranks},
                      .devices = std::vector(devices, &kernels::CpuDevice()),
                      .options = options});
    EXPECT_TRUE(options.checkpoints->Verify(kName).ok())
        << options.checkpoints->Verify(kName).status();
    return *options.checkpoints;
  }
  static std::vector<std::string> Names(const CheckpointDirectory& directory) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory.FolderPath(kName))) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  // All tensors of the checkpoint.
  static Contents ContentsOf(const CheckpointDirectory& directory) {
    Contents contents;
    for (const std::string& path : {directory.ModelPath(kName), directory.OptimizerPath(kName),
                                    directory.AveragePath(kName).value_or("no average")}) {
      const auto set = TensorSet::Open(path);
      EXPECT_TRUE(set.ok()) << set.status();
      if (!set.ok()) continue;
      for (const SafetensorsFile& file : set->files()) {
        for (const auto& [name, bytes] : train::ContentsOf(file)) {
          contents[absl::StrCat(path.substr(path.rfind('/')), " ", name)] = bytes;
        }
      }
    }
    return contents;
  }
  static void ExpectEqual(const CheckpointDirectory& actual, const CheckpointDirectory& expected) {
    const Contents a = ContentsOf(actual), b = ContentsOf(expected);
    EXPECT_GT(b.size(), 20);
    EXPECT_EQ(a.size(), b.size());
    for (const auto& [name, bytes] : b) {
      EXPECT_TRUE(a.count(name) == 1 && a.at(name) == bytes) << name << " differs";
    }
  }

  data::TemporaryDirectory data_, checkpoints_;
};

TEST_F(ShardedCheckpointsTest, EqualGatheredOnes) {
  struct Case {
    v1::JobSpec spec;
    uint32_t ranks;
    // Files of the model. The middle of the largest layer, which lies in all shards of four ranks,
    // is in the third one, so that the second rank writes nothing.
    std::vector<std::string> files;
  };
  v1::JobSpec spec = Spec();
  spec.mutable_train()->mutable_model()->set_batch_norm(true);
  int number = 0;
  const std::vector<std::string> two = {"00001-of-00002", "00002-of-00002"};
  const std::vector<std::string> three = {"00001-of-00003", "00002-of-00003", "00003-of-00003"};
  const std::vector<std::string> of_four = {"00001-of-00004", "00003-of-00004", "00004-of-00004"};
  for (const Case& c :
       {Case{Zero1(spec), 2, two}, Case{Zero1(spec), 3, three}, Case{Zero1(spec), 4, of_four},
        Case{Pipeline(spec), 2, two}, Case{Pipeline(spec), 4, two}}) {
    for (const std::string backend : {"shm", "gloo"}) {
      SCOPED_TRACE(absl::StrCat(c.spec.train().strategy().name(), " ", c.ranks, " ", backend));
      const std::string name = absl::StrCat(++number);
      const auto gathered = Train(c.spec, backend, c.ranks, WriteTo("gathered-" + name, false));
      const auto sharded = Train(c.spec, backend, c.ranks, WriteTo("sharded-" + name, true));
      EXPECT_THAT(Names(gathered), ::testing::Contains("model.safetensors"));
      std::vector<std::string> expected = {"manifest.json", "state.json", "summary.pb"};
      for (const std::string file : {"model", "optimizer", "ema"}) {
        expected.push_back(file + ".safetensors.index.json");
        for (const std::string& part : c.files) {
          expected.push_back(absl::StrCat(file, "-", part, ".safetensors"));
        }
      }
      EXPECT_THAT(Names(sharded), ::testing::UnorderedElementsAreArray(expected));
      ExpectEqual(sharded, gathered);
    }
  }
}

// Each training only reads the checkpoint of the previous one, at the last step, and writes it
// again.
TEST_F(ShardedCheckpointsTest, PassUnchangedThroughOtherStrategies) {
  const CheckpointDirectory first = Train(Zero1(Spec()), "shm", 4, WriteTo("first", true));
  CheckpointDirectory previous = first;
  const auto pass_on = [&](const std::string& name, const v1::JobSpec& spec, uint32_t ranks,
                           const std::string& backend, size_t devices = 1) {
    SCOPED_TRACE(name);
    TrainerOptions options = WriteTo(name, true);
    options.resume = ResumePoint{.rank = 0, .step = kSteps, .own = false, .name = kName};
    options.resume_directory = previous;
    previous = Train(spec, backend, ranks, options, devices);
    ExpectEqual(previous, first);
  };
  pass_on("ddp", Spec(), 2, "shm");
  EXPECT_THAT(Names(previous), ::testing::Contains("model.safetensors"));
  pass_on("pipeline", Pipeline(Spec()), 2, "loopback");
  pass_on("replicas", Pipeline(Spec()), 4, "gloo");
  pass_on("dp", Devices(Spec(), "dp"), 1, "loopback", 2);
  pass_on("zero1", Zero1(Spec()), 3, "loopback");
  EXPECT_THAT(Names(previous), ::testing::Contains("model-00003-of-00003.safetensors"));
  pass_on("hybrid", Devices(Spec(), "hybrid"), 2, "loopback", 2);
  pass_on("one rank", Spec(), 1, "loopback");
}

// A checkpoint is named by its folder, its index or the single file.
TEST_F(ShardedCheckpointsTest, InitializeModels) {
  const auto gathered = Train(Zero1(Spec()), "shm", 2, WriteTo("gathered", false));
  const auto sharded = Train(Zero1(Spec()), "shm", 2, WriteTo("sharded", true));
  for (v1::JobSpec spec : {Spec(), Pipeline(Spec())}) {
    const auto digest = [&](const std::string& path) {
      spec.mutable_train()->set_init_from(path);
      return TrainRanks(spec, {.ranks_on_node = {2}})[0].weights_digest();
    };
    const std::string expected = digest(gathered.ModelPath(kName));
    EXPECT_EQ(digest(sharded.ModelPath(kName)), expected);
    EXPECT_EQ(digest(sharded.ModelPath(kName) + ".index.json"), expected);
    EXPECT_EQ(digest(sharded.FolderPath(kName)), expected);
    EXPECT_EQ(digest(gathered.FolderPath(kName)), expected);
  }
}

}  // namespace
}  // namespace muster::train
