// Measures how many images of a folder one core prepares for training: decoded, randomly cropped,
// resized, flipped and normalized, in batches. loader_bench.py compares it with torchvision.
//
//   loader_bench FOLDER [--size=224] [--batch=32] [--threads=1] [--epochs=3] [--views=1]
//                [--dataset=image_folder] [--cache-dir=DIR] [--gpu]
//
// With --gpu only the CPU work of a training on a GPU: images of a folder are not normalized, and
// images of datasets that are decoded in memory are only gathered.
//
// Prints one line of JSON: images_per_second, images_per_cpu_second (CPU time of all threads), and,
// without --gpu, the CPU time of one thread per view in microseconds: for decoding, for the whole
// transform, and for normalizing.
#include <chrono>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "common/status.h"
#include "kernels/host_memory_device.h"
#include "nlohmann/json.hpp"
#include "trainer/data/dataset.h"
#include "trainer/data/input_writer.h"
#include "trainer/data/loader.h"

namespace muster::data {
namespace {

struct Flags {
  std::string data;
  uint64_t batch = 32;
  uint64_t epochs = 3;
  std::string dataset = "image_folder";
  std::string cache;  // for datasets that are decompressed
  bool gpu = false;
  LoaderOptions loader;
};

// A device that the loader treats as a GPU.
class FarDevice final : public kernels::HostMemoryDevice {
 public:
  std::string name() const override { return "far"; }
  bool host_memory() const override { return false; }
  const kernels::KernelTable& kernels() const override { return kernels::CpuKernels(); }
  absl::StatusOr<std::unique_ptr<kernels::Convolution>> MakeConvolution(
      const kernels::ConvolutionShape&, const kernels::ConvolutionOptions&) override {
    return absl::UnimplementedError("this device cannot compute");
  }
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// CPU time of the process or of this thread.
double CpuSeconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

absl::Status TimeLoader(const ImageDataset& dataset, const Flags& flags, nlohmann::json& result) {
  ASSIGN_OR_RETURN(const StepMap steps, StepMap::Create(dataset.size(), flags.batch, false));
  LoaderOptions options = flags.loader;
  options.end_step = (flags.epochs + 1) * steps.steps_per_epoch();
  FarDevice gpu;
  if (flags.gpu) options.device = &gpu;
  InputWriter writer(dataset.info());
  std::vector<float> floats;
  std::vector<int32_t> labels;
  const auto loader = Loader::ForTraining(&dataset, steps, options);
  double start = 0, cpu_start = 0;
  size_t images = 0;
  while (true) {
    ASSIGN_OR_RETURN(const Batch* batch, loader->Next());
    if (batch == nullptr) break;
    if (!flags.gpu) {
      if (batch->pixels.size() > floats.size()) floats.resize(batch->pixels.size());
      if (batch->samples > labels.size()) labels.resize(batch->samples);
      RETURN_IF_ERROR(writer.Write(*batch, floats.data(), labels.data()));
    }
    // The first epoch reads the files into memory.
    if (batch->step + 1 == steps.steps_per_epoch()) {
      start = Now();
      cpu_start = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
    } else if (batch->epoch > 0) {
      images += batch->samples;
    }
  }
  result["images_per_second"] = static_cast<double>(images) / (Now() - start);
  result["images_per_cpu_second"] =
      static_cast<double>(images) / (CpuSeconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_start);
  return absl::OkStatus();
}

// Microseconds per image, averaged over the dataset.
template <typename Body>
absl::StatusOr<double> TimeEach(const ImageDataset& dataset, const Body& body) {
  const double start = CpuSeconds(CLOCK_THREAD_CPUTIME_ID);
  for (uint32_t sample = 0; sample < dataset.size(); ++sample) RETURN_IF_ERROR(body(sample));
  return (CpuSeconds(CLOCK_THREAD_CPUTIME_ID) - start) * 1e6 / static_cast<double>(dataset.size());
}

absl::Status TimeParts(const ImageDataset& dataset, const Flags& flags, nlohmann::json& result) {
  const TransformOptions& options = flags.loader.transform;
  const auto reader = dataset.NewReader();
  const auto decode = [&](uint32_t sample) -> absl::Status {
    ASSIGN_OR_RETURN(const ImageSize stored, reader->Open(sample));
    const Rectangle crop = DrawCrop(*options.augment.random_resized_crop, options.augment.seed,
                                    stored, {1, sample, 0});
    const Region wanted{static_cast<double>(crop.top), static_cast<double>(crop.left),
                        static_cast<double>(crop.height), static_cast<double>(crop.width)};
    return reader->Decode(wanted, options.size).status();
  };
  ImageTransform transform(&dataset, options);
  std::vector<uint8_t> pixels(options.size.height * options.size.width * dataset.info().channels);
  const auto all = [&](uint32_t sample) {
    kernels::ImageTransformParams params;
    return transform.Apply(1, sample, 1, pixels.data(), &params);
  };
  InputWriter writer(dataset.info());
  std::vector<float> floats(pixels.size());
  const kernels::ImageTransformParams whole =
      kernels::WholeImage({1, options.size.height, options.size.width, dataset.info().channels}, 0);
  const int32_t label = 0;
  Batch batch;
  batch.samples = 1;
  batch.size = options.size;
  batch.images = {&whole, 1};
  batch.labels = {&label, 1};
  batch.pixels = pixels;
  const auto normalise = [&](uint32_t) {
    int32_t written = 0;
    return writer.Write(batch, floats.data(), &written);
  };
  ASSIGN_OR_RETURN(result["decode_us"], TimeEach(dataset, decode));
  ASSIGN_OR_RETURN(result["transform_us"], TimeEach(dataset, all));
  ASSIGN_OR_RETURN(result["normalize_us"], TimeEach(dataset, normalise));
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  DatasetOptions data;
  data.name = flags.dataset;
  data.path = flags.data;
  ASSIGN_OR_RETURN(const auto dataset, OpenDataset(data, Split::kTrain, flags.cache));
  nlohmann::json result;
  RETURN_IF_ERROR(TimeLoader(*dataset, flags, result));
  if (!flags.gpu) RETURN_IF_ERROR(TimeParts(*dataset, flags, result));
  std::cout << result << '\n';
  return absl::OkStatus();
}

}  // namespace
}  // namespace muster::data

int main(int argc, char** argv) {
  muster::data::Flags flags;
  muster::data::TransformOptions& transform = flags.loader.transform;
  int64_t size = 224;
  CLI::App app;
  app.add_option("folder", flags.data)->required();
  app.add_option("--size", size);
  app.add_option("--batch", flags.batch);
  app.add_option("--threads", flags.loader.threads);
  app.add_option("--epochs", flags.epochs);
  app.add_option("--views", flags.loader.views);
  app.add_option("--dataset", flags.dataset);
  app.add_option("--cache-dir", flags.cache);
  app.add_flag("--gpu", flags.gpu);
  CLI11_PARSE(app, argc, argv);
  transform.size = {size, size};
  transform.augment.flip = true;
  transform.augment.random_resized_crop.emplace();
  const absl::Status status = muster::data::Run(flags);
  if (!status.ok()) std::cerr << status << '\n';
  return status.ok() ? 0 : 1;
}
