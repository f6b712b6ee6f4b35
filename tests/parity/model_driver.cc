// Runs one model on batches from a file, for tests that compare it with PyTorch: evaluates it,
// trains it with SGD, and writes the results.
//
//   model_driver --model='{"name": "resnet18"}' --input=28,28,1 --classes=10 --batch=8
//       [--weights=FILE.safetensors | --seed=N]     initial weights
//       [--images=FILE --labels=FILE]               float32 samples of H*W*C, and an int32 for each
//       [--logits=FILE]                             logits of all samples before training, float32
//       [--steps=N --learning-rate=R --momentum=M]  trains on consecutive batches of samples
//       [--gradients=FILE.safetensors]              gradients of the first step
//       [--losses=FILE]                             loss of each step, float64
//       [--export=FILE.safetensors]                 the final model, as a state_dict
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status.h"
#include "google/protobuf/util/json_util.h"
#include "kernels/aligned_floats.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/graph/plan.h"
#include "trainer/models/model.h"
#include "trainer/optim/model_state.h"
#include "trainer/optim/optimizer.h"

namespace muster {
namespace {

struct Flags {
  std::string model;
  std::vector<int64_t> input;
  int64_t classes = 0;
  uint32_t batch = 1;
  uint32_t threads = 1;
  std::string weights;
  uint64_t seed = 1;
  std::string images;
  std::string labels;
  std::string logits;
  uint32_t steps = 0;
  double learning_rate = 0.01;
  double momentum = 0;
  std::string gradients;
  std::string losses;
  std::string export_to;
};

template <typename T>
absl::StatusOr<std::vector<T>> ReadFile(const std::string& path) {
  std::vector<T> values;
  if (path.empty()) return values;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return absl::NotFoundError(path);
  values.resize(static_cast<size_t>(in.tellg()) / sizeof(T));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(values.data()),
          static_cast<std::streamsize>(values.size() * sizeof(T)));
  if (!in) return absl::DataLossError(path);
  return values;
}

template <typename T>
absl::Status WriteFile(const std::string& path, const std::vector<T>& values) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(T)));
  out.close();
  return out ? absl::OkStatus() : absl::InternalError(absl::StrCat("cannot write ", path));
}

absl::Status WriteTensors(const std::string& path, absl::Span<const train::Tensor> tensors) {
  std::vector<uint8_t> bytes;
  RETURN_IF_ERROR(train::WriteSafetensors(tensors, [&](absl::Span<const uint8_t> more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
    return absl::OkStatus();
  }));
  return WriteFile(path, bytes);
}

// Samples of the files, passed to the plan batch by batch.
class Data {
 public:
  Data(std::vector<float> images, std::vector<int32_t> labels)
      : images_(std::move(images)), labels_(std::move(labels)) {}

  uint64_t samples() const { return labels_.size(); }

  void Fill(uint64_t first_sample, uint32_t samples, nn::Plan& plan) const {
    const size_t sample_elements = images_.size() / labels_.size();
    std::copy_n(images_.begin() + static_cast<ptrdiff_t>(first_sample * sample_elements),
                samples * sample_elements, plan.input());
    std::copy_n(labels_.begin() + static_cast<ptrdiff_t>(first_sample), samples, plan.labels());
  }

 private:
  const std::vector<float> images_;
  const std::vector<int32_t> labels_;
};

std::vector<float> Evaluate(const Flags& flags, const Data& data, nn::Plan& plan) {
  std::vector<float> logits;
  for (uint64_t sample = 0; sample < data.samples(); sample += flags.batch) {
    const uint32_t samples =
        static_cast<uint32_t>(std::min<uint64_t>(flags.batch, data.samples() - sample));
    data.Fill(sample, samples, plan);
    plan.Forward(samples, /*training=*/false, {});
    const absl::Span<const float> batch = plan.logits(samples);
    logits.insert(logits.end(), batch.begin(), batch.end());
  }
  return logits;
}

absl::StatusOr<std::vector<train::Tensor>> Gradients(const nn::Plan& plan, const float* gradients) {
  std::vector<train::Tensor> tensors;
  for (const nn::ParameterInfo& parameter : plan.parameters()) {
    size_t count = 1;
    for (const int64_t dimension : parameter.shape) count *= static_cast<size_t>(dimension);
    std::vector<float> values(count);
    RETURN_IF_ERROR(plan.ExportFrom(gradients, parameter, absl::MakeSpan(values)));
    tensors.push_back({parameter.name, parameter.shape, std::move(values)});
  }
  return tensors;
}

