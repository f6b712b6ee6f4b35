#include "trainer/data/input_writer.h"

#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/device.h"
#include "kernels/testing/guarded_device.h"
#include "kernels/testing/limited_device.h"
#include "trainer/data/fake_dataset.h"
#include "trainer/data/loader.h"
#include "trainer/data/resident_images.h"

namespace muster::data {
namespace {

DatasetInfo Info(std::vector<float> mean, std::vector<float> deviation) {
  DatasetInfo info;
  info.channels = static_cast<int64_t>(mean.size());
  info.mean = std::move(mean);
  info.standard_deviation = std::move(deviation);
  return info;
}

// A batch of finished images.
struct Finished {
  Finished(const std::vector<uint8_t>& pixels, ImageSize size, size_t samples)
      : images(samples), labels(samples) {
    const int64_t sample_bytes = static_cast<int64_t>(pixels.size() / samples);
    const kernels::ImageBatchShape shape{1, size.height, size.width,
                                         sample_bytes / (size.height * size.width)};
    for (size_t sample = 0; sample < samples; ++sample) {
      images[sample] = kernels::WholeImage(shape, static_cast<int64_t>(sample) * sample_bytes);
      labels[sample] = static_cast<int32_t>(3 * sample);
    }
    batch.samples = samples;
    batch.size = size;
    batch.pixels = pixels;
    batch.images = images;
    batch.labels = labels;
  }
  std::vector<kernels::ImageTransformParams> images;
  std::vector<int32_t> labels;
  Batch batch;
};

TEST(InputWriterTest, ScalesByChannel) {
  std::vector<float> out(4);
  std::vector<int32_t> labels(1, -1);
  const std::vector<uint8_t> pixels = {0, 0, 255, 255};
  const Finished finished(pixels, {1, 2}, 1);
  InputWriter writer(Info({0.5f, 0.0f}, {0.25f, 1.0f}));
  ASSERT_TRUE(writer.Write(finished.batch, out.data(), labels.data()).ok());
  EXPECT_FLOAT_EQ(out[0], -2.0f);
  EXPECT_FLOAT_EQ(out[1], 0.0f);
  EXPECT_FLOAT_EQ(out[2], 2.0f);
  EXPECT_FLOAT_EQ(out[3], 1.0f);
  EXPECT_EQ(labels[0], 0);
}

TEST(InputWriterTest, HandlesAnyLengthWithOneAndThreeChannels) {
  const std::vector<float> means = {0.4f, 0.5f, 0.6f}, deviations = {0.2f, 0.25f, 0.3f};
  for (const size_t channels : {1u, 3u}) {
    const DatasetInfo info = Info({means.begin(), means.begin() + channels},
                                  {deviations.begin(), deviations.begin() + channels});
    for (const size_t width : {1u, 7u, 16u, 50u, 784u}) {
      std::vector<uint8_t> pixels(width * channels);
      for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 7);
      std::vector<float> out(pixels.size());
      std::vector<int32_t> labels(1);
      const Finished finished(pixels, {1, static_cast<int64_t>(width)}, 1);
      ASSERT_TRUE(InputWriter(info).Write(finished.batch, out.data(), labels.data()).ok());
      for (size_t i = 0; i < pixels.size(); ++i) {
        const size_t c = i % channels;
        ASSERT_NEAR(out[i], (pixels[i] / 255.0 - means[c]) / deviations[c], 2e-6);
      }
    }
  }
}

TEST(InputWriterTest, ZeroesExactlyTheErasedRectangles) {
  const ImageSize size{5, 6};
  const std::vector<uint8_t> pixels(3 * 5 * 6 * 2, 200);
  Finished finished(pixels, size, 3);
  const std::vector<Rectangle> erasures = {{1, 2, 3, 4}, {}, {4, 0, 1, 1}};
  for (size_t sample = 0; sample < erasures.size(); ++sample) {
    finished.images[sample].erased_top = erasures[sample].top;
    finished.images[sample].erased_left = erasures[sample].left;
    finished.images[sample].erased_height = erasures[sample].height;
    finished.images[sample].erased_width = erasures[sample].width;
  }
  std::vector<float> out(pixels.size(), -1);
  std::vector<int32_t> labels(3);
  InputWriter writer(Info({0.5f, 0.5f}, {1, 1}));
  ASSERT_TRUE(writer.Write(finished.batch, out.data(), labels.data()).ok());
  for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
    const int64_t x = i / 2 % 6, y = i / 12 % 5, sample = i / 60;
    const Rectangle& erasure = erasures[sample];
    const bool erased = y >= erasure.top && y < erasure.top + erasure.height && x >= erasure.left &&
                        x < erasure.left + erasure.width;
    EXPECT_EQ(out[i] == 0, erased) << i;
  }
}

