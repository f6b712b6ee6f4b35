#include "worker/shim/fields.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "common/files/replace_file.h"

namespace muster::shim {
namespace {

constexpr char kTemporarySuffix[] = ".tmp";

}  // namespace

std::string EncodeFields(const Fields& fields) {
  std::string text;
  for (const auto& [key, value] : fields) {
    text += key;
    text += '=';
    const size_t start = text.size();
    text += value;
    std::replace(text.begin() + static_cast<std::ptrdiff_t>(start), text.end(), '\0', ' ');
    text += '\0';
  }
  return text;
}

std::optional<Fields> DecodeFields(std::string_view text) {
  Fields fields;
  while (!text.empty()) {
    const size_t end = text.find('\0');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view record = text.substr(0, end);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos || equals == 0) return std::nullopt;
    fields.emplace_back(record.substr(0, equals), record.substr(equals + 1));
    text.remove_prefix(end + 1);
  }
  return fields;
}

std::optional<std::string> ReadFile(const std::string& path) {
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return std::nullopt;
  std::string contents;
  char buffer[16384];
  while (true) {
    const ssize_t n = read(file.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) return contents;
    contents.append(buffer, static_cast<size_t>(n));
  }
}

std::optional<uint64_t> CounterIn(const std::string& path, const std::string& name) {
  const std::optional<std::string> text = ReadFile(path);
  if (!text.has_value()) return std::nullopt;
  const std::string line_start = name + " ";
  size_t at = 0;
  while (at < text->size()) {
    if (text->compare(at, line_start.size(), line_start) == 0) {
      return std::strtoull(text->c_str() + at + line_start.size(), nullptr, 10);
    }
    const size_t newline = text->find('\n', at);
    if (newline == std::string::npos) break;
    at = newline + 1;
  }
  return std::nullopt;
}

bool ReserveFor(const std::string& path, size_t bytes) {
  const std::string temporary = path + kTemporarySuffix;
  const OwnedFd file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (file.get() < 0) return false;
  errno = posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
  return errno == 0;
}

bool WriteFileAtomically(const std::string& path, std::string_view contents, bool sync) {
  return ReplaceFile(path, contents, {.sync = sync, .temporary = path + kTemporarySuffix}).get() >=
         0;
}

}  // namespace muster::shim
