#include "trainer/loop/trainer_checkpoint_testing.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "spec/spec.h"
#include "trainer/strategy/create_strategy.h"

namespace muster::train {

namespace fs = std::filesystem;

namespace {

// The parts of the newest state of which all are there, read by different ranks; empty if there is
// none.
std::vector<MemoryPart> NewestComplete(const std::vector<MemoryCheckpoint>& found, uint32_t world) {
  for (size_t first = 0; first < found.size(); ++first) {
    std::vector<MemoryPart> parts;
    for (const MemoryCheckpoint& part : absl::MakeSpan(found).subspan(first)) {
      if (part.generation != found[first].generation || part.step != found[first].step) break;
      const auto index = static_cast<uint32_t>(parts.size());
      if (part.part == index) parts.push_back({(index + 1) % world, part});
    }
    if (parts.size() == found[first].parts) return parts;
  }
  return {};
}

}  // namespace

void TrainerCheckpointTest::SetUp() { data::WriteSyntheticDataset(data_.path(), 1000, 100); }

v1::JobSpec TrainerCheckpointTest::Spec(uint64_t steps) const {
  v1::JobSpec job;
  v1::TrainSpec& spec = *job.mutable_train();
  spec.mutable_model()->set_name("mlp");
  spec.mutable_dataset()->set_name("fashion_mnist");
  spec.mutable_dataset()->set_path(data_.path());
  spec.set_max_steps(steps);
  spec.set_global_batch(200);
  spec.mutable_optimizer()->set_name("sgd");
  spec.mutable_optimizer()->set_learning_rate(0.01);
  spec.mutable_optimizer()->set_momentum(0.9);
  spec.set_seed(1);
  *spec.mutable_checkpoint()->mutable_every() = ToProto(absl::ZeroDuration());
  return job;
}

void TrainerCheckpointTest::ConnectRanks(const v1::JobSpec& spec, uint32_t world) {
  groups_.clear();
  groups_.resize(world);
  keys_ = std::make_unique<collectives::FileKeyStore>();
  const auto connect = [&](uint32_t rank) -> absl::Status {
    collectives::WorldOptions options;
    options.backend = backend_;
    options.rank = rank;
    options.world_size = world;
    options.ranks_on_node = {world};
    options.store = keys_.get();
    options.interface_address = "127.0.0.1";
    ASSIGN_OR_RETURN(groups_[rank], ProcessGroups::Create(options, RequiredGroupsOf(spec.train())));
    return absl::OkStatus();
  };
  EXPECT_THAT(collectives::RunRankThreads(world, connect), ::testing::Each(""));
}

void TrainerCheckpointTest::Abort(uint32_t rank, const absl::Status& reason) {
  for (collectives::Communicator* const group : groups_[rank].all()) group->Abort(reason);
}

std::vector<TrainerCheckpointTest::Result> TrainerCheckpointTest::Train(
    v1::JobSpec spec, uint32_t world, uint64_t generation, const AtProgress& at_progress) {
  spec::ApplyDefaults(spec);
  ConnectRanks(spec, world);
  requests_.clear();
  for (uint32_t rank = 0; rank < world; ++rank) {
    requests_.push_back(std::make_unique<RankRequests>());
  }
  CheckpointOptions checkpoints = {checkpoints_.path(), "job", generation, keep_};
  checkpoints.keep_best = spec.train().checkpoint().keep_best();
  checkpoints.operations = operations_;
  const auto directory = CheckpointDirectory::OpenForWriting(checkpoints);
  EXPECT_TRUE(directory.ok()) << directory.status();
  const auto newest = directory->FindNewestValid();
  EXPECT_TRUE(newest.ok()) << newest.status();
  std::vector<Result> results(world);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      Result& result = results[rank];
      auto setup = SetUpTraining(spec, world, "", {device_});
      result.status = setup.status();
      if (!result.status.ok()) return;
      TrainerOptions options;
      options.job_id = "job";
      options.generation = generation;
      if (spec.train().checkpoint().keep() > 0) options.checkpoints = *directory;
      options.shards_checkpoints = shards_;
      if (newest->has_value()) {
        options.resume =
            ResumePoint{.rank = 0, .step = (*newest)->state.step, .name = (*newest)->name};
        options.newest_checkpoint = CheckpointRef{(*newest)->name, (*newest)->state.step};
      }
      options.layout_digest = (*setup)->strategy->layout_digest();
      if (memory_.has_value() && rank != without_memory_) {
        options.memory = memory_;
        options.on_peer_lost = [&result](const absl::Status&, uint64_t step) {
          result.left_step = step;
        };
        std::vector<MemoryPart> parts =
            NewestComplete(memory_->Find(generation, options.layout_digest), world);
        if (!parts.empty()) {
          const uint64_t step = parts.front().checkpoint.step;
          options.resume = ResumePoint{
              .rank = parts.front().rank, .step = step, .own = false, .memory = std::move(parts)};
        }
      }
      options.requests = requests_[rank].get();
      options.on_checkpoint = [this](const CheckpointRef& checkpoint) {
        written_.push_back(checkpoint.step);
      };
      options.on_checkpoint_failure = [this](uint64_t step, const absl::Status& status) {
        failures_.push_back({step, status});
        if (at_failure_ != nullptr) at_failure_();
      };
      options.progress = [rank, &at_progress](const v1::Progress& progress) {
        if (at_progress != nullptr) at_progress(rank, progress);
      };
      Trainer trainer(*std::move(setup), &groups_[rank], std::move(options));
      auto summary = trainer.Run();
      result.status = summary.status();
      result.step = trainer.step();
      if (summary.ok()) {
        result.summary = *std::move(summary);
      } else {
        Abort(rank, absl::AbortedError("the rank has ended"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

std::optional<CheckpointState> TrainerCheckpointTest::Newest() const {
  const auto found = CheckpointDirectory::OpenReadOnly(checkpoints_.path()).FindNewestValid();
  EXPECT_TRUE(found.ok()) << found.status();
  return found.ok() && found->has_value() ? std::optional((*found)->state) : std::nullopt;
}

std::string TrainerCheckpointTest::SavedTensors() const {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(checkpoints_.path())) {
    if (entry.path().extension() != ".safetensors") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename().string()].append(std::istreambuf_iterator<char>(file), {});
  }
  std::string all;
  for (const auto& [name, content] : files) absl::StrAppend(&all, name, content);
  return all;
}

void TrainerCheckpointTest::ExpectContinues(const v1::JobSpec& spec, uint32_t world,
                                            uint64_t step) {
  ASSERT_TRUE(Newest().has_value());
  EXPECT_EQ(Newest()->step, step);
  const Result rest = Train(spec, world, 2)[0];
  ASSERT_TRUE(rest.status.ok()) << rest.status;
  EXPECT_EQ(rest.summary.resumed_from_step(), step);
  fs::remove_all(checkpoints_.path());
  const Result whole = Train(spec, world)[0];
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  EXPECT_EQ(rest.summary.weights_digest(), whole.summary.weights_digest());
}

void TrainerCheckpointTest::SetAccessible(bool accessible) {
  const std::string aside = checkpoints_.path() + "-aside";
  fs::rename(accessible ? aside : checkpoints_.path(), accessible ? checkpoints_.path() : aside);
}

}  // namespace muster::train
