#include "worker/train/model_state.h"

#include <functional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
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

Tensor ExportTensor(const nn::ParameterInfo& parameter, const Exporter& exporter) {
  std::vector<float> values(CountOf(parameter));
  // The size is the plan's own, so nothing can be wrong with it.
  const absl::Status status = exporter(parameter, absl::MakeSpan(values));
  LOG_IF(DFATAL, !status.ok()) << parameter.name << ": " << status;
  return {parameter.name, parameter.shape, std::move(values)};
}

}  // namespace

ModelState::ModelState(nn::Plan* plan)
    : plan_(plan),
      parameters_(MakeAlignedFloats(plan->parameter_elements())),
      momentum_(MakeAlignedFloats(plan->parameter_elements())),
      buffers_(MakeAlignedFloats(plan->buffer_elements())) {
  plan_->Bind(parameters_.get(), nullptr, buffers_.get());
}

void ModelState::BindGradients(float* gradients) {
  plan_->Bind(parameters_.get(), gradients, buffers_.get());
}

uint64_t ModelState::parameter_count() const {
  uint64_t count = 0;
  for (const nn::ParameterInfo& parameter : plan_->parameters()) count += CountOf(parameter);
  return count;
}

std::vector<Tensor> ModelState::ExportModel(uint64_t steps) const {
  const Exporter exporter = [this](const nn::ParameterInfo& parameter, absl::Span<float> values) {
    return plan_->Export(parameter, values);
  };
  std::vector<Tensor> tensors;
  for (const nn::ParameterInfo& parameter : plan_->parameters()) {
    tensors.push_back(ExportTensor(parameter, exporter));
  }
  for (const nn::ParameterInfo& buffer : plan_->buffers()) {
    tensors.push_back(ExportTensor(buffer, exporter));
    // torch counts a batch norm's training steps in a buffer of its own.
    absl::string_view layer = buffer.name;
    if (absl::ConsumeSuffix(&layer, "running_var")) {
      tensors.push_back({absl::StrCat(layer, "num_batches_tracked"),
                         {},
                         std::vector<int64_t>{static_cast<int64_t>(steps)}});
    }
  }
  return tensors;
}

std::vector<Tensor> ModelState::ExportMomentum() const {
  std::vector<Tensor> tensors;
  for (const nn::ParameterInfo& parameter : plan_->parameters()) {
    tensors.push_back(
        ExportTensor(parameter, [this](const nn::ParameterInfo& p, absl::Span<float> values) {
          return plan_->ExportFrom(momentum_.get(), p, values);
        }));
  }
  return tensors;
}

absl::Status ModelState::ImportModel(const std::string& path) {
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  for (const auto& parameters : {plan_->parameters(), plan_->buffers()}) {
    for (const nn::ParameterInfo& parameter : parameters) {
      ASSIGN_OR_RETURN(const std::vector<float> values,
                       file.ReadFloats(parameter.name, parameter.shape));
      RETURN_IF_ERROR(plan_->Import(parameter, values));
    }
  }
  return absl::OkStatus();
}

absl::Status ModelState::ImportMomentum(const std::string& path) {
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  for (const nn::ParameterInfo& parameter : plan_->parameters()) {
    ASSIGN_OR_RETURN(const std::vector<float> values,
                     file.ReadFloats(parameter.name, parameter.shape));
    RETURN_IF_ERROR(plan_->ImportInto(momentum_.get(), parameter, values));
  }
  return absl::OkStatus();
}

std::string ModelState::WeightsDigest() const {
  Sha256 hasher;
  for (const nn::ParameterInfo& parameter : plan_->parameters()) {
    const Tensor tensor =
        ExportTensor(parameter, [this](const nn::ParameterInfo& p, absl::Span<float> values) {
          return plan_->Export(p, values);
        });
    hasher.Update(absl::StrCat(tensor.name, " ", absl::StrJoin(tensor.shape, "x"), "\n"));
    const auto& values = std::get<std::vector<float>>(tensor.values);
    hasher.Update(values.data(), values.size() * sizeof(float));
  }
  return hasher.HexDigest();
}

absl::Status ModelState::Broadcast(collectives::Communicator& communicator, uint32_t root,
                                   bool with_momentum) {
  std::vector<Piece> pieces;
  for (const auto& info : plan_->parameters()) pieces.push_back({&info, /*momentum=*/false});
  for (const auto& info : plan_->buffers()) pieces.push_back({&info, /*momentum=*/false});
  if (with_momentum) {
    for (const auto& info : plan_->parameters()) pieces.push_back({&info, /*momentum=*/true});
  }
  return BroadcastPieces(communicator, root, pieces);
}

absl::Status ModelState::BroadcastBuffers(collectives::Communicator& communicator, uint32_t root) {
  std::vector<Piece> pieces;
  for (const auto& info : plan_->buffers()) pieces.push_back({&info, /*momentum=*/false});
  return BroadcastPieces(communicator, root, pieces);
}

absl::Status ModelState::BroadcastPieces(collectives::Communicator& communicator, uint32_t root,
                                         absl::Span<const Piece> pieces) {
  size_t total = 0;
  for (const Piece& piece : pieces) total += CountOf(*piece.info);
  if (communicator.size() == 1 || total == 0) return absl::OkStatus();

  std::vector<float> packed(total);
  const auto for_each = [&](const auto& copy) -> absl::Status {
    absl::Span<float> rest = absl::MakeSpan(packed);
    for (const Piece& piece : pieces) {
      const size_t count = CountOf(*piece.info);
      RETURN_IF_ERROR(copy(piece, rest.first(count)));
      rest.remove_prefix(count);
    }
    return absl::OkStatus();
  };
  const bool is_root = communicator.rank() == root;
  if (is_root) {
    RETURN_IF_ERROR(for_each([this](const Piece& piece, absl::Span<float> values) {
      return piece.momentum ? plan_->ExportFrom(momentum_.get(), *piece.info, values)
                            : plan_->Export(*piece.info, values);
    }));
  }
  RETURN_IF_ERROR(
      communicator.Broadcast(packed.data(), total, collectives::DataType::kFloat32, root)->Wait());
  if (is_root) return absl::OkStatus();
  return for_each([this](const Piece& piece, absl::Span<const float> values) {
    return piece.momentum ? plan_->ImportInto(momentum_.get(), *piece.info, values)
                          : plan_->Import(*piece.info, values);
  });
}

}  // namespace muster::train
