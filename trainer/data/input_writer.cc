#include "trainer/data/input_writer.h"

#include <new>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::data {
namespace {

kernels::DeviceMemory Allocate(kernels::Device& device, size_t bytes) {
  absl::StatusOr<kernels::DeviceMemory> memory = device.Allocate(bytes);
  if (!memory.ok()) throw std::bad_alloc();
  return *std::move(memory);
}

kernels::DeviceMemory OnDevice(kernels::Device& device, const std::vector<float>& values) {
  kernels::DeviceMemory memory = Allocate(device, values.size() * sizeof(float));
  device.CopyToDevice(memory.data(), values.data(), memory.bytes());
  return memory;
}

}  // namespace

InputWriter::InputWriter(const DatasetInfo& info, kernels::Device& device)
    : device_(device), channels_(static_cast<int64_t>(info.mean.size())) {
  std::vector<float> scale, shift;
  for (size_t c = 0; c < info.mean.size(); ++c) {
    scale.push_back(1.0f / (255.0f * info.standard_deviation[c]));
    shift.push_back(-info.mean[c] / info.standard_deviation[c]);
  }
  scale_ = OnDevice(device, scale);
  shift_ = OnDevice(device, shift);
}

const uint8_t* InputWriter::Pixels(const Batch& batch) {
  if (batch.resident != nullptr) return batch.resident;
  if (device_.host_memory()) return batch.pixels.data() - batch.first_pixel;
  const size_t bytes = batch.first_pixel + batch.pixels.size();
  if (pixels_.bytes() < bytes) pixels_ = Allocate(device_, bytes);
  device_.CopyToDevice(pixels_.as<uint8_t>() + batch.first_pixel, batch.pixels.data(),
                       batch.pixels.size());
  return pixels_.as<uint8_t>();
}

const kernels::ImageRow* InputWriter::Images(const Batch& batch) {
  if (device_.host_memory()) return batch.images.data();
  const size_t bytes = batch.images.size() * sizeof(kernels::ImageRow);
  if (images_.bytes() < bytes) images_ = Allocate(device_, bytes);
  device_.CopyToDevice(images_.data(), batch.images.data(), bytes);
  return images_.as<kernels::ImageRow>();
}

void InputWriter::Write(const Batch& batch, float* input, int32_t* labels) {
  const kernels::ImageRowsShape shape = {static_cast<int64_t>(batch.rows), batch.size.height,
                                         batch.size.width, channels_};
  const uint8_t* const pixels = input == nullptr ? nullptr : Pixels(batch);
  const kernels::ImageRow* const images = input == nullptr ? nullptr : Images(batch);
  device_.CopyToDevice(labels, batch.labels.data(), batch.labels.size() * sizeof(int32_t));
  if (batch.copied != nullptr) batch.copied->Record();
  if (input == nullptr) return;
  device_.kernels().load_images(shape, pixels, images, scale_.as<float>(), shift_.as<float>(),
                                input);
}

}  // namespace muster::data
