#include "tests/gpu/ptx/runtime/fatbin.h"

#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace muster::ptx {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint32_t kContainerMagic = 0xba55ed50;
constexpr uint16_t kPtx = 1;

struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const void* data;
};

struct ContainerHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t entries_bytes;
};

struct EntryHeader {
  uint16_t kind;
  uint16_t version;
  uint32_t header_bytes;
  uint64_t payload_bytes;
  uint32_t compressed_bytes;
};

template <typename T>
T ReadAs(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

}  // namespace

absl::StatusOr<std::vector<std::string_view>> PtxOfFatbin(const void* wrapper) {
  const auto outer = ReadAs<Wrapper>(static_cast<const char*>(wrapper));
  if (outer.magic != kWrapperMagic) {
    return absl::InvalidArgumentError(absl::StrCat("fat binary: wrapper magic ", outer.magic));
  }
  const char* at = static_cast<const char*>(outer.data);
  const auto container = ReadAs<ContainerHeader>(at);
  if (container.magic != kContainerMagic || container.version != 1) {
    return absl::InvalidArgumentError(absl::StrCat("fat binary: container magic ", container.magic,
                                                   ", version ", container.version));
  }
  at += container.header_bytes;
  const char* const end = at + container.entries_bytes;
  std::vector<std::string_view> modules;
  while (at < end) {
    const auto entry = ReadAs<EntryHeader>(at);
    const uint64_t left = static_cast<uint64_t>(end - at);
    if (entry.header_bytes < sizeof(EntryHeader) || entry.header_bytes > left ||
        entry.payload_bytes > left - entry.header_bytes) {
      return absl::InvalidArgumentError("fat binary: an entry exceeds its container");
    }
    if (entry.kind == kPtx) {
      if (entry.compressed_bytes != 0) {
        return absl::UnimplementedError(
            "fat binary: the PTX is compressed; build with nvcc --no-compress");
      }
      const char* const text = at + entry.header_bytes;
      modules.emplace_back(text, strnlen(text, entry.payload_bytes));
    }
    at += entry.header_bytes + entry.payload_bytes;
  }
  return modules;
}

}  // namespace muster::ptx
