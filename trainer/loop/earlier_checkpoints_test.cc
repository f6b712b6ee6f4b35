// Expects trainings to continue from checkpoints that are stored in the tree: those that earlier
// releases wrote must stay readable. trainer/checkpoint/testdata/README.md describes them.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spec/spec.h"
#include "trainer/checkpoint/training_identity.h"
#include "trainer/loop/trainer_checkpoint_testing.h"
#include "trainer/loop/training_setup.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr uint64_t kFixtureStep = 10, kSteps = 14;

std::string Contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The header of a safetensors file of float32 tensors, and their values.
struct Tensors {
  explicit Tensors(const fs::path& path) {
    const std::string contents = Contents(path);
    uint64_t length = 0;
    std::memcpy(&length, contents.data(), sizeof(length));
    header = contents.substr(sizeof(length), length);
    values.resize((contents.size() - sizeof(length) - length) / sizeof(float));
    std::memcpy(values.data(), contents.data() + sizeof(length) + length,
                values.size() * sizeof(float));
  }
  std::string header;
  std::vector<float> values;
};

class EarlierCheckpointsTest : public TrainerCheckpointTest {
 protected:
  v1::JobSpec FixtureSpec() const {
    v1::JobSpec spec = Spec(kSteps);
    spec.mutable_train()->mutable_model()->add_hidden(2);
    return spec;
  }
  // Makes a stored directory the job's.
  void Install(const std::string& name) const {
    fs::copy("trainer/checkpoint/testdata/" + name, checkpoints_.path(),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    // The files of a test are links to the tree.
    for (const auto& entry : fs::recursive_directory_iterator(checkpoints_.path())) {
      if (!entry.is_symlink()) continue;
      const std::string contents = Contents(entry.path());
      fs::remove(entry.path());
      data::WriteFile(entry.path(), contents);
    }
  }
  std::map<std::string, Tensors> TensorsOf(const std::string& folder) const {
    std::map<std::string, Tensors> files;
    for (const auto& entry : fs::directory_iterator(checkpoints_.path() + "/" + folder)) {
      if (entry.path().extension() != ".safetensors") continue;
      files.emplace(entry.path().filename(), Tensors(entry.path()));
    }
    return files;
  }
  // Expects the next generation to resume from the stored checkpoint and to end with the state of
  // an uninterrupted training. The stored values depend on the CPU that computed them, in rounding.
  void ExpectContinues(const v1::JobSpec& spec, uint32_t world, size_t files) {
    v1::JobSpec defaulted = spec;
    spec::ApplyDefaults(defaulted);
    const auto setup = SetUpTraining(defaulted, world, "");
    ASSERT_TRUE(setup.ok()) << setup.status();
    ASSERT_TRUE(Newest().has_value());
    EXPECT_EQ(TrainingDifferences(*Newest(), (*setup)->identity), "");

    const Result rest = Train(spec, world, 2)[0];
    ASSERT_TRUE(rest.status.ok()) << rest.status;
    EXPECT_EQ(rest.summary.resumed_from_step(), kFixtureStep);
    EXPECT_EQ(rest.summary.first_loss_step(), kFixtureStep + 1) << "the record begins there";
    EXPECT_THAT(written_, ElementsAre(kSteps));
    const auto actual = TensorsOf("step-00000014.g2");
    fs::remove_all(checkpoints_.path());

    const Result whole = Train(spec, world)[0];
    ASSERT_TRUE(whole.status.ok()) << whole.status;
    const auto expected = TensorsOf("step-00000014.g1");
    EXPECT_THAT(expected, SizeIs(files));
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [name, tensors] : expected) {
      SCOPED_TRACE(name);
      ASSERT_EQ(actual.count(name), 1);
      EXPECT_EQ(actual.at(name).header, tensors.header);
      ASSERT_EQ(actual.at(name).values.size(), tensors.values.size());
      for (size_t i = 0; i < tensors.values.size(); ++i) {
        const float value = tensors.values[i];
        EXPECT_NEAR(actual.at(name).values[i], value, 1e-6 + 1e-4 * std::abs(value)) << i;
      }
    }
  }
};

// From before names of checkpoints had a generation.
TEST_F(EarlierCheckpointsTest, ContinueFromCheckpointWithoutGeneration) {
  Install("without_generation");
  ExpectContinues(FixtureSpec(), 1, 2);
}

TEST_F(EarlierCheckpointsTest, RefuseAnotherTraining) {
  Install("without_generation");
  v1::JobSpec spec = FixtureSpec();
  spec.mutable_train()->set_seed(2);
  spec::ApplyDefaults(spec);
  const auto setup = SetUpTraining(spec, 1, "");
  ASSERT_TRUE(setup.ok()) << setup.status();
  EXPECT_TRUE(absl::StrContains(TrainingDifferences(*Newest(), (*setup)->identity),
                                "an earlier release has written it"));
}

TEST_F(EarlierCheckpointsTest, ContinueFromParts) {
  Install("parts");
  shards_ = true;
  v1::JobSpec spec = FixtureSpec();
  spec.mutable_train()->mutable_strategy()->set_shard_optimizer(true);
  ExpectContinues(spec, 2, 4);
}

}  // namespace
}  // namespace muster::train
