#include "trainer/optim/model_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/sha256.h"
#include "common/status.h"
#include "glog/logging.h"

namespace muster::train {
namespace {

size_t CountOf(const nn::ParameterInfo& parameter) {
  size_t count = 1;
  for (const int64_t dimension : parameter.shape) count *= static_cast<size_t>(dimension);
  return count;
}

using Exporter = std::function<absl::Status(const nn::ParameterInfo&, absl::Span<float>)>;
using Importer = std::function<absl::Status(const nn::ParameterInfo&, absl::Span<const float>)>;

// Broadcasts the values of all `infos` at once.
absl::Status BroadcastValues(collectives::Communicator& communicator, uint32_t root,
                             absl::Span<const nn::ParameterInfo> infos, const Exporter& exporter,
                             const Importer& importer) {
  size_t total = 0;
  for (const nn::ParameterInfo& info : infos) total += CountOf(info);
  if (communicator.size() == 1 || total == 0) return absl::OkStatus();
  std::vector<float> packed(total);
  const auto for_each = [&](const auto& copy) -> absl::Status {
    absl::Span<float> rest = absl::MakeSpan(packed);
    for (const nn::ParameterInfo& info : infos) {
      RETURN_IF_ERROR(copy(info, rest.first(CountOf(info))));
      rest.remove_prefix(CountOf(info));
    }
    return absl::OkStatus();
  };
  const bool is_root = communicator.rank() == root;
  if (is_root) RETURN_IF_ERROR(for_each(exporter));
  RETURN_IF_ERROR(
      communicator.Broadcast(packed.data(), total, collectives::DataType::kFloat32, root)->Wait());
  return is_root ? absl::OkStatus() : for_each(importer);
}

bool BeginsWithOneOf(absl::string_view name, absl::Span<const std::string> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [name](const std::string& prefix) { return absl::StartsWith(name, prefix); });
}

// Returns e.g. "a, b and 3 more".
std::string Names(absl::Span<const std::string> names) {
  constexpr size_t kNamed = 8;
  std::string text = absl::StrJoin(names.first(std::min(names.size(), kNamed)), ", ");
  if (names.size() > kNamed) absl::StrAppend(&text, " and ", names.size() - kNamed, " more");
  return text;
}

}  // namespace

absl::StatusOr<ModelState> ModelState::Create(nn::Plan* plan, Optimizer* optimizer, bool averages,
                                              nn::Execution* execution) {
  ModelState state(plan, optimizer, execution != nullptr ? execution : plan);
  kernels::Device& device = plan->device();
  ASSIGN_OR_RETURN(state.own_parameters_,
                   kernels::DeviceFloats::Create(device, plan->parameter_elements(), "parameters"));
  state.parameters_ = state.own_parameters_.get();
  ASSIGN_OR_RETURN(state.buffers_, kernels::DeviceFloats::Create(device, plan->buffer_elements(),
                                                                 "running statistics"));
  if (averages) {
    ASSIGN_OR_RETURN(ExponentialMovingAverage average,
                     ExponentialMovingAverage::Create(plan->parameter_elements(),
                                                      plan->buffer_elements(), device));
    state.average_.emplace(std::move(average));
  }
  state.BindGradients(nullptr);
  return state;
}

void ModelState::BindGradients(float* gradients) {
  gradients_ = gradients;
  execution_->Bind(parameters_, gradients, buffers_.get());
}

void ModelState::BindParameters(float* parameters) {
  parameters_ = parameters;
  own_parameters_ = kernels::DeviceFloats();
  BindGradients(gradients_);
}

absl::Status ModelState::RoundParameters(kernels::DataType type) {
  if (type == kernels::DataType::kFloat32) return absl::OkStatus();
  const size_t count = plan_->parameter_elements();
  const kernels::KernelTable& kernels = plan_->device().kernels();
  // 16 bits per element.
  ASSIGN_OR_RETURN(
      const kernels::DeviceFloats rounded,
      kernels::DeviceFloats::Create(plan_->device(), (count + 1) / 2, "rounding the parameters"));
  kernels.cast(kernels::DataType::kFloat32, parameters_, 1, type, rounded.get(), count);
  kernels.cast(type, rounded.get(), 1, kernels::DataType::kFloat32, parameters_, count);
  return absl::OkStatus();
}

