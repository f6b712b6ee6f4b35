// CIFAR-10 and CIFAR-100 in their binary layout (https://www.cs.toronto.edu/~kriz/cifar.html).
//
// A file is records without a header: the label (CIFAR-100: coarse label, fine label), then 32x32
// pixels in three planes: red, green, blue.
#ifndef MUSTER_TRAINER_DATA_CIFAR_H_
#define MUSTER_TRAINER_DATA_CIFAR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/image_dataset.h"

namespace muster::data {

// Opens data_batch_1.bin to data_batch_5.bin or test_batch.bin, in the folder `path` or in its
// subfolder cifar-10-batches-bin. Any number of images, the same in each training file. They are
// converted to HWC once into cache_dir and mapped from there by all ranks of a machine. NOT_FOUND
// and DATA_LOSS name the file.
absl::StatusOr<std::unique_ptr<ImageDataset>> OpenCifar10(const DatasetInfo& info,
                                                          const std::string& path, Split split,
                                                          const std::string& cache_dir);

// The same for train.bin or test.bin, in `path` or its subfolder cifar-100-binary, with the fine
// labels.
absl::StatusOr<std::unique_ptr<ImageDataset>> OpenCifar100(const DatasetInfo& info,
                                                           const std::string& path, Split split,
                                                           const std::string& cache_dir);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_CIFAR_H_
