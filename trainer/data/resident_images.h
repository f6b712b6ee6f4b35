// Keeps a dataset's images in device memory, so that batches need not copy them.
#ifndef MUSTER_TRAINER_DATA_RESIDENT_IMAGES_H_
#define MUSTER_TRAINER_DATA_RESIDENT_IMAGES_H_

#include "kernels/device.h"
#include "trainer/data/image_dataset.h"

namespace muster::data {

// Maximum fraction of the device's free memory; the rest is left for later allocations.
inline constexpr double kResidentShare = 0.25;

// Copies all images to device memory, contiguous and in the dataset's order. Returns nothing if
// device memory is host memory, if images are not stored decoded, or if they exceed `share` of the
// device's free memory.
kernels::DeviceMemory MakeResident(const ImageDataset& dataset, kernels::Device& device,
                                   double share = kResidentShare);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_RESIDENT_IMAGES_H_