void ModelState::UpdateAverage(const kernels::UpdateScalars* scalars) {
  if (average_.has_value()) average_->Update(scalars, parameters_, buffers_.get());
}

void ModelState::StartAverage() {
  if (average_.has_value()) average_->Start(parameters_, buffers_.get());
}

absl::Status ModelState::WithAverage(const std::function<absl::Status()>& work) {
  if (!average_.has_value()) return work();
  execution_->Bind(average_->parameters(), nullptr, average_->buffers());
  absl::Status status = work();
  BindGradients(gradients_);
  return status;
}

absl::Status ModelState::CopyTo(StateSnapshot& snapshot) const {
  RETURN_IF_ERROR(snapshot.CopyParameters(&ModelTensors::model, parameters_));
  RETURN_IF_ERROR(snapshot.CopyBuffers(&ModelTensors::model, buffers_.get()));
  if (!average_.has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(snapshot.CopyParameters(&ModelTensors::average, average_->parameters()));
  return snapshot.CopyBuffers(&ModelTensors::average, average_->buffers());
}

absl::Status ModelState::ImportModel(const std::string& path) {
  ASSIGN_OR_RETURN(const TensorSet tensors, TensorSet::Open(path));
  return ImportModel(tensors);
}

absl::Status ModelState::ImportModel(const TensorSet& tensors) {
  return ImportTensors(tensors, /*excluded=*/{});
}

absl::Status ModelState::InitializeFrom(const std::string& path,
                                        absl::Span<const std::string> excluded) {
  ASSIGN_OR_RETURN(const TensorSet tensors, TensorSet::Open(path));
  return InitializeFrom(tensors, excluded);
}

absl::Status ModelState::InitializeFrom(const TensorSet& tensors,
                                        absl::Span<const std::string> excluded) {
  const absl::Status status = ImportTensors(tensors, excluded);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(),
                                                  "; use train.init_exclude, e.g. [fc.], to "
                                                  "keep the initial values of some tensors"));
}

absl::Status ModelState::ImportTensors(const TensorSet& tensors,
                                       absl::Span<const std::string> excluded) {
  std::vector<std::string> missing;
  std::vector<std::string> unknown = tensors.names();
  for (const auto& infos : {plan_->parameters(), plan_->buffers()}) {
    for (const nn::ParameterInfo& info : infos) {
      if (!BeginsWithOneOf(info.name, excluded) && !tensors.Contains(info.name)) {
        missing.push_back(info.name);
      }
      unknown.erase(std::remove(unknown.begin(), unknown.end(), info.name), unknown.end());
    }
  }
  unknown.erase(std::remove_if(unknown.begin(), unknown.end(),
                               [this, excluded](const std::string& name) {
                                 return BeginsWithOneOf(name, excluded) || IsOfLayer(name) ||
                                        absl::EndsWith(name, "num_batches_tracked");
                               }),
                unknown.end());
  if (!missing.empty()) {
    return absl::NotFoundError(absl::StrCat(
        tensors.path(), " has no tensor ", Names(missing),
        unknown.empty()
            ? ""
            : absl::StrCat("; tensors that the model does not have: ", Names(unknown))));
  }
  if (!unknown.empty()) {
    LOG(WARNING) << tensors.path()
                 << ": ignoring tensors that the model does not have: " << Names(unknown);
  }
  for (const auto& infos : {plan_->parameters(), plan_->buffers()}) {
    for (const nn::ParameterInfo& info : infos) {
      if (BeginsWithOneOf(info.name, excluded)) continue;
      ASSIGN_OR_RETURN(const std::vector<float> values, tensors.ReadFloats(info.name, info.shape));
      RETURN_IF_ERROR(plan_->Import(info, values));
    }
  }
  return absl::OkStatus();
}

bool ModelState::IsOfLayer(absl::string_view tensor) const {
  const size_t end = tensor.rfind('.');
  return end != absl::string_view::npos && layers_.find(tensor.substr(0, end)) != layers_.end();
}

