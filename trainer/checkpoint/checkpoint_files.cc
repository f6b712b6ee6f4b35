#include "trainer/checkpoint/checkpoint_files.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/sha256.h"
#include "common/status.h"
#include "nlohmann/json.hpp"
#include "trainer/checkpoint/loss_scale_json.h"
#include "trainer/data/durable_file.h"
#include "trainer/data/mapped_file.h"

namespace muster::train {
namespace {

using Json = nlohmann::ordered_json;

// Bytes verified between two reports of progress.
constexpr size_t kPieceBytes = 1 << 20;

absl::Status FinishFile(const std::string& name, data::DurableFile& file, Manifest& manifest) {
  RETURN_IF_ERROR(file.Close());
  manifest[name] = {file.size_bytes(), file.Sha256Hex()};
  return absl::OkStatus();
}

absl::Status WriteText(const std::string& directory, const std::string& name,
                       const std::string& text, Manifest& manifest) {
  ASSIGN_OR_RETURN(auto file, data::DurableFile::Create(absl::StrCat(directory, "/", name)));
  RETURN_IF_ERROR(file->Append(text));
  return FinishFile(name, *file, manifest);
}

absl::StatusOr<Json> ReadJson(const std::string& path) {
  ASSIGN_OR_RETURN(const data::MappedFile file, data::MappedFile::Open(path));
  Json json = Json::parse(file.bytes().begin(), file.bytes().end(), /*cb=*/nullptr,
                          /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::DataLossError(absl::StrCat(path, " is not a JSON object"));
  return json;
}

// Returns member `key`, or a default value if it is missing or has another type.
template <typename Value>
Value Get(const Json& json, const char* key) {
  if constexpr (std::is_same_v<Value, std::string>) {
    const auto found = json.find(key);
    return found != json.end() && found->is_string() ? found->template get<std::string>() : Value{};
  } else {
    return NumberIn(json, key, Value{});
  }
}

// Checks a file against its entry in the manifest.
absl::Status VerifyFile(const std::string& path, const Json& entry, const ByteProgress& progress) {
  const auto file = data::MappedFile::Open(path);
  if (!file.ok()) return absl::DataLossError(file.status().message());
  const uint64_t expected_bytes = Get<uint64_t>(entry, "bytes");
  if (file->bytes().size() != expected_bytes) {
    return absl::DataLossError(absl::StrCat(path, " has ", file->bytes().size(),
                                            " bytes; expected by the manifest: ", expected_bytes));
  }
  Sha256 hasher;
  absl::Span<const uint8_t> left = file->bytes();
  while (!left.empty()) {
    const absl::Span<const uint8_t> piece = left.first(std::min(left.size(), kPieceBytes));
    hasher.Update(piece.data(), piece.size());
    if (progress) progress(piece.size());
    left.remove_prefix(piece.size());
  }
  if (hasher.HexDigest() != Get<std::string>(entry, "sha256")) {
    return absl::DataLossError(absl::StrCat(path, " does not match its SHA-256 in the manifest"));
  }
  return absl::OkStatus();
}

// The manifest's entries by file name. NOT_FOUND, DATA_LOSS.
absl::StatusOr<Json> ReadManifest(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kManifestFile);
  ASSIGN_OR_RETURN(const Json manifest, ReadJson(path));
  const auto files = manifest.find("files");
  for (const std::string name : {kModelFile, kOptimizerFile, kStateFile}) {
    if (files == manifest.end() || !files->is_object() ||
        !(files->contains(name) || (name != kStateFile && files->contains(name + kIndexSuffix)))) {
      return absl::DataLossError(absl::StrCat(path, " does not list ", name));
    }
  }
  for (const auto& item : files->items()) {
    if (!item.value().is_object() || absl::StrContains(item.key(), '/')) {
      return absl::DataLossError(absl::StrCat(path, " has no size and SHA-256 for ", item.key()));
    }
  }
  return *files;
}

}  // namespace

absl::Status WriteTensors(const std::string& directory, const std::string& name,
                          absl::Span<const Tensor> tensors, const ByteProgress& progress,
                          Manifest& manifest) {
  ASSIGN_OR_RETURN(auto file,
                   data::DurableFile::Create(absl::StrCat(directory, "/", name), progress));
  RETURN_IF_ERROR(WriteSafetensors(
      tensors, [&file](absl::Span<const uint8_t> bytes) { return file->Append(bytes); }));
  return FinishFile(name, *file, manifest);
}

absl::Status WriteIndex(const std::string& directory, const std::string& name,
                        const TensorIndex& index, Manifest& manifest) {
  const Json json = {{"metadata", {{"total_size", index.total_bytes}}},
                     {"weight_map", index.file_of}};
  return WriteText(directory, absl::StrCat(name, kIndexSuffix), json.dump(2) + "\n", manifest);
}

absl::Status WriteState(const std::string& directory, const CheckpointState& state,
                        Manifest& manifest) {
  Json json = {
      {"step", state.step},
      {"epoch", state.epoch},
      {"sampler", {{"seed", state.seed}, {"epoch_samples", state.epoch_samples}}},
      {"global_batch", state.global_batch},
      {"world_size", state.world_size},
      {"job_id", state.job_id},
      {"generation", state.generation},
      {"training", state.training},
      {"training_seconds", state.training_seconds},
  };
  AddLossScale(state.loss_scale, json);
  const auto add = [&json](const char* key, const std::optional<double>& value) {
    // JSON has no NaN.
    if (value.has_value() && std::isfinite(*value)) json[key] = *value;
  };
  add("test_accuracy", state.test_accuracy);
  add("test_loss", state.test_loss);
  if (!state.summary.empty()) {
    RETURN_IF_ERROR(WriteText(directory, kSummaryFile, state.summary, manifest));
  }
  return WriteText(directory, kStateFile, json.dump(2) + "\n", manifest);
}

absl::Status WriteManifest(const std::string& directory, const Manifest& manifest) {
  Json files = Json::object();
  for (const auto& entry : manifest) {
    files[entry.first] = {{"bytes", entry.second.size_bytes}, {"sha256", entry.second.sha256}};
  }
  Manifest itself;
  return WriteText(directory, kManifestFile, Json{{"files", files}}.dump(2) + "\n", itself);
}

absl::Status VerifyManifest(const std::string& directory, const ByteProgress& progress) {
  ASSIGN_OR_RETURN(const Json files, ReadManifest(directory));
  for (const auto& item : files.items()) {
    RETURN_IF_ERROR(VerifyFile(absl::StrCat(directory, "/", item.key()), item.value(), progress));
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointState> ReadState(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kStateFile);
  ASSIGN_OR_RETURN(const Json files, ReadManifest(directory));
  RETURN_IF_ERROR(VerifyFile(path, files.at(kStateFile), /*progress=*/{}));
  ASSIGN_OR_RETURN(const Json json, ReadJson(path));
  CheckpointState state;
  state.step = Get<uint64_t>(json, "step");
  state.epoch = Get<double>(json, "epoch");
  state.global_batch = Get<uint64_t>(json, "global_batch");
  state.world_size = Get<uint32_t>(json, "world_size");
  state.job_id = Get<std::string>(json, "job_id");
  state.generation = Get<uint64_t>(json, "generation");
  state.training_digest = Get<std::string>(json, "training_digest");
  state.training_seconds = Get<double>(json, "training_seconds");
  if (const auto training = json.find("training"); training != json.end()) {
    for (const auto& field : training->items()) {
      if (field.value().is_string()) state.training[field.key()] = field.value();
    }
  }
  const auto sampler = json.find("sampler");
  if (sampler != json.end() && sampler->is_object()) {
    state.seed = Get<uint64_t>(*sampler, "seed");
    state.epoch_samples = Get<uint64_t>(*sampler, "epoch_samples");
  }
  if (json.contains("test_accuracy")) state.test_accuracy = Get<double>(json, "test_accuracy");
  if (json.contains("test_loss")) state.test_loss = Get<double>(json, "test_loss");
  state.loss_scale = LossScaleIn(json);
  return state;
}

absl::StatusOr<std::string> ReadSummary(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kSummaryFile);
  ASSIGN_OR_RETURN(const Json files, ReadManifest(directory));
  const auto entry = files.find(kSummaryFile);
  if (entry == files.end()) return std::string();
  RETURN_IF_ERROR(VerifyFile(path, *entry, /*progress=*/{}));
  ASSIGN_OR_RETURN(const data::MappedFile file, data::MappedFile::Open(path));
  return std::string(file.bytes().begin(), file.bytes().end());
}

}  // namespace muster::train
