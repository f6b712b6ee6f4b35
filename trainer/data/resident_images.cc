#include "trainer/data/resident_images.h"

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "glog/logging.h"

namespace muster::data {

kernels::DeviceMemory MakeResident(const ImageDataset& dataset, kernels::Device& device,
                                   double share) {
  if (device.host_memory() || dataset.size() == 0 || dataset.image(0) == nullptr) return {};
  const DatasetInfo& info = dataset.info();
  const size_t bytes =
      dataset.size() * static_cast<size_t>(info.height * info.width * info.channels);
  const size_t free_bytes = device.free_bytes();
  if (static_cast<double>(bytes) > share * static_cast<double>(free_bytes)) {
    LOG(INFO) << "keeping images in host memory: they need " << bytes << " bytes, and "
              << device.name() << " has " << free_bytes << " free";
    return {};
  }
  absl::StatusOr<kernels::DeviceMemory> memory =
      device.Allocate(bytes, "the images of the dataset");
  if (!memory.ok()) {
    LOG(WARNING) << "keeping images in host memory: " << memory.status().message();
    return {};
  }
  device.CopyToDevice(memory->data(), dataset.image(0), bytes);
  LOG(INFO) << "copied images to " << device.name() << " memory: " << bytes << " bytes";
  return *std::move(memory);
}

}  // namespace muster::data
