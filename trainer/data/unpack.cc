#include "trainer/data/unpack.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status.h"
#include "trainer/data/idx.h"

namespace muster::data {
namespace {

constexpr size_t kChunkBytes = 1 << 20;  // the unit of progress

// Inflates as many bytes of `source` into the file as its IDX header specifies.
absl::Status Inflate(const std::string& source, const NewCacheFile& target) {
  gzFile file = gzopen(source.c_str(), "rb");
  if (file == nullptr) return ErrnoStatus(errno, absl::StrCat("open ", source));
  absl::Cleanup close_file = [file] { gzclose_r(file); };
  gzbuffer(file, kChunkBytes / 4);

  std::vector<uint8_t> chunk(kChunkBytes);
  IdxHeader header;
  size_t total_bytes = 0;
  while (true) {
    const int count = gzread(file, chunk.data(), static_cast<unsigned>(chunk.size()));
    int code = Z_OK;
    const char* reason = gzerror(file, &code);
    // For a truncated file, zlib returns the bytes that it has before it reports the error.
    const bool truncated = code == Z_BUF_ERROR;
    if (count < 0 && !truncated) {
      if (code == Z_ERRNO) return ErrnoStatus(errno, absl::StrCat("read ", source));
      return absl::DataLossError(
          absl::StrCat(source, " is damaged after ", total_bytes, " unpacked bytes: ", reason));
    }
    const absl::Span<const uint8_t> bytes(chunk.data(), static_cast<size_t>(std::max(count, 0)));
    if (total_bytes == 0) {
      ASSIGN_OR_RETURN(header, ParseIdxHeader(bytes, source));
    }
    total_bytes += bytes.size();
    if (total_bytes > header.file_bytes) {
      return absl::DataLossError(
          absl::StrCat(source, " contains more bytes than its header specifies"));
    }
    RETURN_IF_ERROR(target.contents.Append(bytes));
    target.report(total_bytes / kChunkBytes);
    if (bytes.size() < chunk.size()) break;
  }
  if (total_bytes < header.file_bytes) {
    return absl::DataLossError(
        absl::StrCat(source, " is truncated: ", header.file_bytes - total_bytes, " of ",
                     header.file_bytes, " unpacked bytes are missing"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status UnpackIdx(const std::string& source, const std::string& target, const Cache& cache) {
  return MakeCacheFile(
      target, "MiB unpacked", cache, [&target] { return MapCacheFile(target).ok(); },
      [&source](const NewCacheFile& file) { return Inflate(source, file); });
}

}  // namespace muster::data
