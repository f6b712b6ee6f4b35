#include "trainer/data/testing.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "absl/strings/str_cat.h"

namespace muster::data {
namespace {

void WriteSplit(const std::string& stem, size_t samples) {
  constexpr size_t kSide = 28;
  std::string pixels;
  std::string labels;
  std::mt19937 noise(static_cast<uint32_t>(samples));
  for (size_t i = 0; i < samples; ++i) {
    const size_t label = i % 10;
    labels.push_back(static_cast<char>(label));
    for (size_t y = 0; y < kSide; ++y) {
      for (size_t x = 0; x < kSide; ++x) {
        const bool bar = y / 3 == label;
        pixels.push_back(static_cast<char>((bar ? 150 : 0) + noise() % 100));
      }
    }
  }
  const auto count = static_cast<uint32_t>(samples);
  WriteFile(stem + "-images-idx3-ubyte", IdxBytes({count, kSide, kSide}, pixels));
  WriteFile(stem + "-labels-idx1-ubyte", IdxBytes({count}, labels));
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  const char* base = std::getenv("TEST_TMPDIR");
  path_ = absl::StrCat(base != nullptr ? base : std::filesystem::temp_directory_path().c_str(),
                       "/muster-test-XXXXXX");
  if (mkdtemp(path_.data()) == nullptr) std::abort();
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void WriteFile(const std::string& path, absl::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) std::abort();
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string IdxBytes(const std::vector<uint32_t>& dimensions, absl::string_view elements) {
  std::string bytes = {'\0', '\0', '\x08', static_cast<char>(dimensions.size())};
  for (const uint32_t dimension : dimensions) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      bytes.push_back(static_cast<char>(dimension >> shift));
    }
  }
  absl::StrAppend(&bytes, elements);
  return bytes;
}

void WriteSyntheticDataset(const std::string& directory, size_t training_samples,
                           size_t test_samples) {
  WriteSplit(directory + "/train", training_samples);
  WriteSplit(directory + "/t10k", test_samples);
}

uint8_t CifarPixel(size_t record, size_t y, size_t x, size_t channel) {
  return static_cast<uint8_t>(7 * record + 5 * y + 3 * x + 80 * channel);
}

std::string CifarBytes(size_t records, int classes, bool coarse_labels) {
  constexpr size_t kSide = 32;
  std::string bytes;
  for (size_t i = 0; i < records; ++i) {
    if (coarse_labels) bytes.push_back(static_cast<char>(i % 20));
    bytes.push_back(static_cast<char>(i % static_cast<size_t>(classes)));
    for (size_t channel = 0; channel < 3; ++channel) {
      for (size_t y = 0; y < kSide; ++y) {
        for (size_t x = 0; x < kSide; ++x) {
          bytes.push_back(static_cast<char>(CifarPixel(i, y, x, channel)));
        }
      }
    }
  }
  return bytes;
}

void WriteCifar10(const std::string& directory, size_t training_batch, size_t test_samples) {
  for (int i = 1; i <= 5; ++i) {
    WriteFile(absl::StrCat(directory, "/data_batch_", i, ".bin"),
              CifarBytes(training_batch, 10, false));
  }
  WriteFile(directory + "/test_batch.bin", CifarBytes(test_samples, 10, false));
}

}  // namespace muster::data
