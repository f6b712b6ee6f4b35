#include "cli/files/upload.h"

#include <cstdint>
#include <fstream>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/output/words.h"
#include "common/limits.h"
#include "common/status.h"

namespace muster::cli {
namespace {

absl::Status Upload(const LocalFile& file, ClusterClient& client) {
  std::ifstream source(file.source, std::ios::binary);
  const absl::Status status = client.UploadFile(
      file.spec.sha256(), file.spec.size_bytes(), [&source]() -> absl::StatusOr<std::string> {
        std::string data(limits::kLogChunkBytes, '\0');
        source.read(data.data(), static_cast<std::streamsize>(data.size()));
        data.resize(static_cast<size_t>(source.gcount()));
        return data;
      });
  // The coordinator found another digest or size.
  if (absl::IsInvalidArgument(status)) {
    return absl::AbortedError(
        absl::StrCat(file.source, " was changed while it was uploaded; submit again"));
  }
  return Annotate(status, absl::StrCat("upload ", file.source));
}

// "train.py (2.1 KiB)" or "12 files (34 KiB)".
std::string NounFor(const std::map<std::string, LocalFile>& files, size_t count, uint64_t bytes) {
  const std::string what = files.size() == 1 ? Printable(files.begin()->first)
                           : count == files.size() || count == 0
                               ? absl::StrCat(files.size(), " files")
                               : absl::StrCat(count, " of ", files.size(), " files");
  return absl::StrCat(what, " (", Bytes(bytes), ")");
}

}  // namespace

absl::Status UploadFiles(const LocalFiles& files, ClusterClient& client, Console& console) {
  if (files.files().empty()) return absl::OkStatus();
  for (const std::string& skipped : files.skipped()) {
    console.Note("not uploading ", Printable(skipped));
  }
  v1::FindMissingFilesRequest request;
  uint64_t bytes = 0;
  for (const auto& [place, file] : files.files()) {
    request.add_sha256(file.spec.sha256());
    bytes += file.spec.size_bytes();
  }
  ASSIGN_OR_RETURN(const v1::FindMissingFilesResponse response,
                   client.Call<v1::FindMissingFilesResponse>(request));
  std::set<std::string> missing(response.sha256().begin(), response.sha256().end());
  if (missing.empty()) {
    console.Note(NounFor(files.files(), 0, bytes), files.files().size() == 1 ? " is" : " are",
                 " unchanged since the last upload");
    return absl::OkStatus();
  }
  size_t count = 0;
  bytes = 0;
  for (const auto& [place, file] : files.files()) {
    if (missing.count(file.spec.sha256()) == 0) continue;
    ++count;
    bytes += file.spec.size_bytes();
  }
  console.Note("uploading ", NounFor(files.files(), count, bytes));
  for (const auto& [place, file] : files.files()) {
    // Files with the same content are sent once.
    if (missing.erase(file.spec.sha256()) > 0) RETURN_IF_ERROR(Upload(file, client));
  }
  return absl::OkStatus();
}

}  // namespace muster::cli
