// Archives that `muster cp` unpacks. The input encodes the archive's entries: random bytes would
// fail tar's checksums.
#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/copy/unpacker.h"
#include "fuzzer/FuzzedDataProvider.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/temporary_folder.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = 512;
constexpr int kMaxEntries = 6;

// A name inside the copy, or one that leads out of it.
std::string Name(FuzzedDataProvider& input, const std::string& outside) {
  const std::string names[] = {"a",
                               "a/b",
                               "link",
                               "link/b",
                               "../escaped",
                               "a/../../escaped",
                               outside + "/escaped",
                               outside,
                               outside + "/kept",
                               "..",
                               ".",
                               "/"};
  const size_t choice = input.ConsumeIntegralInRange<size_t>(0, std::size(names));
  return choice < std::size(names) ? names[choice] : input.ConsumeRandomLengthString(99);
}

// One entry with a valid checksum, and its contents.
std::string Entry(FuzzedDataProvider& input, const std::string& outside) {
  constexpr char kTypes[] = {'0', '1', '2', '5', '3', '4', '6', 'L', 'K', 'x', 'g', 'S', 'V', '\0'};
  char header[kBlock] = {};
  const auto put = [&header](size_t at, size_t size, const std::string& text) {
    text.copy(header + at, size);
  };
  const auto octal = [](uint64_t number) {
    char digits[16];
    snprintf(digits, sizeof(digits), "%011lo", number & ((uint64_t{1} << 33) - 1));
    return std::string(digits);
  };
  std::string contents =
      input.ConsumeBool() ? Name(input, outside) : input.ConsumeRandomLengthString(200);
  put(0, 100, Name(input, outside));
  put(100, 8, input.ConsumeBool() ? "0000644" : "0000000");
  put(108, 8, "0000000");
  put(116, 8, "0000000");
  // Sizes that the archive does not have, too.
  put(124, 12,
      octal(input.ConsumeIntegralInRange(0, 15) == 0 ? input.ConsumeIntegral<uint64_t>()
                                                     : contents.size()));
  put(136, 12, octal(0));
  header[156] = input.PickValueInArray(kTypes);
  put(157, 100, Name(input, outside));
  put(257, 8,
      input.ConsumeBool() ? "ustar  "
                          : std::string("ustar\0"
                                        "00",
                                        8));
  put(148, 8, "        ");
  uint64_t sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  put(148, 8, octal(sum).substr(5) + std::string("\0 ", 2));
  contents.resize((contents.size() + kBlock - 1) / kBlock * kBlock);
  return std::string(header, kBlock) + contents;
}

std::vector<std::string> List(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

std::string Read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  static const bool silent = (signal(SIGPIPE, SIG_IGN), true);  // as `muster cp`
  (void)silent;
  const fuzz::TemporaryFolder folder;
  const fs::path outside = folder.path();
  const fs::path here = outside / "here";
  fs::create_directory(here);
  folder.Write("kept", "kept");
  FuzzedDataProvider input(data, size);
  std::string archive;
  for (int i = 0; i < kMaxEntries && input.remaining_bytes() > 0; ++i)
    archive += Entry(input, outside);
  archive.resize(archive.size() + (archive.empty() ? 0 : 2 * kBlock));
  absl::StatusOr<std::string> result;
  {
    auto unpacker = cli::Unpacker::Create(here, "copy");
    fuzz::CheckOk(unpacker.status(), "the unpacker starts");
    const absl::Status written = (*unpacker)->Write(archive);
    result = written.ok() ? (*unpacker)->Finish() : written;
  }
  const std::vector<std::string> expected =
      result.ok() ? std::vector<std::string>{"copy"} : std::vector<std::string>();
  fuzz::Check(List(here) == expected, "an archive gives one result or nothing",
              result.status().ToString());
  fuzz::Check(List(outside).size() == 2 && Read(outside / "kept") == "kept",
              "nothing is written elsewhere");
  return 0;
}
