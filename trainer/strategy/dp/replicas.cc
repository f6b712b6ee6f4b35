#include "trainer/strategy/dp/replicas.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"

namespace muster::train {
namespace {

// Elements per cache line; threads sum whole cache lines of gradients.
constexpr size_t kLineElements = 16;

bool AllHostMemory(const std::vector<kernels::Device*>& devices) {
  return std::all_of(devices.begin(), devices.end(),
                     [](const kernels::Device* device) { return device->host_memory(); });
}

}  // namespace

Replicas::Replicas(const ReplicaOptions& options, uint32_t max_samples)
    : options_(options),
      max_samples_(max_samples),
      host_memory_(AllHostMemory(options.devices)),
      threads_(static_cast<int>(options.devices.size())),
      sum_(options.devices.size()),
      replicas_(options.devices.size()) {}

Replicas::~Replicas() = default;

absl::StatusOr<std::unique_ptr<Replicas>> Replicas::Compile(const nn::Graph& graph,
                                                            const nn::CompileOptions& compiling,
                                                            const ReplicaOptions& options) {
  if (options.devices.empty()) {
    return absl::InvalidArgumentError("replicas need at least one device");
  }
  if (compiling.in_flight_micro_batches != 1 || !graph.inputs.empty() || !graph.outputs.empty()) {
    return absl::InvalidArgumentError("replicas need a whole model with one micro-batch in flight");
  }
  std::unique_ptr<Replicas> replicas(new Replicas(options, compiling.max_batch));
  RETURN_IF_ERROR(replicas->CompilePlans(graph, compiling));
  replicas->input_elements_ =
      static_cast<size_t>(graph.input.height * graph.input.width * graph.input.channels);
  replicas->output_elements_ = replicas->first().logits(1).size();
  RETURN_IF_ERROR(replicas->Allocate(compiling));
  return replicas;
}

absl::Status Replicas::CompilePlans(const nn::Graph& graph, nn::CompileOptions compiling) {
  const uint32_t unit = options_.views;
  const size_t units = (compiling.max_batch + unit - 1) / unit;
  const size_t largest = (units + replicas_.size() - 1) / replicas_.size();
  compiling.max_batch = static_cast<uint32_t>(largest * unit);
  for (size_t i = 0; i < replicas_.size(); ++i) {
    compiling.device = options_.devices[i];
    ASSIGN_OR_RETURN(replicas_[i].plan, nn::Compile(graph, compiling));
    if (!compiling.synchronize_batch_norm) continue;
    replicas_[i].reducer = std::make_unique<ReplicaReducer>(&sum_, i, compiling.device);
    replicas_[i].plan->set_statistics_reducer(replicas_[i].reducer.get());
  }
  return absl::OkStatus();
}

absl::Status Replicas::Allocate(const nn::CompileOptions& compiling) {
  kernels::Device& device = this->device();
  const size_t samples = max_samples_;
  const size_t parameter_bytes = first().parameter_elements() * sizeof(float);
  ASSIGN_OR_RETURN(input_, device.Allocate(samples * input_elements_ * sizeof(float), "the batch"));
  ASSIGN_OR_RETURN(labels_, device.Allocate(samples * sizeof(int32_t), "labels"));
  const size_t logit_bytes = samples * output_elements_ * sizeof(float);
  ASSIGN_OR_RETURN(logits_, device.Allocate(logit_bytes, "logits"));
  if (compiling.training) {
    ASSIGN_OR_RETURN(output_gradient_, device.Allocate(logit_bytes, "gradients of logits"));
    if (!host_memory_) {
      ASSIGN_OR_RETURN(staged_gradients_, device.Allocate(parameter_bytes, "gradients"));
    }
  }
  for (size_t i = 1; i < replicas_.size(); ++i) {
    Replica& replica = replicas_[i];
    kernels::Device& own = replica.plan->device();
    ASSIGN_OR_RETURN(replica.buffers,
                     own.Allocate(first().buffer_elements() * sizeof(float), "running statistics"));
    if (compiling.training) {
      ASSIGN_OR_RETURN(replica.gradients, own.Allocate(parameter_bytes, "gradients"));
    }
    if (!host_memory_) {
      ASSIGN_OR_RETURN(replica.parameters, own.Allocate(parameter_bytes, "parameters"));
    }
  }
  return absl::OkStatus();
}

void Replicas::Bind(float* parameters, float* gradients, float* buffers) {
  for (Replica& replica : replicas_) {
    const bool is_first = &replica == &replicas_.front();
    replica.bound_parameters =
        is_first || host_memory_ ? parameters : replica.parameters.as<float>();
    replica.bound_gradients =
        is_first || gradients == nullptr ? gradients : replica.gradients.as<float>();
    replica.bound_buffers = is_first ? buffers : replica.buffers.as<float>();
    replica.plan->Bind(replica.bound_parameters, replica.bound_gradients, replica.bound_buffers);
  }
}

// Splits a batch as ranks do: device r of d gets samples r * n / d to (r + 1) * n / d.
void Replicas::SplitSamples(uint32_t samples) {
  const size_t unit = options_.views;
  const size_t units = samples / unit;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    replicas_[i].begin = units * i / replicas_.size() * unit;
    replicas_[i].end = units * (i + 1) / replicas_.size() * unit;
  }
  replicas_.back().end = samples;
}

