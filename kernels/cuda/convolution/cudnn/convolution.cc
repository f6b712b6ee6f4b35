#include "kernels/cuda/convolution/cudnn/convolution.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/cuda/convolution/cudnn/planner.h"
#include "kernels/cuda/convolution/operand_workspace.h"
#include "kernels/half.h"

namespace muster::kernels::cuda {
namespace {

// Maximum workspace of a plan for max_samples.
constexpr int64_t kMaxPlanBytes = int64_t{256} << 20;

// Memory filled with normally distributed values, 2^18 of them repeated. Zeros would make the GPU
// faster than it is in training.
absl::StatusOr<DeviceMemory> RandomMemory(Device& device, DataType type, size_t bytes) {
  bytes = (bytes + sizeof(float) - 1) / sizeof(float) * sizeof(float);
  absl::StatusOr<DeviceMemory> memory = device.Allocate(bytes, "measuring convolutions");
  if (!memory.ok()) return memory.status();
  const size_t drawn = std::min<size_t>(bytes / SizeOf(type), size_t{1} << 18);
  std::vector<float> values(drawn);
  std::minstd_rand random;
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < drawn; ++i) {
    StoreElement(type, normal(random), values.data(), static_cast<int64_t>(i));
  }
  size_t filled = drawn * SizeOf(type);
  device.CopyToDevice(memory->data(), values.data(), filled);
  while (filled < bytes) {
    const size_t more = std::min(filled, bytes - filled);
    device.Copy(memory->as<char>() + filled, memory->data(), more);
    filled += more;
  }
  return memory;
}

// Addresses of a choice's tensors, in the order of its ids.
using Pointers = absl::Span<const void* const>;

class CudnnConvolution final : public Convolution {
 public:
  CudnnConvolution(const ConvolutionShape& shape, const ConvolutionOptions& options,
                   const LayerRuntime& runtime, const CudnnTarget& target, PlanCache& plans)
      : shape_(shape),
        options_(options),
        runtime_(runtime),
        handle_(target.handle),
        data_shape_(options.compact_data_gradient ? shape.Compact() : shape),
        planner_(shape, options, target, plans, runtime.numerics),
        data_planner_(data_shape_, options, target, plans, runtime.numerics) {
    const DataType compute = options.compute_type;
    x_ = workspace_.AddCast(options.x_type, compute, options.max_samples * shape.input_elements());
    y_ = workspace_.AddCast(options.y_type, compute, options.max_samples * shape.output_elements());
    shift_ = workspace_.AddCast(DataType::kFloat32, compute, shape.out_channels);
    plan_ = workspace_.Add(0);
  }

  // Chooses the plans for max_samples.
  absl::Status MakePlans() {
    std::vector<ConvolutionDirection> directions = {kForward};
    if (options_.training) directions.push_back(kBackwardWeights);
    if (options_.training && options_.data_gradient) directions.push_back(kBackwardData);
    TrialBuffers trial;
    for (const ConvolutionDirection direction : directions) {
      const CudnnOperation operation = {.direction = direction, .samples = options_.max_samples};
      absl::StatusOr<CudnnChoice> choice = PlannerOf(direction).Choose(
          operation, nullptr, kMaxPlanBytes,
          [&](const CudnnChoice& candidate, int runs) { return Try(candidate, runs, trial); });
      if (!choice.ok()) return choice.status();
      plan_bytes_ = std::max(plan_bytes_, choice->plan.workspace_bytes());
      choices_.emplace(operation, *std::move(choice));
    }
    workspace_.Add(static_cast<size_t>(plan_bytes_));
    return runtime_.device->Synchronize();
  }

  int64_t weights_elements() const override { return shape_.weights(); }
  std::string weights_layout() const override { return "ohwi"; }
  DataType weights_type() const override { return options_.compute_type; }
  DataType dweights_type() const override { return options_.compute_type; }
  bool casts_x() const override { return options_.x_type != options_.compute_type; }
  std::string description() const override {
    const auto engine = [&](ConvolutionDirection direction, const char* name) {
      const auto at = choices_.find({.direction = direction, .samples = options_.max_samples});
      return at == choices_.end() ? "" : absl::StrCat(name, at->second->engine.engine);
    };
    return absl::StrCat("cudnn (", engine(kForward, "forward engine "),
                        engine(kBackwardData, ", data "), engine(kBackwardWeights, ", weights "),
                        ")");
  }
  size_t workspace_bytes() const override { return workspace_.bytes(); }

  void ImportWeights(const float* canonical, float* weights) const override {
    ForEachWeight([&](int64_t oihw, int64_t ohwi) { weights[ohwi] = canonical[oihw]; });
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    ForEachWeight([&](int64_t oihw, int64_t ohwi) { canonical[oihw] = weights[ohwi]; });
  }

