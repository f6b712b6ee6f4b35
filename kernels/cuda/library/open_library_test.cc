// Search order of libraries, and errors for missing ones.
#include "kernels/cuda/library/open_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::kernels::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

namespace fs = std::filesystem;

// Creates a folder with copies of libanother.so under `names`.
std::string FolderOf(const std::string& folder, const std::vector<std::string>& names) {
  const fs::path path = fs::path(testing::TempDir()) / folder;
  fs::create_directories(path);
  for (const std::string& name : names) {
    fs::copy_file("kernels/cuda/testing/libanother.so", path / name,
                  fs::copy_options::overwrite_existing);
  }
  return path;
}

std::string FileOf(void* library) {
  Dl_info info = {};
  dladdr(dlsym(library, "MusterAnother"), &info);
  return info.dli_fname;
}

TEST(OpenLibraryTest, SearchesTheFirstFoldersFirst) {
  const std::string first = FolderOf("first", {"libx.so.12"});
  const std::string last = FolderOf("last", {"libx.so.13", "libx.so.12"});
  auto library = OpenLibrary({"libx.so.13", "libx.so.12"}, {{"/no/such", first}, {last}});
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ(FileOf(*library), first + "/libx.so.12");
  library = OpenLibrary({"libx.so.13", "libx.so.12"}, {{}, {last}});
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ(FileOf(*library), last + "/libx.so.13");
}

TEST(OpenLibraryTest, FallsBackToTheDynamicLinker) {
  EXPECT_TRUE(OpenLibrary({"libnone.so", "libc.so.6"}, {}).ok());
}

TEST(OpenLibraryTest, ReportsTheNamesAndTheFoldersSearched) {
  const absl::Status status = OpenLibrary({"libx.so.9"}, {{"/first"}, {"/last"}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "CUDA: no libx.so.9 in /first, the dynamic linker's path, /last");
}

TEST(OpenLibraryTest, ReportsWhyAnExistingFileDoesNotLoad) {
  const std::string folder = FolderOf("broken", {});
  std::ofstream(folder + "/libbroken.so") << "no library";
  const absl::Status status = OpenLibrary({"libbroken.so"}, {{folder}, {}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), StartsWith("CUDA: " + folder + "/libbroken.so"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("file too short"));
}

TEST(CudaLibrarySearchPathTest, ReadsTheEnvironment) {
  setenv("MUSTER_CUDA_LIBRARY_PATH", "/venv/nvidia/cudnn/lib::/venv/nvidia/cublas/lib", 1);
  setenv("CUDA_HOME", "/opt/cuda", 1);
  LibrarySearchPath search_path = CudaLibrarySearchPath();
  EXPECT_THAT(search_path.first, ElementsAre("/venv/nvidia/cudnn/lib", "/venv/nvidia/cublas/lib"));
  EXPECT_THAT(search_path.last,
              ElementsAre("/opt/cuda/lib64", "/usr/local/cuda/lib64", "/usr/local/cuda/lib"));
  unsetenv("MUSTER_CUDA_LIBRARY_PATH");
  unsetenv("CUDA_HOME");
  search_path = CudaLibrarySearchPath();
  EXPECT_THAT(search_path.first, ElementsAre());
  EXPECT_THAT(search_path.last, ElementsAre("/usr/local/cuda/lib64", "/usr/local/cuda/lib"));
}

}  // namespace
}  // namespace muster::kernels::cuda
