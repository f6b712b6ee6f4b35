#include "trainer/strategy/pipeline/stage_tensors.h"

#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"
#include "trainer/strategy/broadcast_bytes.h"

namespace muster::train {
namespace {

using collectives::Communicator;
using collectives::DataType;
using nlohmann::json;

// Header of one tensor. A message is a JSON array of headers followed by all values.
json Header(const Tensor& tensor) {
  return {{"name", tensor.name},
          {"shape", tensor.shape},
          {"integers", std::holds_alternative<std::vector<int64_t>>(tensor.values)}};
}

absl::Status Send(Communicator& stages, absl::Span<const float> values) {
  return stages.Send(values.data(), values.size(), DataType::kFloat32, 0)->Wait();
}
absl::Status Send(Communicator& stages, absl::Span<const int64_t> values) {
  return stages.Send(values.data(), values.size(), DataType::kInt64, 0)->Wait();
}

absl::Status SendTensors(Communicator& stages, const std::vector<Tensor>& tensors) {
  json headers = json::array();
  for (const Tensor& tensor : tensors) headers.push_back(Header(tensor));
  const std::string text = headers.dump();
  auto length = static_cast<int64_t>(text.size());
  RETURN_IF_ERROR(stages.Send(&length, 1, DataType::kInt64, 0)->Wait());
  RETURN_IF_ERROR(stages.Send(text.data(), text.size(), DataType::kUint8, 0)->Wait());
  for (const Tensor& tensor : tensors) {
    RETURN_IF_ERROR(
        std::visit([&](const auto& values) { return Send(stages, values); }, tensor.values));
  }
  return absl::OkStatus();
}

absl::Status ReceiveTensors(Communicator& stages, uint32_t from, std::vector<Tensor>& tensors) {
  int64_t length = 0;
  RETURN_IF_ERROR(stages.Recv(&length, 1, DataType::kInt64, from)->Wait());
  std::string text(static_cast<size_t>(length), '\0');
  RETURN_IF_ERROR(stages.Recv(text.data(), text.size(), DataType::kUint8, from)->Wait());
  const json headers = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!headers.is_array()) {
    return absl::DataLossError(absl::StrCat("cannot parse the tensors of stage ", from));
  }
  for (const json& header : headers) {
    Tensor& tensor = tensors.emplace_back();
    tensor.name = header["name"].get<std::string>();
    tensor.shape = header["shape"].get<std::vector<int64_t>>();
    size_t count = 1;
    for (const int64_t dimension : tensor.shape) count *= static_cast<size_t>(dimension);
    if (header["integers"].get<bool>()) {
      auto& values = tensor.values.emplace<std::vector<int64_t>>(count);
      RETURN_IF_ERROR(stages.Recv(values.data(), count, DataType::kInt64, from)->Wait());
    } else {
      auto& values = tensor.values.emplace<std::vector<float>>(count);
      RETURN_IF_ERROR(stages.Recv(values.data(), count, DataType::kFloat32, from)->Wait());
    }
  }
  return absl::OkStatus();
}

// Names of the arrays in memory.
constexpr char kModel[] = "model";
constexpr char kOptimizer[] = "optimizer";
constexpr char kAverage[] = "average";

}  // namespace

absl::StatusOr<std::vector<Tensor>> GatherStageTensors(Communicator& stages,
                                                       std::vector<Tensor> own) {
  if (stages.rank() > 0) {
    RETURN_IF_ERROR(SendTensors(stages, own));
    return std::vector<Tensor>();
  }
  for (uint32_t from = 1; from < stages.size(); ++from) {
    RETURN_IF_ERROR(ReceiveTensors(stages, from, own));
  }
  return own;
}

absl::StatusOr<TensorSet> OpenOnAllRanks(Communicator& world, uint32_t root,
                                         const std::string& path) {
  const bool is_root = world.rank() == root;
  absl::StatusOr<TensorSet> opened =
      is_root ? TensorSet::Open(path) : absl::UnknownError("not the root");
  int64_t files = opened.ok() ? static_cast<int64_t>(opened->files().size()) : -1;
  RETURN_IF_ERROR(world.Broadcast(&files, 1, DataType::kInt64, root)->Wait());
  if (files < 0) {
    if (is_root) return opened;
    return absl::AbortedError(absl::StrCat("rank ", root, " cannot read ", path));
  }
  std::vector<SafetensorsFile> copies;
  for (int64_t i = 0; i < files; ++i) {
    absl::Span<const uint8_t> contents;
    if (is_root) contents = opened->files()[static_cast<size_t>(i)].bytes();
    std::vector<uint8_t> bytes(contents.begin(), contents.end());
    RETURN_IF_ERROR(BroadcastBytes(world, root, bytes));
    if (is_root) continue;
    ASSIGN_OR_RETURN(SafetensorsFile copy, SafetensorsFile::Parse(path, std::move(bytes)));
    copies.push_back(std::move(copy));
  }
  if (is_root) return opened;
  return TensorSet::Create(path, std::move(copies));
}

void AddFiles(const ModelTensors& tensors, WholeState& state) {
  const std::pair<const char*, const std::vector<Tensor>*> files[] = {
      {kModel, &tensors.model}, {kOptimizer, &tensors.optimizer}, {kAverage, &tensors.average}};
  for (const auto& [name, file] : files) {
    std::string& bytes = state.files.emplace_back();
    const absl::Status written = WriteSafetensors(*file, [&](absl::Span<const uint8_t> next) {
      bytes.append(next.begin(), next.end());
      return absl::OkStatus();
    });
    // Cannot fail: the names are those of one plan.
    LOG_IF(DFATAL, !written.ok()) << name << ": " << written;
    state.arrays.push_back({.name = name, .bytes = bytes.size()});
  }
  // The strings no longer move.
  for (size_t i = 0; i < state.files.size(); ++i) state.arrays[i].data = state.files[i].data();
}

absl::StatusOr<ReadTensors> ReadPartsOnAllRanks(Communicator& world, const CheckpointFiles& files) {
  const char* const names[] = {kModel, kOptimizer, kAverage};
  std::vector<SafetensorsFile> read[std::size(names)];
  for (const MemoryPart& part : files.parts) {
    MemoryCheckpoints::Contents contents;
    if (world.rank() == part.rank) {
      ASSIGN_OR_RETURN(contents, files.memory->ReadContents(part.checkpoint));
    }
    for (size_t i = 0; i < std::size(names); ++i) {
      RETURN_IF_ERROR(BroadcastBytes(world, part.rank, contents[names[i]]));
      ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Parse("the state in memory",
                                                                    std::move(contents[names[i]])));
      read[i].push_back(std::move(file));
    }
  }
  const auto set = [](std::vector<SafetensorsFile>& of_parts) {
    return TensorSet::Create("the state in memory", std::move(of_parts));
  };
  ASSIGN_OR_RETURN(TensorSet model, set(read[0]));
  ASSIGN_OR_RETURN(TensorSet optimizer, set(read[1]));
  ASSIGN_OR_RETURN(TensorSet average, set(read[2]));
  return ReadTensors{std::move(model), std::move(optimizer), std::move(average)};
}

}  // namespace muster::train
