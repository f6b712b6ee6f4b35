// The data sets that a spec can name.
#ifndef MUSTER_TRAINER_DATA_DATASET_H_
#define MUSTER_TRAINER_DATA_DATASET_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/data/image_dataset.h"

namespace muster::data {

struct DatasetOptions {
  std::string name;
  std::string path;  // the folder that holds the files
  // In place of the data set's own; empty: those.
  std::vector<float> mean;
  std::vector<float> standard_deviation;
};

// What is known of a data set without its files: of an image_folder neither size nor classes.
// INVALID_ARGUMENT names the known ones.
absl::StatusOr<DatasetInfo> FindDataset(absl::string_view name);

// Opens one split. Files that must be converted first are so once into cache_dir, for all processes
// of the machine. INVALID_ARGUMENT for an unknown name and for another number of means or
// deviations than channels; NOT_FOUND and DATA_LOSS name the file: labels outside the data set's
// classes, images of another size and files too short or too long are DATA_LOSS.
absl::StatusOr<std::unique_ptr<ImageDataset>> OpenDataset(const DatasetOptions& options,
                                                          Split split,
                                                          const std::string& cache_dir);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_DATASET_H_