absl::Status ModelState::ImportOptimizer(const std::string& path) {
  if (optimizer_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const TensorSet tensors, TensorSet::Open(path));
  return ImportOptimizer(tensors);
}

absl::Status ModelState::ImportOptimizer(const TensorSet& tensors) {
  if (optimizer_ == nullptr) return absl::OkStatus();
  for (const OptimizerState& state : optimizer_->states()) {
    const auto name_of = [&](const nn::ParameterInfo& parameter) {
      const std::string name = absl::StrCat(parameter.name, ".", state.name);
      const bool plain = state.name == "momentum" && !tensors.Contains(name);
      return plain ? parameter.name : name;
    };
    const auto parameters = plan_->parameters();
    if (std::none_of(parameters.begin(), parameters.end(),
                     [&](const auto& info) { return tensors.Contains(name_of(info)); })) {
      LOG(WARNING) << tensors.path() << " has no " << state.name << "; starting from zero";
      plan_->device().Zero(state.values.get(), plan_->parameter_elements() * sizeof(float));
      continue;
    }
    for (const nn::ParameterInfo& parameter : parameters) {
      ASSIGN_OR_RETURN(const std::vector<float> values,
                       tensors.ReadFloats(name_of(parameter), parameter.shape));
      RETURN_IF_ERROR(plan_->ImportInto(state.values.get(), parameter, values));
    }
  }
  return absl::OkStatus();
}

absl::Status ModelState::ImportAverage(const std::string& path) {
  if (!average_.has_value()) return absl::OkStatus();
  return WithAverage([&] { return ImportModel(path); });
}

absl::Status ModelState::ImportAverage(const TensorSet& tensors) {
  if (!average_.has_value()) return absl::OkStatus();
  return WithAverage([&] { return ImportModel(tensors); });
}

std::vector<Tensor> ModelState::ExportParameters() const {
  std::vector<Tensor> tensors;
  ExportArray(parameters_, "", tensors);
  return tensors;
}

ModelTensors ModelState::Export() {
  ModelTensors all;
  ExportArray(parameters_, "", all.model);
  ExportBuffers(all.model);
  if (average_.has_value()) {
    ExportArray(average_->parameters(), "", all.average);
    const absl::Status exported = WithAverage([&] {
      ExportBuffers(all.average);
      return absl::OkStatus();
    });
    LOG_IF(DFATAL, !exported.ok()) << exported;
  }
  if (optimizer_ == nullptr) return all;
  for (const OptimizerState& state : optimizer_->states()) {
    ExportArray(state.values.get(), absl::StrCat(".", state.name), all.optimizer);
  }
  return all;
}

void ModelState::ExportArray(const float* flat, const std::string& suffix,
                             std::vector<Tensor>& tensors) const {
  for (const nn::ParameterInfo& parameter : plan_->parameters()) {
    std::vector<float> values(CountOf(parameter));
    // Cannot fail: name and size are the plan's own.
    const absl::Status exported = plan_->ExportFrom(flat, parameter, absl::MakeSpan(values));
    LOG_IF(DFATAL, !exported.ok()) << parameter.name << ": " << exported;
    tensors.push_back({absl::StrCat(parameter.name, suffix), parameter.shape, std::move(values)});
  }
}

void ModelState::ExportBuffers(std::vector<Tensor>& tensors) const {
  for (const nn::ParameterInfo& buffer : plan_->buffers()) {
    std::vector<float> values(CountOf(buffer));
    const absl::Status exported = plan_->Export(buffer, absl::MakeSpan(values));
    LOG_IF(DFATAL, !exported.ok()) << buffer.name << ": " << exported;
    tensors.push_back({buffer.name, buffer.shape, std::move(values)});
  }
}

std::string ModelState::WeightsDigest(absl::Span<const Tensor> parameters) {
  Sha256 hasher;
  for (const Tensor& parameter : parameters) {
    const auto& values = std::get<std::vector<float>>(parameter.values);
    hasher.Update(absl::StrCat(parameter.name, " ", absl::StrJoin(parameter.shape, "x"), "\n"));
    hasher.Update(values.data(), values.size() * sizeof(float));
  }
  return hasher.HexDigest();
}

