// A data set's images in a device's memory, where they need not be brought to it batch by batch.
#ifndef MUSTER_TRAINER_DATA_RESIDENT_IMAGES_H_
#define MUSTER_TRAINER_DATA_RESIDENT_IMAGES_H_

#include "kernels/device.h"
#include "trainer/data/image_dataset.h"

namespace muster::data {

// Of the device's free memory, at most; the rest is for what may still be allocated.
inline constexpr double kResidentShare = 0.25;

// All images, one after another as the data set has them. Nothing where the device's memory is the
// process's, where images are stored in another form than decoded, and where they take more than
// `share` of the memory that the device has free.
kernels::DeviceMemory MakeResident(const ImageDataset& dataset, kernels::Device& device,
                                   double share = kResidentShare);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_RESIDENT_IMAGES_H_
