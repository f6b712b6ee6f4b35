#include "trainer/checkpoint/verifier.h"

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/sha256.h"
#include "common/status.h"
#include "glog/logging.h"
#include "trainer/checkpoint/checkpoint_files.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

constexpr char kUnit[] = "MiB verified";
constexpr char kValid[] = "valid";

// VerifyManifest, with progress in MiB.
absl::Status VerifyFiles(const std::string& directory,
                         const std::function<void(uint64_t)>& report) {
  uint64_t verified_bytes = 0;
  return VerifyManifest(directory, [&](uint64_t bytes) {
    verified_bytes += bytes;
    report(verified_bytes >> 20);
  });
}

// Digest of the reader and of the names, sizes and times of the checkpoint's files.
std::string KeyOf(const std::string& directory, const std::string& reader) {
  std::error_code error;
  std::set<std::string> files;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    struct stat info;
    if (stat(it->path().c_str(), &info) != 0) continue;
    files.insert(absl::StrCat(it->path().filename().string(), " ", info.st_ino, " ", info.st_size,
                              " ", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, "\n"));
  }
  Sha256 key;
  key.Update(absl::StrCat(reader, "\n"));
  for (const std::string& file : files) key.Update(file);
  return key.HexDigest();
}

// The recorded result of a verification, if it is for `key`: a line with the key, then "valid" or
// the message of a DATA_LOSS.
std::optional<absl::Status> ReadResult(const std::string& path, const std::string& key) {
  const auto file = data::MapCacheFile(path);
  if (!file.ok()) return std::nullopt;
  absl::string_view result(reinterpret_cast<const char*>(file->bytes().data()),
                           file->bytes().size() - data::kCacheDigestBytes);
  if (!absl::ConsumePrefix(&result, absl::StrCat(key, "\n"))) return std::nullopt;
  return result == kValid ? absl::OkStatus() : absl::DataLossError(result);
}

}  // namespace

absl::Status Verifier::Verify(const std::string& directory) const {
  const auto verify_alone = [&] {
    return VerifyFiles(directory, [this](uint64_t mib) { cache_.Report(mib, kUnit); });
  };
  if (cache_.dir.empty()) return verify_alone();
  std::error_code error;
  const fs::path resolved = fs::canonical(directory, error);
  if (error) return verify_alone();
  const std::string target =
      absl::StrCat(cache_.dir, "/checkpoint-", Sha256Hex(resolved.string()).substr(0, 32));
  const std::string key = KeyOf(directory, reader_);
  std::optional<absl::Status> result;
  const absl::Status made = data::MakeCacheFile(
      target, kUnit, cache_,
      [&] {
        result = ReadResult(target, key);
        return result.has_value();
      },
      [&](const data::NewCacheFile& file) -> absl::Status {
        result = VerifyFiles(directory, file.report);
        // Another error may be a passing one of this process.
        if (!result->ok() && !absl::IsDataLoss(*result)) return *result;
        return file.contents.Append(
            absl::StrCat(key, "\n", result->ok() ? kValid : result->message()));
      });
  if (result.has_value()) return *result;
  LOG(WARNING) << "cannot share the verification of " << directory << ": " << made.message();
  return verify_alone();
}

}  // namespace muster::train
