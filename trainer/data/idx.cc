#include "trainer/data/idx.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "trainer/data/unpack.h"

namespace muster::data {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 40;

uint32_t BigEndian32(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

bool Exists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

absl::Status CheckSize(const IdxHeader& header, size_t size_bytes, absl::string_view path) {
  if (size_bytes < header.file_bytes) {
    return absl::DataLossError(absl::StrCat(path, " is truncated: ", header.file_bytes - size_bytes,
                                            " of ", header.file_bytes, " bytes are missing"));
  }
  if (size_bytes > header.file_bytes) {
    return absl::DataLossError(absl::StrCat(path, " has ", size_bytes - header.file_bytes,
                                            " bytes more than its header specifies"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<IdxHeader> ParseIdxHeader(absl::Span<const uint8_t> bytes, absl::string_view path) {
  const auto truncated = [path](size_t missing) {
    return absl::DataLossError(
        absl::StrCat(path, " is truncated: ", missing, " bytes of its header are missing"));
  };
  if (bytes.size() < 4) return truncated(4 - bytes.size());
  if (bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8) {
    return absl::DataLossError(absl::StrCat(path, " is not an IDX file of unsigned bytes"));
  }
  const size_t dimensions = bytes[3];
  IdxHeader header;
  header.header_bytes = 4 + 4 * dimensions;
  if (dimensions == 0 || header.header_bytes > kMaxIdxHeaderBytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": header specifies ", dimensions, " dimensions"));
  }
  if (bytes.size() < header.header_bytes) return truncated(header.header_bytes - bytes.size());
  uint64_t elements = 1;
  for (size_t i = 0; i < dimensions; ++i) {
    header.dimensions.push_back(BigEndian32(&bytes[4 + 4 * i]));
    // The product of numbers below 2^40 and 2^32 may overflow 64 bits; the check after each step
    // keeps the first below 2^40.
    if (header.dimensions.back() != 0 && elements > kMaxFileBytes / header.dimensions.back()) {
      return absl::DataLossError(
          absl::StrCat(path, ": header specifies more than ", kMaxFileBytes, " bytes"));
    }
    elements *= header.dimensions.back();
  }
  header.file_bytes = header.header_bytes + elements;
  return header;
}

IdxFile::IdxFile(std::string source, IdxHeader header, MappedFile file)
    : source_(std::move(source)), header_(std::move(header)), file_(std::move(file)) {}

absl::StatusOr<IdxFile> IdxFile::Open(const std::string& path, const Cache& cache) {
  const bool plain = Exists(path);
  const std::string source = plain || absl::EndsWith(path, ".gz") ? path : path + ".gz";
  if (!plain && !Exists(source)) {
    return absl::NotFoundError(absl::StrCat("neither ", path, " nor ", source, " exists"));
  }
  if (!absl::EndsWith(source, ".gz")) {
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(source));
    ASSIGN_OR_RETURN(IdxHeader header, ParseIdxHeader(file.bytes(), source));
    RETURN_IF_ERROR(CheckSize(header, file.bytes().size(), source));
    return IdxFile(source, std::move(header), std::move(file));
  }
  ASSIGN_OR_RETURN(const std::string cached, CachedName("idx", {source}, cache.dir));
  auto file = MapCacheFile(cached);
  if (!file.ok()) {
    // Missing or damaged.
    RETURN_IF_ERROR(UnpackIdx(source, cached, cache));
    file = MapCacheFile(cached);
  }
  RETURN_IF_ERROR(file.status());
  ASSIGN_OR_RETURN(IdxHeader header, ParseIdxHeader(file->bytes(), source));
  return IdxFile(source, std::move(header), *std::move(file));
}

}  // namespace muster::data
