#include "trainer/data/input_writer.h"

#include "common/status.h"

namespace muster::data {
namespace {

// Makes `memory` have at least `bytes`.
absl::Status Reserve(kernels::Device& device, size_t bytes, kernels::DeviceMemory& memory) {
  if (memory.bytes() >= bytes) return absl::OkStatus();
  ASSIGN_OR_RETURN(memory, device.Allocate(bytes, "a batch of images"));
  return absl::OkStatus();
}

}  // namespace

InputWriter::InputWriter(const DatasetInfo& info, kernels::Device& device)
    : device_(device), mean_(info.mean), standard_deviation_(info.standard_deviation) {}

absl::Status InputWriter::WriteFactors() {
  std::vector<float> scale, shift;
  for (size_t c = 0; c < mean_.size(); ++c) {
    scale.push_back(1.0f / (255.0f * standard_deviation_[c]));
    shift.push_back(-mean_[c] / standard_deviation_[c]);
  }
  const size_t bytes = scale.size() * sizeof(float);
  RETURN_IF_ERROR(Reserve(device_, bytes, shift_));
  RETURN_IF_ERROR(Reserve(device_, bytes, scale_));
  device_.CopyToDevice(shift_.data(), shift.data(), bytes);
  device_.CopyToDevice(scale_.data(), scale.data(), bytes);
  return absl::OkStatus();
}

absl::StatusOr<const uint8_t*> InputWriter::Pixels(const Batch& batch) {
  if (batch.resident != nullptr) return batch.resident;
  if (device_.host_memory()) return batch.pixels.data() - batch.first_pixel;
  RETURN_IF_ERROR(Reserve(device_, batch.first_pixel + batch.pixels.size(), pixels_));
  device_.CopyToDevice(pixels_.as<uint8_t>() + batch.first_pixel, batch.pixels.data(),
                       batch.pixels.size());
  return pixels_.as<uint8_t>();
}

absl::StatusOr<const kernels::ImageTransformParams*> InputWriter::Images(const Batch& batch) {
  if (device_.host_memory()) return batch.images.data();
  const size_t bytes = batch.images.size() * sizeof(kernels::ImageTransformParams);
  RETURN_IF_ERROR(Reserve(device_, bytes, images_));
  device_.CopyToDevice(images_.data(), batch.images.data(), bytes);
  return images_.as<kernels::ImageTransformParams>();
}

absl::Status InputWriter::Write(const Batch& batch, float* input, int32_t* labels) {
  if (scale_.bytes() == 0) RETURN_IF_ERROR(WriteFactors());
  const kernels::ImageBatchShape shape = {static_cast<int64_t>(batch.samples), batch.size.height,
                                          batch.size.width, static_cast<int64_t>(mean_.size())};
  const uint8_t* pixels = nullptr;
  const kernels::ImageTransformParams* images = nullptr;
  if (input != nullptr) {
    ASSIGN_OR_RETURN(pixels, Pixels(batch));
    ASSIGN_OR_RETURN(images, Images(batch));
  }
  device_.CopyToDevice(labels, batch.labels.data(), batch.labels.size() * sizeof(int32_t));
  if (batch.copied != nullptr) batch.copied->Record();
  if (input != nullptr) {
    device_.kernels().load_images(shape, pixels, images, scale_.as<float>(), shift_.as<float>(),
                                  input);
  }
  return absl::OkStatus();
}

}  // namespace muster::data
