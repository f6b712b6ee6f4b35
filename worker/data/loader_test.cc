#include "worker/data/loader.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/data/testing.h"

namespace muster::data {
namespace {

struct Copy {
  uint64_t step, epoch, first_row, global_rows;
  std::vector<uint8_t> pixels;
  std::vector<int32_t> labels;
  bool operator==(const Copy&) const = default;
};

class LoaderTest : public ::testing::Test {
 protected:
  static constexpr size_t kSamples = 57;

  void SetUp() override {
    WriteSyntheticDataset(directory_.path(), kSamples, 10);
    auto dataset = ImageDataset::Open(*FindDataset("mnist"), directory_.path(), Split::kTrain, "");
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    dataset_ = std::make_unique<ImageDataset>(*std::move(dataset));
  }

  std::vector<Copy> Load(const LoaderOptions& options) {
    Loader loader(dataset_.get(), *StepMap::Create(kSamples, 10, false), options);
    std::vector<Copy> batches;
    for (uint64_t step = options.first_step; step < options.end_step; ++step) {
      const Batch& batch = loader.Next();
      batches.push_back({batch.step,
                         batch.epoch,
                         batch.first_row,
                         batch.global_rows,
                         {batch.pixels.begin(), batch.pixels.end()},
                         {batch.labels.begin(), batch.labels.end()}});
    }
    return batches;
  }

  LoaderOptions Options() const {
    LoaderOptions options;
    options.seed = 4;
    options.end_step = 20;
    options.augment = {2, true, 4};
    return options;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<ImageDataset> dataset_;
};

TEST_F(LoaderTest, ThreadsAndPrefetchChangeNothing) {
  const std::vector<Copy> expected = Load(Options());
  ASSERT_EQ(expected.size(), 20);
  for (const uint32_t threads : {2u, 5u}) {
    for (const uint32_t prefetch : {0u, 1u, 3u, 50u}) {
      LoaderOptions options = Options();
      options.threads = threads;
      options.prefetch = prefetch;
      EXPECT_EQ(Load(options), expected) << threads << " threads, " << prefetch << " ahead";
    }
  }
}

TEST_F(LoaderTest, RanksTogetherLoadTheGlobalBatch) {
  const std::vector<Copy> whole = Load(Options());
  for (const uint32_t world : {2u, 3u, 16u}) {
    std::vector<Copy> joined;
    for (uint32_t rank = 0; rank < world; ++rank) {
      LoaderOptions options = Options();
      options.rank = rank;
      options.world_size = world;
      const std::vector<Copy> parts = Load(options);
      if (rank == 0) {
        joined = parts;
        continue;
      }
      for (size_t i = 0; i < parts.size(); ++i) {
        EXPECT_EQ(parts[i].first_row, joined[i].labels.size());
        joined[i].pixels.insert(joined[i].pixels.end(), parts[i].pixels.begin(),
                                parts[i].pixels.end());
        joined[i].labels.insert(joined[i].labels.end(), parts[i].labels.begin(),
                                parts[i].labels.end());
      }
    }
    EXPECT_EQ(joined, whole) << world << " ranks";
  }
}

TEST_F(LoaderTest, StartsInMidEpoch) {
  const std::vector<Copy> whole = Load(Options());
  LoaderOptions options = Options();
  options.first_step = 8;
  const std::vector<Copy> rest = Load(options);
  EXPECT_EQ(rest, std::vector<Copy>(whole.begin() + 8, whole.end()));
}

TEST_F(LoaderTest, EndsWithBatchesUnused) {
  LoaderOptions options = Options();
  options.threads = 3;
  options.end_step = 1000000;
  Loader loader(dataset_.get(), *StepMap::Create(kSamples, 10, false), options);
  EXPECT_EQ(loader.Next().step, 0);
}

}  // namespace
}  // namespace muster::data