  void Forward(int64_t samples, const void* x, const void* weights, const Epilogue& epilogue,
               void* y, void* workspace) override {
    if (samples == 0) return;
    const void* const operand = X(samples, x, workspace);
    if (Fusible(epilogue)) {
      const CudnnOperation fused = {.samples = samples,
                                    .shift = true,
                                    .addend = epilogue.addend != nullptr,
                                    .relu = epilogue.activation == Activation::kRelu};
      const void* const shift =
          Operand(DataType::kFloat32, epilogue.shift, shape_.out_channels, shift_, workspace);
      const void* const pointers[] = {operand, weights, y, shift, epilogue.addend};
      if (Run(fused, absl::MakeSpan(pointers, fused.addend ? 5 : 4), y_, workspace).ok()) return;
    }
    const absl::StatusOr<CudnnOutput> output =
        Run({.samples = samples}, {operand, weights, y}, y_, workspace);
    if (!output.ok()) return runtime_.report(output.status());
    const bool cast = *output == CudnnOutput::kCast;
    if (!cast && epilogue.scale == nullptr && epilogue.shift == nullptr &&
        epilogue.addend == nullptr && epilogue.activation == Activation::kNone) {
      return;
    }
    runtime_.kernels->apply_epilogue(samples * shape_.out_height() * shape_.out_width(),
                                     shape_.out_channels,
                                     cast ? options_.compute_type : options_.y_type,
                                     cast ? y_.In(workspace) : y, epilogue, options_.y_type, y);
  }

  void BackwardData(int64_t samples, const void* dy, const void* weights, void* dx,
                    void* workspace) override {
    if (samples == 0) return;
    RunAndCast({.direction = kBackwardData, .samples = samples},
               {dx, weights, Dy(samples, dy, workspace)}, x_, workspace, options_.x_type, dx,
               samples * data_shape_.input_elements());
  }

  void BackwardWeights(int64_t samples, const void* x, const void* dy, void* dweights, float* dbias,
                       void* workspace) override {
    if (samples == 0) {
      runtime_.device->Zero(dweights,
                            static_cast<size_t>(shape_.weights()) * SizeOf(dweights_type()));
      if (dbias == nullptr) return;
      return runtime_.device->Zero(dbias, static_cast<size_t>(shape_.out_channels) * sizeof(float));
    }
    const void* const gradient = Dy(samples, dy, workspace);
    const absl::StatusOr<CudnnOutput> written =
        Run({.direction = kBackwardWeights, .samples = samples},
            {X(samples, x, workspace), dweights, gradient}, /*region=*/{}, workspace);
    if (!written.ok()) return runtime_.report(written.status());
    if (dbias == nullptr) return;
    runtime_.kernels->column_sums(options_.compute_type,
                                  samples * shape_.out_height() * shape_.out_width(),
                                  shape_.out_channels, gradient, dbias);
  }

 private:
  using enum ConvolutionDirection;

  // Memory for measuring plans for max_samples, allocated with the first measurement.
  struct TrialBuffers {
    DeviceMemory x, weights, y, workspace;
  };

  const CudnnPlanner& PlannerOf(ConvolutionDirection direction) const {
    return direction == kBackwardData ? data_planner_ : planner_;
  }

  // Index of the output among the tensors x, w and y.
  static size_t OutputOf(ConvolutionDirection direction) {
    return direction == kBackwardData ? 0 : direction == kBackwardWeights ? 1 : 2;
  }

  // Whether cuDNN has precompiled kernels for the epilogue.
  bool Fusible(const Epilogue& epilogue) const {
    return options_.y_type == options_.compute_type && epilogue.scale == nullptr &&
           epilogue.shift != nullptr && epilogue.activation != Activation::kRelu6;
  }

  const void* Operand(DataType type, const void* array, int64_t count, WorkspaceRegion region,
                      void* workspace) const {
    return AsType(runtime_.device->kernels(), type, array, count, options_.compute_type, region,
                  workspace);
  }
  const void* X(int64_t samples, const void* x, void* workspace) const {
    return Operand(options_.x_type, x, samples * shape_.input_elements(), x_, workspace);
  }
  const void* Dy(int64_t samples, const void* dy, void* workspace) const {
    return Operand(options_.y_type, dy, samples * shape_.output_elements(), y_, workspace);
  }

  absl::Status Execute(const CudnnChoice& choice, Pointers pointers, void* workspace) const {
    std::vector<void*> mutable_pointers;
    for (const void* pointer : pointers) mutable_pointers.push_back(const_cast<void*>(pointer));
    return choice.plan.Execute(handle_, choice.ids, mutable_pointers, workspace);
  }

  absl::StatusOr<float> Measure(const CudnnChoice& choice, int runs, Pointers pointers,
                                void* workspace) const {
    absl::Status status;
    const absl::StatusOr<float> milliseconds = runtime_.time([&] {
      for (int i = 0; i < runs; ++i) status.Update(Execute(choice, pointers, workspace));
    });
    if (!status.ok()) return status;
    return milliseconds;
  }

