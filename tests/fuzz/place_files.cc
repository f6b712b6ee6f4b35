// Files of a job that a worker places in the directories of its ranks.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/sha256.h"
#include "fuzzer/FuzzedDataProvider.h"
#include "spec/files.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/edit_message.h"
#include "tests/fuzz/temporary_folder.h"
#include "worker/agent/files/file_cache.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// All paths below the folder, without the cache and the rank's directory.
size_t CountOutside(const fs::path& folder) {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    count += entry.path().filename() != "cache" && entry.path().filename() != "rank";
  }
  return count;
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  static const std::string content = "content";
  static const std::vector<std::string> words = {"a",
                                                 "a/b",
                                                 "link",
                                                 "link/a",
                                                 "..",
                                                 "../a",
                                                 "a/../../b",
                                                 "/tmp/muster-escaped",
                                                 Sha256Hex(content),
                                                 "cache"};
  const fuzz::TemporaryFolder folder;
  fs::create_directory(folder.Path("rank"));
  // An earlier generation of the job has left links.
  fs::create_directory_symlink("..", folder.Path("rank/link"));
  fs::create_symlink("../kept", folder.Path("rank/a"));
  folder.Write("kept", "kept");
  FuzzedDataProvider input(data, size);
  v1::JobSpec spec;
  for (int n = input.ConsumeIntegralInRange(1, 4); n > 0; --n) {
    v1::FileSpec& file = *spec.add_files();
    file.set_path("a");
    file.set_sha256(Sha256Hex(content));
    file.set_size_bytes(content.size());
    for (int edits = input.ConsumeIntegralInRange(0, 4); edits > 0; --edits)
      fuzz::EditMessage(input, words, file);
  }
  // As the launcher does.
  if (!spec::CheckUploadedFiles(spec).ok()) return 0;
  auto cache = agent::FileCache::Open(folder.Path("cache"), 1 << 20,
                                      [](const v1::FileSpec&, const std::string& path) {
                                        std::ofstream(path) << content;
                                        return absl::OkStatus();
                                      });
  fuzz::CheckOk(cache.status(), "the cache opens");
  (*cache)->Place(spec.files(), {folder.Path("rank")}).IgnoreError();
  fuzz::Check(CountOutside(folder.path()) == 1 && fs::file_size(folder.Path("kept")) == 4,
              "files are written to the directory of the rank only", spec.ShortDebugString());
  fuzz::Check(!fs::exists("/tmp/muster-escaped"), "paths are relative");
  return 0;
}
