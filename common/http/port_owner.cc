#include "common/http/port_owner.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kListening = "0A";

// Adds the sockets that listen on `port` according to `table`, a /proc/net file, in the form in
// which /proc/PID/fd links to them.
void AddListening(const char* table, uint16_t port, std::set<std::string>& links) {
  std::ifstream lines(table);
  std::string line;
  while (std::getline(lines, line)) {
    // sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode …
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (fields.size() < 10 || fields[3] != kListening) continue;
    const size_t colon = fields[1].rfind(':');
    uint32_t local_port = 0;
    if (colon == absl::string_view::npos ||
        !absl::SimpleHexAtoi(fields[1].substr(colon + 1), &local_port) || local_port != port) {
      continue;
    }
    links.insert(absl::StrCat("socket:[", fields[9], "]"));
  }
}

bool HoldsOneOf(const fs::path& process, const std::set<std::string>& links) {
  std::error_code error;
  for (fs::directory_iterator fd(process / "fd", error), end; !error && fd != end;
       fd.increment(error)) {
    std::error_code gone;
    if (links.count(fs::read_symlink(fd->path(), gone).string()) != 0) return true;
  }
  return false;
}

}  // namespace

std::string FindPortOwner(uint16_t port) {
  std::set<std::string> links;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) AddListening(table, port, links);
  if (links.empty()) return "";
  std::error_code error;
  for (fs::directory_iterator process("/proc", error), end; !error && process != end;
       process.increment(error)) {
    const std::string pid = process->path().filename().string();
    if (!absl::ascii_isdigit(static_cast<unsigned char>(pid[0]))) continue;
    if (!HoldsOneOf(process->path(), links)) continue;
    // The executable's name, because the kernel truncates process names to 15 characters.
    std::error_code unreadable;
    const fs::path program = fs::read_symlink(process->path() / "exe", unreadable);
    return absl::StrCat(unreadable ? "a process" : program.filename().string(), " (pid ", pid, ")");
  }
  return "";
}

}  // namespace muster
