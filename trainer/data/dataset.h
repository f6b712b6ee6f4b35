// Registry of the datasets that a spec can name.
#ifndef MUSTER_TRAINER_DATA_DATASET_H_
#define MUSTER_TRAINER_DATA_DATASET_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/data/cache_file.h"
#include "trainer/data/image_dataset.h"

namespace muster::data {

struct DatasetOptions {
  std::string name;
  std::string path;  // folder with the files
  // Override the dataset's own values unless empty.
  std::vector<float> mean;
  std::vector<float> standard_deviation;
};

// Returns the properties of a dataset that are known without its files; for image_folder, size and
// classes are unknown. INVALID_ARGUMENT lists the known names.
absl::StatusOr<DatasetInfo> FindDataset(absl::string_view name);

// Opens one split. Files that need conversion are converted, and folders of images are indexed,
// once into the cache, for all processes of the machine; reports progress. INVALID_ARGUMENT for an
// unknown name, or if the number of means or deviations is not the number of channels. NOT_FOUND
// and DATA_LOSS name the file; DATA_LOSS: labels out of range, images of another size, or files
// that are too short or too long. DEADLINE_EXCEEDED: see MakeCacheFile.
absl::StatusOr<std::unique_ptr<ImageDataset>> OpenDataset(const DatasetOptions& options,
                                                          Split split, const Cache& cache);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_DATASET_H_