std::vector<StateArray> ModelState::Arrays(const TensorRange& range) {
  const size_t end = std::min(range.end, plan_->parameter_elements());
  const size_t parameters = (end - range.begin) * sizeof(float);
  const size_t buffers = range.buffers ? plan_->buffer_elements() * sizeof(float) : 0;
  std::vector<StateArray> arrays = {{"parameters", parameters_ + range.begin, parameters},
                                    {"buffers", buffers_.get(), buffers}};
  if (average_.has_value()) {
    arrays.push_back({"average", average_->parameters() + range.begin, parameters});
    arrays.push_back({"average.buffers", average_->buffers(), buffers});
  }
  if (optimizer_ == nullptr) return arrays;
  for (size_t i = 0; i < optimizer_->states().size(); ++i) {
    arrays.push_back({absl::StrCat("optimizer.", optimizer_->states()[i].name),
                      optimizer_->state(i, range.begin), parameters});
  }
  return arrays;
}

absl::Status ModelState::PrepareToKeepBuffers() {
  if (plan_->buffer_elements() == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(kept_buffers_,
                   kernels::DeviceFloats::Create(plan_->device(), plan_->buffer_elements(),
                                                 "a copy of the running statistics"));
  return absl::OkStatus();
}

void ModelState::KeepBuffers() {
  if (kept_buffers_.bytes() == 0) return;
  plan_->device().Copy(kept_buffers_.get(), buffers_.get(), kept_buffers_.bytes());
}

void ModelState::RestoreBuffers() {
  if (kept_buffers_.bytes() == 0) return;
  plan_->device().Copy(buffers_.get(), kept_buffers_.get(), kept_buffers_.bytes());
}

void ModelState::RestoreBuffersOfSkippedStep(const kernels::UpdateScalars* scalars) {
  if (kept_buffers_.bytes() == 0) return;
  plan_->device().kernels().restore_skipped(scalars, kept_buffers_.get(), buffers_.get(),
                                            plan_->buffer_elements());
}

absl::Status ModelState::Broadcast(collectives::Communicator& communicator, uint32_t root,
                                   const BroadcastOptions& options) {
  RETURN_IF_ERROR(BroadcastParameters(communicator, root, options.canonical, parameters_));
  RETURN_IF_ERROR(BroadcastBuffers(communicator, root));
  if (!options.resuming) return absl::OkStatus();
  if (optimizer_ != nullptr) {
    for (const OptimizerState& state : optimizer_->states()) {
      RETURN_IF_ERROR(
          BroadcastParameters(communicator, root, options.canonical, state.values.get()));
    }
  }
  if (!average_.has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(
      BroadcastParameters(communicator, root, options.canonical, average_->parameters()));
  return WithAverage([&] { return BroadcastBuffers(communicator, root); });
}

absl::Status ModelState::BroadcastParameters(collectives::Communicator& communicator, uint32_t root,
                                             bool canonical, float* flat) {
  if (!canonical && plan_->device().host_memory()) {
    if (communicator.size() == 1) return absl::OkStatus();
    return communicator
        .Broadcast(flat, plan_->parameter_elements(), collectives::DataType::kFloat32, root)
        ->Wait();
  }
  return BroadcastValues(
      communicator, root, plan_->parameters(),
      [&](const nn::ParameterInfo& info, absl::Span<float> values) {
        return plan_->ExportFrom(flat, info, values);
      },
      [&](const nn::ParameterInfo& info, absl::Span<const float> values) {
        return plan_->ImportInto(flat, info, values);
      });
}

absl::Status ModelState::BroadcastBuffers(collectives::Communicator& communicator, uint32_t root) {
  return BroadcastValues(
      communicator, root, plan_->buffers(),
      [this](const nn::ParameterInfo& info, absl::Span<float> values) {
        return plan_->Export(info, values);
      },
      [this](const nn::ParameterInfo& info, absl::Span<const float> values) {
        return plan_->Import(info, values);
      });
}

}  // namespace muster::train
