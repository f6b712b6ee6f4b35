#include "common/security/text_file.h"

#include <errno.h>
#include <stdio.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::security {
namespace {

constexpr size_t kFileBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "re"), fclose);
  if (file == nullptr) return ErrnoStatus(errno, absl::StrCat("read ", path));
  std::string text(kFileBytes + 1, '\0');
  text.resize(fread(text.data(), 1, text.size(), file.get()));
  if (ferror(file.get()) != 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
  if (text.size() <= kFileBytes) return text;
  return absl::ResourceExhaustedError(absl::StrCat(path, " is larger than ", kFileBytes, " bytes"));
}

}  // namespace muster::security
