// Writes a synthetic dataset in CIFAR-10's binary format that a model can learn: each class is a
// distinct pattern, shifted and with noise. The bytes are the same on every machine.
//
//   make_cifar10 FOLDER [TRAINING_IMAGES [TEST_IMAGES]]
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

constexpr int kSide = 32, kChannels = 3, kClasses = 10, kTrainingFiles = 5;

// SplitMix64 (Steele, Lea & Flood 2014).
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t operator()() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }

 private:
  uint64_t state_;
};

// Stripes whose direction, width and colour depend on the class. Uses integers only, so that
// results do not depend on the math library.
void AppendRecord(SplitMix64& random, std::vector<char>& records) {
  const int label = static_cast<int>(random() % kClasses);
  const int x_step = 1 + label % 5, y_step = 1 + label / 2, phase = static_cast<int>(random() % 64);
  records.push_back(static_cast<char>(label));
  for (int channel = 0; channel < kChannels; ++channel) {
    const int tint = 16 * ((label + channel * 3) % 5);
    for (int y = 0; y < kSide; ++y) {
      for (int x = 0; x < kSide; ++x) {
        const int wave = (x * x_step + y * y_step + phase) % 32;  // a triangle wave
        const int noise = static_cast<int>(random() % 96);
        records.push_back(static_cast<char>(tint + 4 * (wave < 16 ? wave : 31 - wave) + noise));
      }
    }
  }
}

bool Write(const std::filesystem::path& path, SplitMix64& random, int images) {
  std::vector<char> records;
  for (int i = 0; i < images; ++i) AppendRecord(random, records);
  std::ofstream file(path, std::ios::binary);
  file.write(records.data(), static_cast<std::streamsize>(records.size()));
  file.close();
  if (!file) std::fprintf(stderr, "make_cifar10: cannot write %s\n", path.c_str());
  return static_cast<bool>(file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: make_cifar10 FOLDER [TRAINING_IMAGES [TEST_IMAGES]]\n");
    return 64;
  }
  const std::filesystem::path folder = argv[1];
  const int training = argc > 2 ? std::atoi(argv[2]) : 50000;
  const int test = argc > 3 ? std::atoi(argv[3]) : 10000;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  SplitMix64 random(20);
  for (int file = 0; file < kTrainingFiles; ++file) {
    const int images = training * (file + 1) / kTrainingFiles - training * file / kTrainingFiles;
    const std::string name = "data_batch_" + std::to_string(file + 1) + ".bin";
    if (!Write(folder / name, random, images)) return 73;
  }
  return Write(folder / "test_batch.bin", random, test) ? 0 : 73;
}
