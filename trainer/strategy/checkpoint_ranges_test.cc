#include "trainer/strategy/checkpoint_ranges.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device_floats.h"
#include "kernels/host_memory_device.h"
#include "trainer/loop/testing.h"

namespace muster::train {
namespace {

// Parameters of these sizes, one after the other.
std::vector<nn::ParameterInfo> Parameters(const std::vector<size_t>& counts) {
  std::vector<nn::ParameterInfo> parameters;
  size_t offset = 0;
  for (const size_t count : counts) {
    parameters.push_back({.offset = offset, .count = count});
    offset += count;
  }
  return parameters;
}

size_t Elements(const std::vector<size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

// Sizes of the ranges of `ranks` ranks.
std::vector<size_t> RangeSizes(const std::vector<size_t>& counts, uint32_t ranks) {
  const auto ranges =
      CheckpointRanges::Divide(Parameters(counts), Shares(Elements(counts), ranks), ranks);
  std::vector<size_t> sizes;
  size_t end = 0;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(ranges.of(rank).begin, end) << "ranges leave no gaps";
    end = ranges.of(rank).end;
    sizes.push_back(ranges.of(rank).count());
  }
  EXPECT_EQ(end, Elements(counts));
  return sizes;
}

TEST(CheckpointRangesTest, AssignWholeTensorsToNearestShards) {
  using ::testing::ElementsAre;
  EXPECT_THAT(RangeSizes({64, 64, 64, 64}, 4), ElementsAre(64, 64, 64, 64));
  EXPECT_THAT(RangeSizes({64, 64, 64, 64}, 2), ElementsAre(128, 128));
  EXPECT_THAT(RangeSizes({96, 32, 32, 96}, 2), ElementsAre(128, 128));
  // Shards of 48 elements; the middle of the large tensor is in the second one.
  EXPECT_THAT(RangeSizes({16, 96, 16, 16}, 3), ElementsAre(16, 96, 32));
  // More ranks than tensors, and empty shards.
  EXPECT_THAT(RangeSizes({160}, 4), ElementsAre(0, 160, 0, 0));
  EXPECT_THAT(RangeSizes({16, 16}, 4), ElementsAre(16, 16, 0, 0));
}

// Does not report its memory as host memory, so that values are copied.
class SeparateDevice final : public kernels::HostMemoryDevice {
 public:
  std::string name() const override { return "separate"; }
  bool host_memory() const override { return false; }
  const kernels::KernelTable& kernels() const override { return kernels::CpuDevice().kernels(); }
  absl::StatusOr<std::unique_ptr<kernels::Convolution>> MakeConvolution(
      const kernels::ConvolutionShape& shape, const kernels::ConvolutionOptions& options) override {
    return kernels::CpuDevice().MakeConvolution(shape, options);
  }
};

// Expects each rank to get its range of an array in which the value of each element is its number.
void ExpectGathers(const Shares& shares, const CheckpointRanges& ranges, uint32_t ranks) {
  const auto communicators = MakeLoopbackGroup(ranks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      SeparateDevice separate;
      for (kernels::Device* const device :
           {&kernels::CpuDevice(), static_cast<kernels::Device*>(&separate)}) {
        const Shares::Share share = shares.of(rank);
        std::vector<float> values(share.count());
        std::iota(values.begin(), values.end(), static_cast<float>(share.begin));
        const auto shard = *kernels::DeviceFloats::Create(*device, share.count(), "shard");
        device->CopyToDevice(shard.get(), values.data(), values.size() * sizeof(float));

        const Shares::Share range = ranges.of(rank);
        std::vector<float> actual(range.count()), expected(range.count());
        const absl::Status gathered =
            GatherRange(*communicators[rank], *device, shard.get(), shares, ranges, actual.data());
        ASSERT_TRUE(gathered.ok()) << gathered;
        std::iota(expected.begin(), expected.end(), static_cast<float>(range.begin));
        EXPECT_EQ(actual, expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(GatherRangeTest, CopiesRangesOfAllRanksOrAllToTheFirst) {
  // Tensors that lie in one, two and three shards.
  const std::vector<size_t> counts = {160, 16, 48, 112, 16, 16, 320, 64, 96, 16, 48, 112};
  for (const uint32_t ranks : {1u, 2u, 3u, 4u, 7u}) {
    SCOPED_TRACE(ranks);
    const Shares shares(Elements(counts), ranks);
    ExpectGathers(shares, CheckpointRanges::Divide(Parameters(counts), shares, ranks), ranks);
    ExpectGathers(shares, CheckpointRanges::AllOnFirst(Elements(counts), ranks), ranks);
  }
}

}  // namespace
}  // namespace muster::train
