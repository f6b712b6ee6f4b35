#include "coordinator/core/scheduler/placement/device_choice.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <tuple>

#include "absl/types/optional.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using Slots = google::protobuf::RepeatedPtrField<v1::Slot>;
using ::testing::ElementsAre;

struct Link {
  const char* path;
  uint32_t nvlinks = 0;
};

Slots Machine(uint32_t gpus, const std::function<Link(uint32_t, uint32_t)>& between) {
  Slots slots;
  for (uint32_t i = 0; i < gpus; ++i) {
    v1::Slot& slot = *slots.Add();
    slot.set_index(i);
    slot.mutable_device()->set_index(i);
    for (uint32_t j = 0; j < gpus; ++j) {
      if (i == j) continue;
      const Link link = between(std::min(i, j), std::max(i, j));
      v1::DeviceLink& reported = *slot.mutable_device()->add_links();
      reported.set_index(j);
      reported.set_path(link.path);
      reported.set_nvlinks(link.nvlinks);
    }
  }
  return slots;
}

// Four GPUs per socket.
bool SameSocket(uint32_t i, uint32_t j) { return i / 4 == j / 4; }

Slots Hgx() {
  Slots slots = Machine(
      8, [](uint32_t i, uint32_t j) { return Link{SameSocket(i, j) ? "NUMA node" : "system"}; });
  for (v1::Slot& slot : slots) slot.mutable_device()->set_nvswitch_links(18);
  return slots;
}

// One PCIe switch per socket.
Slots PcieSwitches() {
  return Machine(
      8, [](uint32_t i, uint32_t j) { return Link{SameSocket(i, j) ? "switch" : "system"}; });
}

// NVLink bridges between GPUs 0 and 1, 2 and 3, 4 and 5, 6 and 7.
Slots Bridges() {
  return Machine(8, [](uint32_t i, uint32_t j) {
    return Link{SameSocket(i, j) ? "NUMA node" : "system", i / 2 == j / 2 ? 4u : 0u};
  });
}

// A DGX-1 with V100s, as `nvidia-smi topo -m` shows it.
Slots CubeMesh() {
  return Machine(8, [](uint32_t i, uint32_t j) {
    static constexpr uint32_t kNvlinks[8][8] = {{0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0},
                                                {1, 2, 0, 2, 0, 0, 1, 0}, {2, 1, 2, 0, 0, 0, 0, 1},
                                                {2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1},
                                                {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0}};
    return Link{SameSocket(i, j) ? "host bridge" : "system", kNvlinks[i][j]};
  });
}

std::vector<uint32_t> Choose(const Slots& slots, size_t count,
                             absl::optional<std::vector<uint32_t>> free = absl::nullopt) {
  if (!free.has_value()) {
    free.emplace(slots.size());
    std::iota(free->begin(), free->end(), 0u);
  }
  return DeviceChooser().Choose(&slots, *free, count);
}