absl::Status Train(const Flags& flags, const Data& data, nn::Plan& plan, train::ModelState& state,
                   train::Optimizer& optimizer) {
  const auto gradients = kernels::MakeAlignedFloats(plan.parameter_elements());
  state.BindGradients(gradients.get());
  const kernels::UpdateScalars scalars{.learning_rate = flags.learning_rate};  // of SGD
  std::vector<double> losses;
  for (uint32_t step = 0; step < flags.steps; ++step) {
    data.Fill(uint64_t{step} * flags.batch % data.samples(), flags.batch, plan);
    plan.Forward(flags.batch, /*training=*/true, {.seed = flags.seed, .step = step});
    const nn::LossResult loss =
        plan.Loss(flags.batch, /*label_smoothing=*/0, 1.0f / static_cast<float>(flags.batch));
    plan.Backward(flags.batch, nullptr);
    losses.push_back(loss.loss_sum / flags.batch);
    if (step == 0 && !flags.gradients.empty()) {
      ASSIGN_OR_RETURN(const std::vector<train::Tensor> tensors, Gradients(plan, gradients.get()));
      RETURN_IF_ERROR(WriteTensors(flags.gradients, tensors));
    }
    optimizer.Step(&scalars, state.parameters(), gradients.get());
  }
  if (flags.losses.empty()) return absl::OkStatus();
  return WriteFile(flags.losses, losses);
}

absl::StatusOr<Data> ReadData(const Flags& flags) {
  ASSIGN_OR_RETURN(std::vector<float> images, ReadFile<float>(flags.images));
  ASSIGN_OR_RETURN(std::vector<int32_t> labels, ReadFile<int32_t>(flags.labels));
  const int64_t sample_elements = flags.input[0] * flags.input[1] * flags.input[2];
  if (images.size() != labels.size() * static_cast<size_t>(sample_elements)) {
    return absl::InvalidArgumentError("--images and --labels must have the same number of samples");
  }
  if (flags.steps > 0 && (labels.empty() || labels.size() % flags.batch != 0)) {
    return absl::InvalidArgumentError(
        "training requires the number of samples to be a multiple of --batch");
  }
  return Data(std::move(images), std::move(labels));
}

absl::Status Run(const Flags& flags) {
  v1::ModelSpec spec;
  if (!google::protobuf::util::JsonStringToMessage(flags.model, &spec).ok()) {
    return absl::InvalidArgumentError("--model is not a valid ModelSpec in JSON");
  }
  ASSIGN_OR_RETURN(const Data data, ReadData(flags));
  ASSIGN_OR_RETURN(
      const nn::Graph graph,
      nn::BuildModel(spec, {flags.input[0], flags.input[1], flags.input[2]}, flags.classes));
  ASSIGN_OR_RETURN(const std::unique_ptr<nn::Plan> plan,
                   nn::Compile(graph, {.max_batch = flags.batch,
                                       .training = flags.steps > 0,
                                       .threads = flags.threads}));
  v1::OptimizerSpec sgd;
  sgd.set_name("sgd");
  sgd.set_momentum(flags.momentum);
  ASSIGN_OR_RETURN(const std::unique_ptr<train::Optimizer> optimizer,
                   train::Optimizer::Create(sgd, plan->parameters()));
  ASSIGN_OR_RETURN(train::ModelState state, train::ModelState::Create(plan.get(), optimizer.get()));
  if (flags.weights.empty()) {
    plan->Initialize(flags.seed);
  } else {
    RETURN_IF_ERROR(state.ImportModel(flags.weights));
  }
  if (!flags.logits.empty()) {
    RETURN_IF_ERROR(WriteFile(flags.logits, Evaluate(flags, data, *plan)));
  }
  if (flags.steps > 0) RETURN_IF_ERROR(Train(flags, data, *plan, state, *optimizer));
  if (flags.export_to.empty()) return absl::OkStatus();
  train::StateSnapshot snapshot;
  snapshot.Begin(plan.get(), {}, flags.steps);
  RETURN_IF_ERROR(state.CopyTo(snapshot));
  return WriteTensors(flags.export_to, snapshot.Convert().model);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Run one model on batches from a file");
  app.add_option("--model", flags.model, "ModelSpec as JSON")->required();
  app.add_option("--input", flags.input, "height,width,channels")
      ->required()
      ->delimiter(',')
      ->expected(3);
  app.add_option("--classes", flags.classes)->required();
  app.add_option("--batch", flags.batch)->check(CLI::Range(1, 1024));
  app.add_option("--threads", flags.threads)->check(CLI::Range(1, 64));
  app.add_option("--weights", flags.weights);
  app.add_option("--seed", flags.seed);
  app.add_option("--images", flags.images);
  app.add_option("--labels", flags.labels);
  app.add_option("--logits", flags.logits);
  app.add_option("--steps", flags.steps);
  app.add_option("--learning-rate", flags.learning_rate);
  app.add_option("--momentum", flags.momentum);
  app.add_option("--gradients", flags.gradients);
  app.add_option("--losses", flags.losses);
  app.add_option("--export", flags.export_to);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