void Replicas::Run(absl::Duration ReplicaTimes::*phase,
                   absl::FunctionRef<void(Replica& replica)> work, bool busy) {
  const SteadyTime start = Now().steady;
  threads_.Run([&](int index) {
    Replica& replica = replicas_[static_cast<size_t>(index)];
    const SteadyTime begin = Now().steady;
    work(replica);
    // Other devices read this device's results. The training loop asks for the device's error.
    if (!host_memory_) replica.plan->device().Synchronize().IgnoreError();
    if (busy) replica.busy += Now().steady - begin;
  });
  times_.*phase += Now().steady - start;
}

void Replicas::Forward(uint32_t samples, bool training) {
  SplitSamples(samples);
  if (!host_memory_) device().Synchronize().IgnoreError();  // wait for the batch and the update
  Run(&ReplicaTimes::scatter, [&](Replica& replica) {
    replica.plan->device().Copy(replica.plan->input(),
                                input_.as<float>() + replica.begin * input_elements_,
                                replica.samples() * input_elements_ * sizeof(float));
  });
  const Replica& from = replicas_.front();
  Run(&ReplicaTimes::replicate, [&](Replica& replica) {
    if (&replica == &from) return;
    kernels::Device& device = replica.plan->device();
    if (replica.bound_parameters != from.bound_parameters) {
      device.Copy(replica.bound_parameters, from.bound_parameters,
                  first().parameter_elements() * sizeof(float));
    }
    device.Copy(replica.bound_buffers, from.bound_buffers,
                first().buffer_elements() * sizeof(float));
  });
  Run(
      &ReplicaTimes::forward,
      [&](Replica& replica) {
        if (training) {
          nn::StepContext step = step_;
          step.first_sample += replica.begin;
          replica.plan->SetStep(step);
        }
        replica.plan->Forward(replica.samples(), training);
      },
      /*busy=*/true);
  Run(&ReplicaTimes::gather, [&](Replica& replica) {
    replica.plan->device().Copy(logits_.as<float>() + replica.begin * output_elements_,
                                replica.plan->logits(replica.samples()).data(),
                                replica.samples() * output_elements_ * sizeof(float));
  });
}

void Replicas::QueueLoss(uint32_t samples, const nn::LossOptions& options, nn::LossResult* result) {
  const SteadyTime start = Now().steady;
  device().kernels().softmax_cross_entropy({.samples = samples,
                                            .classes = static_cast<int64_t>(output_elements_),
                                            .label_smoothing = options.label_smoothing,
                                            .scale = options.scale},
                                           logits_.as<float>(), labels(), options.loss_scale,
                                           output_gradient(), result);
  loss_time_ += Now().steady - start;
}

void Replicas::Backward(uint32_t samples, const std::function<void(size_t offset)>& ready) {
  if (!host_memory_) device().Synchronize().IgnoreError();  // wait for the gradient of the loss
  Run(&ReplicaTimes::scatter_gradient, [&](Replica& replica) {
    replica.plan->device().Copy(replica.plan->output_gradient(),
                                output_gradient() + replica.begin * output_elements_,
                                replica.samples() * output_elements_ * sizeof(float));
  });
  Run(
      &ReplicaTimes::backward,
      [&](Replica& replica) { replica.plan->Backward(replica.samples(), nullptr); },
      /*busy=*/true);
  Reduce();
  if (ready) ready(0);
}

void Replicas::Reduce() {
  const size_t elements = first().parameter_elements();
  float* const to = replicas_.front().bound_gradients;
  if (host_memory_) {
    const size_t lines = (elements + kLineElements - 1) / kLineElements;
    Run(&ReplicaTimes::reduce, [&](Replica& replica) {
      const size_t index = static_cast<size_t>(&replica - replicas_.data());
      const auto at = [&](size_t share) {
        return std::min(lines * share / replicas_.size() * kLineElements, elements);
      };
      const size_t begin = at(index), end = at(index + 1);
      for (size_t from = 1; from < replicas_.size(); ++from) {
        replica.plan->device().kernels().accumulate(kernels::DataType::kFloat32, end - begin,
                                                    replicas_[from].bound_gradients + begin,
                                                    to + begin);
      }
    });
    return;
  }
  Run(&ReplicaTimes::reduce, [&](Replica& replica) {
    if (&replica != &replicas_.front()) return;
    kernels::Device& device = replica.plan->device();
    for (size_t from = 1; from < replicas_.size(); ++from) {
      float* const staged = staged_gradients_.as<float>();
      device.Copy(staged, replicas_[from].bound_gradients, elements * sizeof(float));
      device.kernels().accumulate(kernels::DataType::kFloat32, elements, staged, to);
    }
  });
}

size_t Replicas::gathered_bytes() const {
  return input_.bytes() + labels_.bytes() + logits_.bytes() + output_gradient_.bytes() +
         staged_gradients_.bytes();
}

}  // namespace muster::train
