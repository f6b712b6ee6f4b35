#include "trainer/checkpoint/tensor_set.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "nlohmann/json.hpp"
#include "trainer/checkpoint/checkpoint_files.h"
#include "trainer/data/mapped_file.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// File names by tensor.
absl::StatusOr<std::map<std::string, std::string>> ReadWeightMap(const std::string& path) {
  ASSIGN_OR_RETURN(const data::MappedFile file, data::MappedFile::Open(path));
  const nlohmann::json index = nlohmann::json::parse(file.bytes().begin(), file.bytes().end(),
                                                     /*cb=*/nullptr, /*allow_exceptions=*/false);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object()) {
    return absl::DataLossError(absl::StrCat(path, " has no weight_map"));
  }
  std::map<std::string, std::string> files;
  for (const auto& item : map->items()) {
    const std::string name = item.value().is_string() ? item.value().get<std::string>() : "";
    if (name.empty() || absl::StrContains(name, '/')) {
      return absl::DataLossError(
          absl::StrCat(path, " names no file in its folder for tensor ", item.key()));
    }
    files.emplace(item.key(), name);
  }
  return files;
}

}  // namespace

bool TensorsExist(const std::string& path) {
  return Exists(path) || Exists(absl::StrCat(path, kIndexSuffix));
}

absl::StatusOr<TensorSet> TensorSet::Open(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return Open(absl::StrCat(path, "/", kModelFile));
  if (absl::EndsWith(path, kIndexSuffix)) return OpenIndex(path);
  if (const std::string index = absl::StrCat(path, kIndexSuffix); !Exists(path) && Exists(index)) {
    return OpenIndex(index);
  }
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  std::vector<SafetensorsFile> files;
  files.push_back(std::move(file));
  return Create(path, std::move(files));
}

absl::StatusOr<TensorSet> TensorSet::OpenIndex(const std::string& path) {
  ASSIGN_OR_RETURN(const auto weight_map, ReadWeightMap(path));
  const std::string folder = fs::path(path).parent_path().string();
  std::map<std::string, size_t> opened;
  std::vector<SafetensorsFile> files;
  for (const auto& [tensor, name] : weight_map) {
    if (opened.emplace(name, files.size()).second) {
      ASSIGN_OR_RETURN(
          SafetensorsFile file,
          SafetensorsFile::Open(folder.empty() ? name : absl::StrCat(folder, "/", name)));
      files.push_back(std::move(file));
    }
    const SafetensorsFile& file = files[opened[name]];
    if (!file.Contains(tensor)) {
      return absl::DataLossError(
          absl::StrCat(path, " lists tensor ", tensor, ", which ", file.path(), " does not have"));
    }
  }
  return Create(path, std::move(files));
}

absl::StatusOr<TensorSet> TensorSet::Create(std::string path, std::vector<SafetensorsFile> files) {
  TensorSet set;
  set.path_ = std::move(path);
  set.files_ = std::move(files);
  for (size_t i = 0; i < set.files_.size(); ++i) {
    for (std::string& name : set.files_[i].names()) {
      const auto [known, added] = set.file_of_.emplace(std::move(name), i);
      if (!added) {
        return absl::DataLossError(absl::StrCat(set.path_, ": tensor ", known->first, " is in ",
                                                set.files_[known->second].path(), " and in ",
                                                set.files_[i].path()));
      }
    }
  }
  return set;
}

std::vector<std::string> TensorSet::names() const {
  std::vector<std::string> names;
  for (const auto& entry : file_of_) names.push_back(entry.first);
  return names;
}

absl::StatusOr<std::vector<float>> TensorSet::ReadFloats(absl::string_view name,
                                                         absl::Span<const int64_t> shape) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end()) {
    return absl::NotFoundError(absl::StrCat(path_, " has no tensor ", name));
  }
  return files_[found->second].ReadFloats(name, shape);
}

}  // namespace muster::train
