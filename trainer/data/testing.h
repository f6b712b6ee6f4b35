// For tests: small datasets written to files.
#ifndef MUSTER_TRAINER_DATA_TESTING_H_
#define MUSTER_TRAINER_DATA_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace muster::data {

// An empty folder that is deleted with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void WriteFile(const std::string& path, absl::string_view bytes);
std::string ReadFile(const std::string& path);

// Returns an IDX file; dimensions and elements may be inconsistent, to test damaged files.
std::string IdxBytes(const std::vector<uint32_t>& dimensions, absl::string_view elements);

// Writes the four files of a dataset of 28x28 images with ten classes that a small network can
// learn: each class is a bright bar at its own position over noise. Sample i has label i % 10.
void WriteSyntheticDataset(const std::string& directory, size_t training_samples,
                           size_t test_samples);

// Returns a file in CIFAR's binary format. Record i has label i % classes, preceded by the coarse
// label i % 20 if requested, and its pixel (y, x) of channel c is CifarPixel(i, y, x, c).
std::string CifarBytes(size_t records, int classes, bool coarse_labels);
uint8_t CifarPixel(size_t record, size_t y, size_t x, size_t channel);

// Writes the six files of CIFAR-10, with `training_batch` images in each of the five training files
// and `test_samples` images in the test file.
void WriteCifar10(const std::string& directory, size_t training_batch, size_t test_samples);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_TESTING_H_
