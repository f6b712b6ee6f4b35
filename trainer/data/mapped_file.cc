#include "trainer/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::data {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
  absl::Cleanup close_fd = [fd] { close(fd); };
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, absl::StrCat("stat ", path));
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a regular file"));
  }
  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<size_t>(info.st_size);
  if (file.size_ == 0) return file;  // nothing to map
  void* address = mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    file.size_ = 0;
    return ErrnoStatus(errno, absl::StrCat("map ", path));
  }
  file.data_ = static_cast<const uint8_t*>(address);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace muster::data