  absl::StatusOr<float> Try(const CudnnChoice& choice, int runs, TrialBuffers& trial) const {
    Device& device = *runtime_.device;
    const auto provide = [&](DeviceMemory& memory, size_t bytes) -> absl::Status {
      if (memory.bytes() >= bytes) return absl::OkStatus();
      auto made = RandomMemory(device, options_.compute_type, bytes);
      if (made.ok()) memory = *std::move(made);
      return made.status();
    };
    // Large enough for any type, since outputs need not be of the compute type.
    const auto widest = [](int64_t elements) {
      return static_cast<size_t>(elements) * sizeof(float);
    };
    absl::Status status = provide(trial.x, widest(options_.max_samples * shape_.input_elements()));
    status.Update(provide(trial.weights, widest(shape_.weights())));
    status.Update(provide(trial.y, widest(options_.max_samples * shape_.output_elements())));
    status.Update(provide(trial.workspace, static_cast<size_t>(choice.plan.workspace_bytes())));
    if (!status.ok()) return status;
    return Measure(choice, runs, {trial.x.data(), trial.weights.data(), trial.y.data()},
                   trial.workspace.data());
  }

  // The choice for the same operation with another number of samples; null if there is none.
  const CudnnChoice* FindSimilar(CudnnOperation operation) const {
    for (const auto& [other, choice] : choices_) {
      operation.samples = other.samples;
      if (choice.ok() && other == operation) return &*choice;
    }
    return nullptr;
  }

  // Runs the operation. Chooses a plan first if there is none yet. If the plan's output must be
  // cast (CudnnOutput::kCast), it is in the region.
  absl::StatusOr<CudnnOutput> Run(const CudnnOperation& operation, Pointers pointers,
                                  WorkspaceRegion region, void* workspace) {
    const auto placed = [&](const CudnnChoice& choice) {
      std::vector<const void*> result(pointers.begin(), pointers.end());
      if (choice.output == CudnnOutput::kCast) {
        result[OutputOf(operation.direction)] = region.In(workspace);
      }
      return result;
    };
    void* const plan_workspace = plan_.In(workspace);
    auto at = choices_.find(operation);
    if (at == choices_.end()) {
      at = choices_
               .emplace(operation, PlannerOf(operation.direction)
                                       .Choose(operation, FindSimilar(operation), plan_bytes_,
                                               [&](const CudnnChoice& candidate, int runs) {
                                                 return Measure(candidate, runs, placed(candidate),
                                                                plan_workspace);
                                               }))
               .first;
    }
    const absl::StatusOr<CudnnChoice>& choice = at->second;
    if (!choice.ok()) return choice.status();
    const absl::Status status = Execute(*choice, placed(*choice), plan_workspace);
    if (!status.ok()) return status;
    return choice->output;
  }

  // Runs the backward operation of the data, and casts its output to `type` if needed.
  void RunAndCast(const CudnnOperation& operation, Pointers pointers, WorkspaceRegion region,
                  void* workspace, DataType type, void* output, int64_t count) {
    const absl::StatusOr<CudnnOutput> written = Run(operation, pointers, region, workspace);
    if (!written.ok()) return runtime_.report(written.status());
    if (*written != CudnnOutput::kCast) return;
    runtime_.device->kernels().cast(options_.compute_type, region.In(workspace), 1, type, output,
                                    static_cast<size_t>(count));
  }

  // Calls visit(index in OIHW, index in OHWI) for each weight.
  template <typename Visit>
  void ForEachWeight(const Visit& visit) const {
    const int64_t taps = shape_.kernel * shape_.kernel;
    const int64_t ins = shape_.in_channels / shape_.groups;
    for (int64_t o = 0; o < shape_.out_channels; ++o) {
      for (int64_t i = 0; i < ins; ++i) {
        for (int64_t tap = 0; tap < taps; ++tap) {
          visit((o * ins + i) * taps + tap, (o * taps + tap) * ins + i);
        }
      }
    }
  }

  const ConvolutionShape shape_;
  const ConvolutionOptions options_;
  const LayerRuntime runtime_;
  const CudnnHandle handle_;
  const ConvolutionShape data_shape_;  // that of kBackwardData
  const CudnnPlanner planner_;
  const CudnnPlanner data_planner_;
  // Regions: copies in the compute type, also of outputs that are written in it; the plans' own
  // workspace.
  WorkspacePlan workspace_;
  WorkspaceRegion x_, y_, shift_, plan_;
  int64_t plan_bytes_ = 0;
  std::map<CudnnOperation, absl::StatusOr<CudnnChoice>> choices_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Convolution>> MakeCudnnConvolution(const ConvolutionShape& shape,
                                                                  const ConvolutionOptions& options,
                                                                  const LayerRuntime& runtime,
                                                                  const CudnnTarget& target,
                                                                  PlanCache& plans) {
  if (!shape.valid() || !options.valid()) return InvalidLayerError(shape);
  auto made = std::make_unique<CudnnConvolution>(shape, options, runtime, target, plans);
  const absl::Status status = made->MakePlans();
  if (!status.ok()) return status;
  return made;
}

}  // namespace muster::kernels::cuda
