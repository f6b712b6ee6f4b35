// The data sets that a spec can name, as arrays of images in memory.
#ifndef MUSTER_WORKER_DATA_DATASET_H_
#define MUSTER_WORKER_DATA_DATASET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/data/idx.h"

namespace muster::data {

enum class Split { kTrain, kTest };

// What is known of a data set without its files.
struct DatasetInfo {
  std::string name;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int64_t classes = 0;
  // Of pixels scaled to 0..1, by channel.
  std::vector<float> mean;
  std::vector<float> standard_deviation;
};

// INVALID_ARGUMENT names the known ones.
absl::StatusOr<DatasetInfo> FindDataset(absl::string_view name);

// One split: images as they are stored (uint8, HWC) with their labels. Movable; safe to read from
// any thread.
class ImageDataset {
 public:
  // Reads the split's files in the folder `path`. NOT_FOUND and DATA_LOSS name the file; labels
  // outside the data set's classes and images of another size are DATA_LOSS.
  static absl::StatusOr<ImageDataset> Open(const DatasetInfo& info, const std::string& path,
                                           Split split, const std::string& cache_dir);

  const DatasetInfo& info() const { return info_; }
  size_t size() const { return labels_.elements().size(); }
  size_t image_bytes() const { return image_bytes_; }
  const uint8_t* image(size_t i) const { return images_.elements().data() + i * image_bytes_; }
  int32_t label(size_t i) const { return labels_.elements()[i]; }

  // Hex, of the number of images, every label and some images spread over all: cheap, and different
  // for data that is not the same. Equal on every machine.
  std::string Digest() const;

 private:
  ImageDataset(DatasetInfo info, IdxFile images, IdxFile labels);

  DatasetInfo info_;
  IdxFile images_;
  IdxFile labels_;
  size_t image_bytes_ = 0;
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_DATASET_H_
