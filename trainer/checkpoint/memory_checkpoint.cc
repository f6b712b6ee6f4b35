#include "trainer/checkpoint/memory_checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/files/replace_file.h"
#include "common/status.h"
#include "nlohmann/json.hpp"
#include "trainer/checkpoint/loss_scale_json.h"
#include "trainer/checkpoint/retention.h"
#include "trainer/data/mapped_file.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kLengthBytes = sizeof(uint64_t);

std::string HeaderOf(const MemoryCheckpoint& checkpoint, absl::Span<const StateArray> arrays) {
  Json json = {{"layout", checkpoint.layout},
               {"part", checkpoint.part},
               {"parts", checkpoint.parts},
               {"arrays", Json::object()}};
  for (const StateArray& array : arrays) json["arrays"][array.name] = array.bytes;
  AddLossScale(checkpoint.loss_scale, json);
  if (!checkpoint.summary.empty()) {
    json["summary_bytes"] = checkpoint.summary.size();
    json["training_seconds"] = checkpoint.training_seconds;
  }
  return json.dump();
}

// Empty if the file has no header.
absl::string_view HeaderIn(absl::Span<const uint8_t> file) {
  if (file.size() < kLengthBytes) return {};
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  file.remove_prefix(kLengthBytes);
  if (length > file.size()) return {};
  return {reinterpret_cast<const char*>(file.data()), static_cast<size_t>(length)};
}

// Completes the checkpoint that the name describes. Returns false if the file is damaged.
bool ReadHeader(const std::string& path, MemoryCheckpoint& checkpoint) {
  const auto file = data::MappedFile::Open(path);
  if (!file.ok()) return false;
  const absl::string_view header = HeaderIn(file->bytes());
  const Json json = Json::parse(header, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return false;
  const auto layout = json.find("layout"), part = json.find("part"), parts = json.find("parts");
  if (layout == json.end() || !layout->is_string() || part == json.end() ||
      !part->is_number_unsigned() || parts == json.end() || !parts->is_number_unsigned()) {
    return false;
  }
  checkpoint.layout = layout->get<std::string>();
  checkpoint.part = part->get<uint32_t>();
  checkpoint.parts = parts->get<uint32_t>();
  checkpoint.loss_scale = LossScaleIn(json);
  const auto bytes = json.find("summary_bytes"), seconds = json.find("training_seconds");
  if (bytes == json.end()) return true;  // written by an earlier release
  const absl::Span<const uint8_t> rest = file->bytes().subspan(kLengthBytes + header.size());
  if (!bytes->is_number_unsigned() || bytes->get<size_t>() > rest.size() || seconds == json.end() ||
      !seconds->is_number()) {
    return false;
  }
  checkpoint.training_seconds = seconds->get<double>();
  checkpoint.summary.assign(rest.begin(), rest.begin() + bytes->get<size_t>());
  return true;
}

// False with errno set.
bool WriteContents(int file, const MemoryCheckpoint& checkpoint,
                   absl::Span<const StateArray> arrays) {
  const std::string header = HeaderOf(checkpoint, arrays);
  const uint64_t length = header.size();
  return WriteAll(file, {reinterpret_cast<const char*>(&length), kLengthBytes}) &&
         WriteAll(file, header) && WriteAll(file, checkpoint.summary) &&
         std::all_of(arrays.begin(), arrays.end(), [file](const StateArray& array) {
           return WriteAll(file, {reinterpret_cast<const char*>(array.data), array.bytes});
         });
}

FolderName NameOf(const MemoryCheckpoint& checkpoint) {
  FolderName name{checkpoint.step, checkpoint.generation};
  if (checkpoint.parts > 1) {
    name.job_id = absl::StrCat("part", checkpoint.part, "of", checkpoint.parts);
  }
  return name;
}

absl::Status Damaged(const std::string& path) {
  return absl::DataLossError(absl::StrCat(path, " does not contain the state of this training"));
}

}  // namespace

std::string MemoryCheckpoints::Path(const MemoryCheckpoint& checkpoint) const {
  return absl::StrCat(directory_, "/", FormatFolderName(NameOf(checkpoint)));
}

