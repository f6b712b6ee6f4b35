#include "trainer/checkpoint/part_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "nlohmann/json.hpp"
#include "trainer/data/mapped_file.h"
#include "trainer/exit_code.h"

namespace muster::train {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const Shard& shard) {
  return {{"name", shard.name},
          {"bytes", shard.entry.size_bytes},
          {"sha256", shard.entry.sha256},
          {"tensor_bytes", shard.tensor_bytes},
          {"tensors", shard.tensors}};
}

}  // namespace

std::string FormatPartFile(const PartFile& part) {
  Json json = {{"attempt", part.attempt}};
  if (!part.error.ok()) {
    json["error"] = {{"code", part.error.raw_code()},
                     {"message", std::string(part.error.message())},
                     {"exit_code", ExitCodeOf(part.error)}};
  }
  json["files"] = Json::object();
  for (const auto& [file, shard] : part.shards) json["files"][file] = ToJson(shard);
  // A message may contain any bytes, e.g. those of a path.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<PartFile> ReadPartFile(const std::string& path) {
  ASSIGN_OR_RETURN(const data::MappedFile mapped, data::MappedFile::Open(path));
  const Json json = Json::parse(mapped.bytes().begin(), mapped.bytes().end(), /*cb=*/nullptr,
                                /*allow_exceptions=*/false);
  const auto malformed = [&] {
    return absl::DataLossError(absl::StrCat(path, " is not the report of a part"));
  };
  if (!json.is_object() || !json.contains("files") || !json["files"].is_object()) {
    return malformed();
  }
  // Accessors throw for members that are missing or of another type.
  using Count = Json::number_unsigned_t;
  try {
    PartFile part;
    part.attempt = json.at("attempt").get<std::string>();
    if (json.contains("error")) {
      const Json& error = json["error"];
      part.error =
          absl::Status(static_cast<absl::StatusCode>(error.at("code").get_ref<const Count&>()),
                       error.at("message").get<std::string>());
      const auto exit_code = static_cast<int>(error.at("exit_code").get_ref<const Count&>());
      if (exit_code != kExitFailure) part.error = WithExitCode(part.error, exit_code);
    }
    for (const auto& item : json["files"].items()) {
      const Json& value = item.value();
      Shard& shard = part.shards[item.key()];
      shard.name = value.at("name").get<std::string>();
      shard.entry = {value.at("bytes").get_ref<const Count&>(),
                     value.at("sha256").get<std::string>()};
      shard.tensor_bytes = value.at("tensor_bytes").get_ref<const Count&>();
      shard.tensors = value.at("tensors").get<std::vector<std::string>>();
    }
    return part;
  } catch (const Json::exception&) {
    return malformed();
  }
}

}  // namespace muster::train
