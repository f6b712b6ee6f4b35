// Loads a folder of images as training or evaluation does, for transform_test.py.
//
// The file --output receives the normalised samples as float32 NHWC; standard output one line of
// JSON per sample with its index and random choices.
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "common/status.h"
#include "nlohmann/json.hpp"
#include "trainer/data/dataset.h"
#include "trainer/data/input_writer.h"
#include "trainer/data/loader.h"

namespace muster::data {
namespace {

struct Flags {
  std::string data;
  std::string output;
  bool train = false;
  uint64_t batch = 4;
  bool random_erasing = false;
  LoaderOptions loader;
};

nlohmann::json Describe(const ImageDataset& dataset, const TransformOptions& options,
                        const SampleView& of, ImageSize stored) {
  const auto corners = [](const Rectangle& r) {
    return nlohmann::json{r.top, r.left, r.height, r.width};
  };
  const AugmentOptions& augment = options.augment;
  nlohmann::json line = {{"sample", of.sample}, {"label", dataset.label(of.sample)}};
  if (augment.random_resized_crop.has_value()) {
    line["crop"] = corners(DrawCrop(*augment.random_resized_crop, augment.seed, stored, of));
  }
  line["flip"] = DrawPlacement(augment, of).flip;
  if (augment.random_erasing.has_value()) {
    line["erasure"] = corners(DrawErasure(*augment.random_erasing, augment.seed, options.size, of));
  }
  return line;
}

absl::Status Load(Flags flags) {
  DatasetOptions data;
  data.name = "image_folder";
  data.path = flags.data;
  ASSIGN_OR_RETURN(const auto dataset,
                   OpenDataset(data, flags.train ? Split::kTrain : Split::kTest, ""));
  ASSIGN_OR_RETURN(const StepMap steps, StepMap::Create(dataset->size(), flags.batch, false));
  flags.loader.end_step = steps.steps_per_epoch();
  const auto loader =
      flags.train
          ? Loader::ForTraining(dataset.get(), steps, flags.loader)
          : Loader::ForEvaluation(dataset.get(), static_cast<uint32_t>(flags.batch), flags.loader);
  InputWriter writer(dataset->info());
  const auto reader = dataset->NewReader();
  const std::vector<uint32_t> order =
      EpochOrder(flags.loader.seed, 0, static_cast<uint32_t>(dataset->size()));
  std::ofstream out(flags.output, std::ios::binary);
  std::vector<float> floats;
  std::vector<int32_t> labels;
  uint64_t position = 0;
  while (true) {
    ASSIGN_OR_RETURN(const Batch* batch, loader->Next());
    if (batch == nullptr) break;
    floats.resize(batch->pixels.size());
    labels.resize(batch->samples);
    RETURN_IF_ERROR(writer.Write(*batch, floats.data(), labels.data()));
    out.write(reinterpret_cast<const char*>(floats.data()),
              static_cast<std::streamsize>(floats.size() * sizeof(float)));
    for (size_t i = 0; i < batch->samples; i += batch->views, ++position) {
      const auto sample = flags.train ? order[position] : static_cast<uint32_t>(position);
      ASSIGN_OR_RETURN(const ImageSize stored, reader->Open(sample));
      for (uint32_t view = 0; view < batch->views; ++view) {
        std::cout << Describe(*dataset, flags.loader.transform, {0, sample, view}, stored) << '\n';
      }
    }
  }
  out.close();
  if (!out) return absl::UnavailableError("cannot write " + flags.output);
  return absl::OkStatus();
}

}  // namespace
}  // namespace muster::data

int main(int argc, char** argv) {
  muster::data::Flags flags;
  muster::data::TransformOptions& transform = flags.loader.transform;
  int64_t size = 224;
  CLI::App app;
  app.add_option("--data", flags.data)->required();
  app.add_option("--output", flags.output)->required();
  app.add_option("--size", size);
  app.add_option("--center-crop", transform.center_crop);
  app.add_option("--detail", transform.detail);
  app.add_option("--views", flags.loader.views);
  app.add_flag("--train", flags.train, "random crops and flips");
  app.add_flag("--random-erasing", flags.random_erasing);
  CLI11_PARSE(app, argc, argv);
  transform.size = {size, size};
  flags.loader.threads = 2;
  if (flags.train) {
    transform.augment.flip = true;
    transform.augment.random_resized_crop.emplace();
    if (flags.random_erasing) transform.augment.random_erasing.emplace();
  }
  const absl::Status status = muster::data::Load(flags);
  if (!status.ok()) std::cerr << status << '\n';
  return status.ok() ? 0 : 1;
}
