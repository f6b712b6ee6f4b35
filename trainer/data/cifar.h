// CIFAR-10 and CIFAR-100 in the binary format (https://www.cs.toronto.edu/~kriz/cifar.html).
//
// A file is a sequence of records without a header: the label (CIFAR-100: coarse label, fine
// label), then 32x32 pixels in three planes: red, green, blue.
#ifndef MUSTER_TRAINER_DATA_CIFAR_H_
#define MUSTER_TRAINER_DATA_CIFAR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/cache_file.h"
#include "trainer/data/image_dataset.h"

namespace muster::data {

// Opens data_batch_1.bin to data_batch_5.bin or test_batch.bin in the folder `path` or its
// subfolder cifar-10-batches-bin. The number of images is arbitrary but equal in all training
// files. They are converted to HWC once into the cache, which all ranks of a machine map. NOT_FOUND
// and DATA_LOSS name the file.
absl::StatusOr<std::unique_ptr<ImageDataset>> OpenCifar10(const DatasetInfo& info,
                                                          const std::string& path, Split split,
                                                          const Cache& cache);

// Opens train.bin or test.bin in `path` or its subfolder cifar-100-binary; uses the fine
// labels.
absl::StatusOr<std::unique_ptr<ImageDataset>> OpenCifar100(const DatasetInfo& info,
                                                           const std::string& path, Split split,
                                                           const Cache& cache);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_CIFAR_H_
