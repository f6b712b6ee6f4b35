// MNIST and similar datasets: two IDX files per split.
#ifndef MUSTER_TRAINER_DATA_IDX_DATASET_H_
#define MUSTER_TRAINER_DATA_IDX_DATASET_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/cache_file.h"
#include "trainer/data/image_dataset.h"

namespace muster::data {

// Opens {train,t10k}-images-idx3-ubyte and …-labels-idx1-ubyte, or the same with .gz, in the folder
// `path`. NOT_FOUND and DATA_LOSS name the file.
absl::StatusOr<std::unique_ptr<ImageDataset>> OpenIdxDataset(const DatasetInfo& info,
                                                             const std::string& path, Split split,
                                                             const Cache& cache);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_IDX_DATASET_H_