absl::StatusOr<bool> MemoryCheckpoints::Write(const MemoryCheckpoint& checkpoint,
                                              absl::Span<const StateArray> arrays) const {
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("create ", directory_));
  const std::string path = Path(checkpoint);
  if (access(path.c_str(), F_OK) == 0) return false;
  const std::string unfinished =
      absl::StrCat(directory_, "/", UnfinishedFolderName(NameOf(checkpoint)));
  // Whoever creates it writes.
  const OwnedFd file(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0 && errno == EEXIST) return false;
  if (file.get() < 0) return ErrnoStatus(errno, absl::StrCat("create ", unfinished));
  if (WriteContents(file.get(), checkpoint, arrays) &&
      std::rename(unfinished.c_str(), path.c_str()) == 0) {
    return true;
  }
  const absl::Status status = ErrnoStatus(errno, absl::StrCat("write ", path));
  unlink(unfinished.c_str());
  return status;
}

std::vector<MemoryCheckpoint> MemoryCheckpoints::Find(uint64_t before_generation,
                                                      const std::string& layout) const {
  std::vector<MemoryCheckpoint> found;
  std::error_code error;  // a directory that does not exist has no checkpoints
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, error)) {
    const auto name = ParseFolderName(entry.path().filename().string());
    if (!name.has_value() || name->generation >= before_generation) continue;
    MemoryCheckpoint checkpoint{.step = name->step, .generation = name->generation};
    if (ReadHeader(entry.path(), checkpoint) && checkpoint.layout == layout) {
      found.push_back(std::move(checkpoint));
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(a.generation, a.step, b.part) > std::tie(b.generation, b.step, a.part);
  });
  return found;
}

absl::Status MemoryCheckpoints::Read(const MemoryCheckpoint& checkpoint,
                                     absl::Span<const StateArray> arrays) const {
  const std::string path = Path(checkpoint);
  ASSIGN_OR_RETURN(const data::MappedFile file, data::MappedFile::Open(path));
  const absl::string_view header = HeaderIn(file.bytes());
  const size_t begin = kLengthBytes + header.size() + checkpoint.summary.size();
  size_t bytes = begin;
  for (const StateArray& array : arrays) bytes += array.bytes;
  if (header != HeaderOf(checkpoint, arrays) || file.bytes().size() != bytes) return Damaged(path);
  const uint8_t* next = file.bytes().data() + begin;
  for (const StateArray& array : arrays) {
    if (array.bytes > 0) std::memcpy(array.data, next, array.bytes);
    next += array.bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<MemoryCheckpoints::Contents> MemoryCheckpoints::ReadContents(
    const MemoryCheckpoint& checkpoint) const {
  const std::string path = Path(checkpoint);
  ASSIGN_OR_RETURN(const data::MappedFile file, data::MappedFile::Open(path));
  const absl::string_view header = HeaderIn(file.bytes());
  const Json json = Json::parse(header, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("arrays")) return Damaged(path);
  const size_t begin = kLengthBytes + header.size() + checkpoint.summary.size();
  if (begin > file.bytes().size()) return Damaged(path);
  absl::Span<const uint8_t> rest = file.bytes().subspan(begin);
  Contents contents;
  for (const auto& [name, size] : json["arrays"].items()) {
    if (!size.is_number_unsigned() || size.get<size_t>() > rest.size()) return Damaged(path);
    const absl::Span<const uint8_t> array = rest.first(size.get<size_t>());
    contents[name].assign(array.begin(), array.end());
    rest.remove_prefix(array.size());
  }
  if (!rest.empty()) return Damaged(path);
  return contents;
}

void MemoryCheckpoints::RemoveBefore(uint64_t generation) const {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, error)) {
    std::string name = entry.path().filename().string();
    constexpr absl::string_view kUnfinished = ".unfinished-";
    if (absl::StartsWith(name, kUnfinished)) name = name.substr(kUnfinished.size());
    const auto parsed = ParseFolderName(name);
    if (parsed.has_value() && parsed->generation < generation) unlink(entry.path().c_str());
  }
}

}  // namespace muster::train