// 50 noisy images of 13x11.
class Noise final : public ArrayDataset {
 public:
  static std::unique_ptr<Noise> Make(int64_t channels) {
    DatasetInfo info = Info(std::vector<float>(channels, 0.4f), std::vector<float>(channels, 0.3f));
    info.height = 13;
    info.width = 11;
    std::vector<uint8_t> pixels(50 * 13 * 11 * channels), labels(50);
    for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * i * 31 >> 3);
    for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<uint8_t>(i % 7);
    return std::unique_ptr<Noise>(new Noise(info, std::move(pixels), std::move(labels)));
  }

 private:
  Noise(const DatasetInfo& info, std::vector<uint8_t> pixels, std::vector<uint8_t> labels)
      : ArrayDataset(info, pixels, labels),
        pixels_(std::move(pixels)),
        labels_(std::move(labels)) {}
  const std::vector<uint8_t> pixels_;  // keeps its address when moved
  const std::vector<uint8_t> labels_;
};

// 50 images that are not stored decoded.
class EncodedImages final : public FakeDataset {
 public:
  EncodedImages()
      : FakeDataset(50, {{13, 11}, {30, 40}}, 3), info_(Info({.4f, .4f, .4f}, {.3f, .3f, .3f})) {}
  const DatasetInfo& info() const override { return info_; }

 private:
  const DatasetInfo info_;
};

struct Input {
  std::vector<float> values;
  std::vector<int32_t> labels;
};

// Returns all batches of two epochs, each written as two micro-batches.
std::vector<Input> Written(const ImageDataset& dataset, LoaderOptions options,
                           kernels::Device& device, double share) {
  const kernels::DeviceMemory resident = MakeResident(dataset, device, share);
  const bool decoded = dataset.image(0) != nullptr;
  EXPECT_EQ(resident.bytes() > 0, share > 0 && decoded && !device.host_memory());
  options.device = &device;
  options.resident = resident.as<uint8_t>();
  const StepMap steps = *StepMap::Create(dataset.size(), 12, /*drop_last=*/false);
  options.end_step = 2 * steps.steps_per_epoch();
  options.threads = 2;
  const auto loader = Loader::ForTraining(&dataset, steps, options);
  InputWriter writer(dataset.info(), device);
  const ImageSize size = options.transform.size;
  const size_t sample_elements = size.height * size.width * dataset.info().channels;
  const auto values = device.Allocate(24 * sample_elements * sizeof(float));
  const auto labels = device.Allocate(24 * sizeof(int32_t));
  EXPECT_TRUE(values.ok() && labels.ok());
  std::vector<Input> inputs;
  while (true) {
    const auto batch = loader->Next();
    EXPECT_TRUE(batch.ok()) << batch.status();
    if (!batch.ok() || *batch == nullptr) return inputs;
    EXPECT_EQ((*batch)->pixels.empty(), resident.bytes() > 0);
    Input& input = inputs.emplace_back();
    for (uint32_t i = 0; i < 2; ++i) {
      const Batch slice = (*batch)->Slice(i, 2);
      EXPECT_TRUE(writer.Write(slice, values->as<float>(), labels->as<int32_t>()).ok());
      const size_t before = input.labels.size();
      input.values.resize((before + slice.samples) * sample_elements);
      input.labels.resize(before + slice.samples);
      device.CopyToHost(input.values.data() + before * sample_elements, values->data(),
                        slice.samples * sample_elements * sizeof(float));
      device.CopyToHost(input.labels.data() + before, labels->data(),
                        slice.samples * sizeof(int32_t));
    }
  }
}

