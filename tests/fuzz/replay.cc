// Runs a fuzz target without libFuzzer: over its seeds and over mutations of them, which are the
// same in each run.
//
//   TARGET SEED_FOLDER MUTATIONS     or, to repeat a crash:     TARGET FILE 0
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/simulation/random.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace muster::fuzz {
namespace {

namespace fs = std::filesystem;
using simulation::Random;

constexpr uint64_t kSeed = 1;
constexpr size_t kMaxBytes = 8192;
// Resident memory of the process; inputs are small, so a parser that needs more trusts a size in
// its input.
constexpr int64_t kMaxResidentKib = 512 << 10;

std::string corpus;
int mutations = 0;

std::vector<std::string> ReadSeeds() {
  std::vector<fs::path> paths;
  if (fs::is_directory(corpus)) {
    std::copy(fs::directory_iterator(corpus), fs::directory_iterator(), std::back_inserter(paths));
  } else {
    paths = {corpus};
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const fs::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file.is_open()) << path;
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

// Keeps the input in the test's outputs while it runs, so that a crash leaves it there.
void RunInput(const std::string& input) {
  const char* outputs = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  const fs::path copy = fs::path(outputs == nullptr ? "." : outputs) / "crash-input";
  if (outputs != nullptr) std::ofstream(copy, std::ios::binary) << input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  if (outputs != nullptr) fs::remove(copy);
}

std::string Mutate(const std::vector<std::string>& seeds, Random& random) {
  std::string input = seeds[random.Below(seeds.size())];
  for (uint64_t n = 1 + random.Below(6); n > 0; --n) {
    constexpr char kEdges[] = {0, 1, 0x7f, '\x80', '\xff', '\n', ' ', '"', '/', '-', '9'};
    const std::string& other = seeds[random.Below(seeds.size())];
    const size_t at = random.Below(input.size() + 1);
    const size_t from = random.Below(other.size() + 1);
    switch (random.Below(6)) {
      case 0:
        input.insert(at, 1 + random.Below(8), static_cast<char>(random.Next()));
        break;
      case 1:
        input.erase(at, 1 + random.Below(16));
        break;
      case 2:
        if (at < input.size()) input[at] = kEdges[random.Below(std::size(kEdges))];
        break;
      case 3:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << random.Below(8)));
        break;
      case 4:
        input.insert(at, other, from, 1 + random.Below(64));
        break;
      default:
        input.replace(at, std::string::npos, other, from, std::string::npos);
    }
  }
  input.resize(std::min(input.size(), kMaxBytes));
  return input;
}

TEST(FuzzTarget, SurvivesSeedsAndTheirMutations) {
  const std::vector<std::string> seeds = ReadSeeds();
  ASSERT_FALSE(seeds.empty()) << "no seeds in " << corpus;
  for (const std::string& seed : seeds) RunInput(seed);
  Random random(kSeed);
  for (int i = 0; i < mutations; ++i) RunInput(Mutate(seeds, random));
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LE(usage.ru_maxrss, kMaxResidentKib);
}

}  // namespace
}  // namespace muster::fuzz

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 3) {
    fprintf(stderr, "usage: %s SEED_FOLDER MUTATIONS\n", argv[0]);
    return 2;
  }
  muster::fuzz::corpus = argv[1];
  muster::fuzz::mutations = std::atoi(argv[2]);
  return RUN_ALL_TESTS();
}