TEST(DeviceChoiceTest, AllGpusAreEqualOnNvSwitch) {
  EXPECT_THAT(Choose(Hgx(), 1), ElementsAre(0));
  EXPECT_THAT(Choose(Hgx(), 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Choose(Hgx(), 3, {{1, 3, 4, 6, 7}}), ElementsAre(1, 3, 4));
}

TEST(DeviceChoiceTest, StaysUnderOnePcieSwitch) {
  EXPECT_THAT(Choose(PcieSwitches(), 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Choose(PcieSwitches(), 3, {{0, 1, 5, 6, 7}}), ElementsAre(5, 6, 7));
  // The set of three is left to a job that needs three.
  EXPECT_THAT(Choose(PcieSwitches(), 2, {{0, 1, 5, 6, 7}}), ElementsAre(0, 1));
  EXPECT_THAT(Choose(PcieSwitches(), 1, {{2, 5, 6, 7}}), ElementsAre(2));
  EXPECT_THAT(Choose(PcieSwitches(), 1, {{0, 1, 2, 5}}), ElementsAre(5));
}

TEST(DeviceChoiceTest, KeepsBridgedPairsTogether) {
  EXPECT_THAT(Choose(Bridges(), 2), ElementsAre(0, 1));
  EXPECT_THAT(Choose(Bridges(), 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Choose(Bridges(), 2, {{1, 2, 6, 7}}), ElementsAre(6, 7));
  EXPECT_THAT(Choose(Bridges(), 1, {{0, 1, 2, 4, 5}}), ElementsAre(2));
  EXPECT_THAT(Choose(Bridges(), 3, {{0, 2, 3, 4, 5, 6, 7}}), ElementsAre(0, 2, 3));
  // Takes the pair on the partly used socket and leaves the socket with two pairs free.
  EXPECT_THAT(Choose(Bridges(), 2, {{0, 1, 3, 4, 5, 6, 7}}), ElementsAre(0, 1));
  EXPECT_THAT(Choose(Bridges(), 4, {{0, 1, 2, 4, 5, 6, 7}}), ElementsAre(4, 5, 6, 7));
}

TEST(DeviceChoiceTest, FindsQuadsOfCubeMesh) {
  EXPECT_THAT(Choose(CubeMesh(), 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Choose(CubeMesh(), 4, {{1, 2, 3, 4, 5, 6, 7}}), ElementsAre(4, 5, 6, 7));
  // Two links are better than one, also across quads.
  EXPECT_THAT(Choose(CubeMesh(), 2), ElementsAre(0, 3));
  EXPECT_THAT(Choose(CubeMesh(), 2, {{0, 1, 5}}), ElementsAre(1, 5));
  EXPECT_THAT(Choose(CubeMesh(), 3), ElementsAre(0, 2, 3));
  // Takes the rest of a partly used quad rather than a pair of the free one.
  EXPECT_THAT(Choose(CubeMesh(), 2, {{1, 2, 4, 5, 6, 7}}), ElementsAre(1, 2));
}

TEST(DeviceChoiceTest, ComparesWorstPairBeforeSum) {
  // GPUs 0, 1, 2 form two fast pairs and a slow one, GPUs 3, 4, 5 three medium pairs.
  const Slots slots = Machine(6, [](uint32_t i, uint32_t j) {
    if (j <= 2) return i == 0 && j == 2 ? Link{"system"} : Link{"switch", 12};
    return Link{i >= 3 ? "switch" : "system"};
  });
  EXPECT_THAT(Choose(slots, 3), ElementsAre(3, 4, 5));
}

TEST(DeviceChoiceTest, HandlesSlotNumbersThatDifferFromDevices) {
  // A worker that offers GPUs 0, 2 and 3 of Bridges(), behind a CPU slot.
  Slots slots;
  slots.Add()->set_index(0);
  for (const int gpu : {0, 2, 3}) {
    v1::Slot& slot = *slots.Add();
    slot = Bridges()[gpu];
    slot.set_index(static_cast<uint32_t>(slots.size()) - 1);
  }
  EXPECT_THAT(Choose(slots, 2, {{1, 2, 3}}), ElementsAre(2, 3));
}

TEST(DeviceChoiceTest, TakesFirstSlotsWithoutTopology) {
  Slots slots;
  for (uint32_t i = 0; i < 4; ++i) slots.Add()->set_index(i);
  EXPECT_THAT(Choose(slots, 2), ElementsAre(0, 1));
  for (v1::Slot& slot : slots) slot.mutable_device()->set_index(slot.index());
  EXPECT_THAT(Choose(slots, 2), ElementsAre(0, 1));
  EXPECT_THAT(DeviceChooser().Choose(nullptr, {3, 5, 7}, 2), ElementsAre(3, 5));
}

TEST(DeviceChoiceTest, CacheDistinguishesNodes) {
  DeviceChooser chooser;
  const std::vector<uint32_t> free = {0, 1, 2, 3, 5, 6};
  for (int round = 0; round < 2; ++round) {
    const Slots bridges = Bridges();
    EXPECT_THAT(chooser.Choose(&bridges, free, 1), ElementsAre(5));
    EXPECT_THAT(chooser.Choose(&bridges, free, 2), ElementsAre(0, 1));
    const Slots mesh = CubeMesh();
    EXPECT_THAT(chooser.Choose(&mesh, free, 2), ElementsAre(5, 6));
  }
}

// Reference implementation: exhaustive search with the criteria of the header.
std::vector<uint32_t> Slowly(const Slots& slots, size_t count) {
  const uint32_t gpus = static_cast<uint32_t>(slots.size());
  std::vector<uint32_t> best;
  std::tuple<uint32_t, uint64_t, uint64_t> best_score;
  std::vector<bool> in(gpus);
  std::fill(in.begin(), in.begin() + static_cast<ptrdiff_t>(count), true);
  do {
    uint32_t worst = ~0u;
    uint64_t sum = 0, rest = 0;
    std::vector<uint32_t> set;
    for (uint32_t i = 0; i < gpus; ++i) {
      if (in[i]) set.push_back(i);
      for (uint32_t j = 0; j < i; ++j) {
        const uint32_t closeness =
            Closeness(slots[static_cast<int>(i)].device(), slots[static_cast<int>(j)].device());
        if (in[i] && in[j]) {
          worst = std::min(worst, closeness);
          sum += closeness;
        } else if (!in[i] && !in[j]) {
          rest += closeness;
        }
      }
    }
    const auto score = std::make_tuple(worst, sum, rest);
    if (best.empty() || score > best_score) best = set;
    best_score = std::max(best_score, score);
  } while (std::prev_permutation(in.begin(), in.end()));
  return best;
}

TEST(DeviceChoiceTest, MatchesExhaustiveSearch) {
  std::mt19937 random(1);
  const char* const paths[] = {"board", "switch", "switches", "host bridge", "system"};
  for (int round = 0; round < 300; ++round) {
    const uint32_t gpus = 2 + random() % 8;
    const Slots slots = Machine(gpus, [&](uint32_t i, uint32_t j) {
      // Links are symmetric.
      std::mt19937 pair(static_cast<uint32_t>(round) * 1000 + i * 10 + j);
      return Link{paths[pair() % 5], pair() % 3 == 0 ? static_cast<uint32_t>(pair() % 3) : 0};
    });
    for (size_t count = 1; count < gpus; ++count) {
      EXPECT_EQ(Choose(slots, count), Slowly(slots, count)) << gpus << " " << count;
    }
  }
}

TEST(DeviceChoiceTest, GrowsSetsWhenThereAreTooMany) {
  // Two groups of twelve GPUs, with alternating indices.
  const Slots crates = Machine(24, [](uint32_t i, uint32_t j) {
    return Link{"system", i % 2 == j % 2 ? 6u : 0u};
  });
  EXPECT_THAT(Choose(crates, 12), ElementsAre(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22));
  std::vector<uint32_t> free = {0,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 23};
  EXPECT_THAT(Choose(crates, 11, free), ElementsAre(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20));
  // More GPUs than any node has.
  const Slots claims = Machine(66, [](uint32_t i, uint32_t j) {
    return Link{"system", i % 2 == j % 2 ? 6u : 0u};
  });
  EXPECT_THAT(Choose(claims, 2), ElementsAre(0, 1));
}

}  // namespace
}  // namespace muster::core