std::vector<LoaderOptions> AllOptions() {
  std::vector<LoaderOptions> all(4);
  for (LoaderOptions& options : all) {
    options.seed = 5;
    options.transform.size = {13, 11};
    options.transform.augment.flip = true;
    options.transform.augment.seed = 6;
    options.transform.augment.random_erasing.emplace();
  }
  all[1].transform.augment.crop_padding = 3;
  all[2].transform.augment.random_resized_crop.emplace();
  all[2].views = 2;
  all[3].transform.size = {20, 17};
  all[3].transform.augment.crop_padding = 2;
  return all;
}

TEST(InputWriterTest, ReportsThatTheDeviceHasNoMemory) {
  const std::vector<uint8_t> pixels = {0, 0, 255, 255};
  const Finished finished(pixels, {1, 2}, 1);
  std::vector<float> out(4);
  std::vector<int32_t> labels(1, -1);
  kernels::LimitedDevice device;
  const auto write = [&] {
    InputWriter writer(Info({0.5f, 0.0f}, {0.25f, 1.0f}), device);
    return writer.Write(finished.batch, out.data(), labels.data());
  };
  EXPECT_EQ(AllocationsNeeded(device, write), 4);  // scale, shift, pixels and images
  EXPECT_FLOAT_EQ(out[0], -2.0f);
}

TEST(InputWriterTest, EncodedImagesAreFinishedByTheLoader) {
  const EncodedImages dataset;
  for (const LoaderOptions& options : AllOptions()) {
    const std::vector<Input> expected = Written(dataset, options, kernels::CpuDevice(), 0);
    const std::vector<Input> actual = Written(dataset, options, kernels::GuardedDevice(), 0.25);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(actual[i].labels, expected[i].labels);
      EXPECT_EQ(actual[i].values, expected[i].values);
    }
  }
}

// The network's input does not depend on where images are stored and which device transforms them.
TEST(InputWriterTest, DevicesGiveTheSameInputAsTheCpu) {
  const auto on_host = kernels::OpenCudaDevice(0, "kernels/cuda/testing/libmuster-cuda-on-host.so");
  ASSERT_TRUE(on_host.ok()) << on_host.status();
  for (const int64_t channels : {1, 3}) {
    const auto dataset = Noise::Make(channels);
    for (const LoaderOptions& options : AllOptions()) {
      const std::vector<Input> expected = Written(*dataset, options, kernels::CpuDevice(), 0);
      ASSERT_EQ(expected.size(), 10);
      for (const double share : {0.0, 0.25}) {
        const auto guarded = Written(*dataset, options, kernels::GuardedDevice(), share);
        const auto cuda = Written(*dataset, options, **on_host, share);
        ASSERT_EQ(guarded.size(), expected.size());
        ASSERT_EQ(cuda.size(), expected.size());
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_EQ(guarded[i].labels, expected[i].labels);
          EXPECT_EQ(cuda[i].labels, expected[i].labels);
          EXPECT_EQ(guarded[i].values, expected[i].values);
          ASSERT_EQ(cuda[i].values.size(), expected[i].values.size());
          // A few bytes are rounded to the adjacent value.
          const float byte = 1 / (255 * 0.3f);
          size_t differing = 0;
          for (size_t k = 0; k < expected[i].values.size(); ++k) {
            const float difference = std::abs(cuda[i].values[k] - expected[i].values[k]);
            ASSERT_LE(difference, 1.01f * byte);
            differing += difference > 0.01f * byte;
          }
          EXPECT_LE(differing, expected[i].values.size() / 100);
        }
      }
    }
  }
}

}  // namespace
}  // namespace muster::data
