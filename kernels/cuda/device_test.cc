// Opens CUDA libraries as a binary would: what is missing or does not fit is said in words. Where
// there is a GPU, what the device moves and computes.
#include "kernels/cuda/device.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::kernels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kLibrary[] = "kernels/cuda/libmuster-cuda.so";

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(OpenCudaDeviceTest, NamesTheFileThatItLookedFor) {
  const absl::Status status = OpenCudaDevice(0, "no/such/library.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(MessageOf(status), "CUDA: no no/such/library.so");
}

TEST(OpenCudaDeviceTest, LooksBesideTheExecutableAndInLib) {
  EXPECT_THAT(
      CudaLibraryPlaces("/opt/muster/bin/muster-rank"),
      ElementsAre("/opt/muster/bin/libmuster-cuda.so", "/opt/muster/lib/libmuster-cuda.so"));
  // Of this executable: it is built beside the library, where that is built.
  EXPECT_EQ(OpenCudaLibrary().ok(), std::filesystem::exists(kLibrary));
}

TEST(OpenCudaDeviceTest, NamesTheLibraryThatIsNeededAndMissing) {
  const absl::Status status = OpenCudaDevice(0, "kernels/cuda/libneeds-another.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(MessageOf(status), HasSubstr("libanother.so"));
}

TEST(OpenCudaDeviceTest, RefusesAnotherVersion) {
  const absl::Status status = OpenCudaDevice(0, "kernels/cuda/libother-version.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(status),
              HasSubstr("kernels/cuda/libother-version.so is of another version"));
  EXPECT_THAT(MessageOf(status), HasSubstr("interface 4711"));
}

TEST(OpenCudaDeviceTest, RefusesAnotherLibrary) {
  const absl::Status status = OpenCudaDevice(0, "kernels/cuda/libanother.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(status), HasSubstr("kernels/cuda/libanother.so is not Muster's"));
}

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto library = OpenCudaLibrary(kLibrary);
    if (library.status().code() == absl::StatusCode::kNotFound) {
      GTEST_SKIP() << library.status().message();
    }
    ASSERT_TRUE(library.ok()) << library.status();
    const char* error = nullptr;
    devices_ = (*library)->device_count(&error);
    if (devices_ == 0) error_ = error;
  }

  int devices_ = 0;
  std::string error_;
};

TEST_F(CudaDeviceTest, SaysWhyThereIsNone) {
  const absl::Status status = OpenCudaDevice(devices_, kLibrary).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(MessageOf(status),
              HasSubstr(devices_ == 0 ? "CUDA: no GPU: " + error_
                                      : "CUDA: no GPU " + std::to_string(devices_)));
  if (devices_ == 0) EXPECT_NE(error_, "");
}

TEST_F(CudaDeviceTest, MovesAndComputesInOrder) {
  if (devices_ == 0) GTEST_SKIP() << "no GPU: " << error_;
  auto opened = OpenCudaDevice(0, kLibrary);
  ASSERT_TRUE(opened.ok()) << opened.status();
  Device& device = **opened;
  constexpr size_t kCount = 100003;
  auto memory = device.Allocate(kCount * sizeof(float)), copy = device.Allocate(memory->bytes());
  ASSERT_TRUE(memory.ok() && copy.ok());
  std::vector<float> values(kCount);
  device.CopyToHost(values.data(), copy->data(), copy->bytes());
  for (const float value : values) ASSERT_EQ(value, 0);
  for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i);
  device.CopyToDevice(memory->data(), values.data(), memory->bytes());
  device.kernels().scaled_copy(DataType::kFloat32, kCount, 2, memory->data(), memory->data());
  device.Copy(copy->data(), memory->data(), memory->bytes());
  device.Zero(memory->data(), memory->bytes());
  device.CopyToHost(values.data(), copy->data(), copy->bytes());
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(values[i], 2 * static_cast<float>(i));
  device.CopyToHost(values.data(), memory->data(), memory->bytes());
  for (const float value : values) ASSERT_EQ(value, 0);
  EXPECT_TRUE(device.Synchronize().ok()) << device.Synchronize();
}

TEST_F(CudaDeviceTest, RefusesMoreMemoryThanThereIs) {
  if (devices_ == 0) GTEST_SKIP() << "no GPU: " << error_;
  auto device = OpenCudaDevice(0, kLibrary);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->Allocate(size_t{1} << 50).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE((*device)->Synchronize().ok());
}

}  // namespace
}  // namespace muster::kernels
