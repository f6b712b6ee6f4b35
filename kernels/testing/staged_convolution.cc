#include "kernels/testing/staged_convolution.h"

#include <list>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/half.h"

namespace muster::kernels {
namespace {

// Device copies of a call's arrays.
class Staging {
 public:
  explicit Staging(Device& device) : device_(device) {}

  // Returns a copy of the array; null for null.
  template <typename T>
  T* Copy(T* host, int64_t count, size_t element_bytes) {
    if (host == nullptr) return nullptr;
    const size_t bytes = static_cast<size_t>(count) * element_bytes;
    void* const data = Take(bytes);
    device_.CopyToDevice(data, host, bytes);
    return static_cast<T*>(data);
  }
  // The same, and copies the content back at the end.
  template <typename T>
  T* Output(T* host, int64_t count, size_t element_bytes) {
    T* const data = Copy(host, count, element_bytes);
    if (data != nullptr) {
      outputs_.push_back({host, data, static_cast<size_t>(count) * element_bytes});
    }
    return data;
  }
  void Finish() {
    for (const auto& [host, data, bytes] : outputs_) device_.CopyToHost(host, data, bytes);
    EXPECT_TRUE(device_.Synchronize().ok()) << device_.Synchronize();
  }

 private:
  struct Pair {
    void* host;
    void* data;
    size_t bytes;
  };

  void* Take(size_t bytes) {
    auto memory = device_.Allocate(bytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return memory.ok() ? memory_.emplace_back(*std::move(memory)).data() : nullptr;
  }

  Device& device_;
  std::list<DeviceMemory> memory_;
  std::vector<Pair> outputs_;
};

void CastOnHost(DataType from, const void* x, DataType to, void* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) StoreElement(to, LoadElement(from, x, i), y, i);
}

class StagedConvolution final : public Convolution {
 public:
  StagedConvolution(Device& device, const ConvolutionShape& shape,
                    const ConvolutionOptions& options, std::unique_ptr<Convolution> convolution,
                    DeviceMemory workspace)
      : device_(device),
        shape_(shape),
        options_(options),
        convolution_(std::move(convolution)),
        workspace_(std::move(workspace)) {}

  int64_t weights_elements() const override { return convolution_->weights_elements(); }
  std::string weights_layout() const override { return convolution_->weights_layout(); }
  std::string description() const override { return convolution_->description(); }
  size_t workspace_bytes() const override { return 0; }
  void ImportWeights(const float* canonical, float* weights) const override {
    convolution_->ImportWeights(canonical, weights);
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    convolution_->ExportWeights(weights, canonical);
  }

  void Forward(int64_t samples, const void* x, const void* weights, const Epilogue& epilogue,
               void* y, void*) override {
    Staging staging(device_);
    const int64_t y_count = samples * shape_.output_elements();
    const size_t y_bytes = SizeOf(options_.y_type);
    const Epilogue staged = {
        .scale = staging.Copy(epilogue.scale, shape_.out_channels, sizeof(float)),
        .shift = staging.Copy(epilogue.shift, shape_.out_channels, sizeof(float)),
        .addend = staging.Copy(epilogue.addend, y_count, y_bytes),
        .activation = epilogue.activation};
    convolution_->Forward(samples, X(staging, samples, x), Weights(staging, weights), staged,
                          staging.Output(y, y_count, y_bytes), workspace_.data());
    staging.Finish();
  }
  void BackwardData(int64_t samples, const void* dy, const void* weights, void* dx,
                    void*) override {
    Staging staging(device_);
    const ConvolutionShape shape = options_.compact_data_gradient ? shape_.Compact() : shape_;
    convolution_->BackwardData(
        samples, Dy(staging, samples, dy), Weights(staging, weights),
        staging.Output(dx, samples * shape.input_elements(), SizeOf(options_.x_type)),
        workspace_.data());
    staging.Finish();
  }
  void BackwardWeights(int64_t samples, const void* x, const void* dy, void* dweights, float* dbias,
                       void*) override {
    Staging staging(device_);
    // The gradient in the convolution's type.
    const DataType type = convolution_->dweights_type();
    std::vector<float> typed(weights_elements());
    CastOnHost(DataType::kFloat32, dweights, type, typed.data(), weights_elements());
    convolution_->BackwardWeights(
        samples, X(staging, samples, x), Dy(staging, samples, dy), Dweights(staging, typed.data()),
        staging.Output(dbias, shape_.out_channels, sizeof(float)), workspace_.data());
    staging.Finish();
    CastOnHost(type, typed.data(), DataType::kFloat32, dweights, weights_elements());
  }

 private:
  const void* X(Staging& staging, int64_t samples, const void* x) const {
    return staging.Copy(x, samples * shape_.input_elements(), SizeOf(options_.x_type));
  }
  const void* Dy(Staging& staging, int64_t samples, const void* dy) const {
    return staging.Copy(dy, samples * shape_.output_elements(), SizeOf(options_.y_type));
  }
  // The weights in the convolution's type.
  const void* Weights(Staging& staging, const void* weights) const {
    const DataType type = convolution_->weights_type();
    std::vector<float> typed(weights_elements());
    CastOnHost(DataType::kFloat32, weights, type, typed.data(), weights_elements());
    return staging.Copy(static_cast<const void*>(typed.data()), weights_elements(), SizeOf(type));
  }
  void* Dweights(Staging& staging, void* typed) const {
    return staging.Output(typed, weights_elements(), SizeOf(convolution_->dweights_type()));
  }
  Device& device_;
  const ConvolutionShape shape_;
  const ConvolutionOptions options_;
  const std::unique_ptr<Convolution> convolution_;
  const DeviceMemory workspace_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Convolution>> MakeStagedConvolution(
    Device& device, const ConvolutionShape& shape, const ConvolutionOptions& options) {
  absl::StatusOr<std::unique_ptr<Convolution>> made = device.MakeConvolution(shape, options);
  if (!made.ok()) return made.status();
  const std::vector<unsigned char> garbage((*made)->workspace_bytes(), 0xff);
  absl::StatusOr<DeviceMemory> workspace = device.Allocate(garbage.size());
  if (!workspace.ok()) return workspace.status();
  device.CopyToDevice(workspace->data(), garbage.data(), garbage.size());
  return std::make_unique<StagedConvolution>(device, shape, options, *std::move(made),
                                             *std::move(workspace));
}

}  // namespace muster::kernels
