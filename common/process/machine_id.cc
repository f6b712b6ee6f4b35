#include "common/process/machine_id.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "common/random_id.h"
#include "common/security/private_file.h"
#include "common/security/text_file.h"
#include "common/status.h"

namespace muster {
namespace {

constexpr size_t kDigits = 32;

// Returns the 128 bits in `text` as hexadecimal digits; empty if it has no such number, like
// "uninitialized" in the machine-id of an image.
std::string IdIn(const std::string& text) {
  std::string id;
  for (const char c : text) {
    if (absl::ascii_isxdigit(static_cast<unsigned char>(c))) {
      id.push_back(absl::ascii_tolower(static_cast<unsigned char>(c)));
    } else if (c != '-' && !absl::ascii_isspace(static_cast<unsigned char>(c))) {
      return "";
    }
  }
  const bool blank = std::all_of(id.begin(), id.end(), [&id](char c) { return c == id[0]; });
  return id.size() == kDigits && !blank ? id : "";
}

}  // namespace

std::vector<std::string> MachineIdFiles() {
  return {"/etc/machine-id", "/sys/class/dmi/id/product_uuid", "/proc/sys/kernel/random/boot_id"};
}

absl::StatusOr<std::string> FindMachineId(const std::vector<std::string>& files,
                                          const std::string& own) {
  for (const std::string& file : files) {
    const std::string id = IdIn(security::ReadTextFile(file).value_or(""));
    if (!id.empty()) return id;
  }
  const std::string stored = IdIn(security::ReadTextFile(own).value_or(""));
  if (!stored.empty()) return stored;
  const std::string drawn = RandomHexId(128);
  RETURN_IF_ERROR(security::WritePrivateFile(own, drawn, /*lock=*/false).status());
  return drawn;
}

std::string BootId() {
  const auto text = security::ReadTextFile("/proc/sys/kernel/random/boot_id");
  return std::string(absl::StripAsciiWhitespace(text.value_or("")));
}

}  // namespace muster
