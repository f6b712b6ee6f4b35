// For tests: data sets in IDX files, small enough to make on the spot.
#ifndef MUSTER_WORKER_DATA_TESTING_H_
#define MUSTER_WORKER_DATA_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace muster::data {

// An empty folder that goes with the object.
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

// The bytes of an IDX file; dimensions * elements may disagree, for tests of damage.
std::string IdxBytes(const std::vector<uint32_t>& dimensions, absl::string_view elements);

// The four files of a data set of 28x28 images with ten classes that a small network can learn:
// each class is a bright bar at a place of its own over noise. Sample i has label i % 10.
void WriteSyntheticDataset(const std::string& directory, size_t training_samples,
                           size_t test_samples);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_TESTING_H_
