#include "trainer/tensorboard/record_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::train {
namespace {

constexpr uint32_t kReflectedPolynomial = 0x82F63B78;
constexpr uint32_t kMaskDelta = 0xA282EAD8;

// CRC of each single byte.
constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kReflectedPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kCrcTable = MakeCrcTable();

template <typename T>
std::string LittleEndian(T value) {
  std::string bytes(sizeof(T), '\0');
  for (size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<char>(value >> 8 * i & 0xFF);
  return bytes;
}

}  // namespace

uint32_t Crc32c(absl::string_view data) {
  uint32_t crc = 0xFFFFFFFF;
  for (const unsigned char byte : data) crc = crc >> 8 ^ kCrcTable[(crc ^ byte) & 0xFF];
  return ~crc;
}

uint32_t MaskedCrc32c(absl::string_view data) {
  const uint32_t crc = Crc32c(data);
  return (crc >> 15 | crc << 17) + kMaskDelta;
}

std::string FramedRecord(absl::string_view data) {
  const std::string length = LittleEndian(uint64_t{data.size()});
  return absl::StrCat(length, LittleEndian(MaskedCrc32c(length)), data,
                      LittleEndian(MaskedCrc32c(data)));
}

RecordFile::RecordFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

RecordFile::~RecordFile() { close(fd_); }

absl::StatusOr<std::unique_ptr<RecordFile>> RecordFile::Create(const std::string& path) {
  const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("create ", path));
  return std::unique_ptr<RecordFile>(new RecordFile(path, fd));
}

absl::Status RecordFile::Append(absl::string_view data) {
  const std::string record = FramedRecord(data);
  absl::string_view rest = record;
  while (!rest.empty()) {
    const ssize_t written = write(fd_, rest.data(), rest.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, absl::StrCat("write ", path_));
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status RecordFile::Sync() {
  if (fdatasync(fd_) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("sync ", path_));
}

}  // namespace muster::train
