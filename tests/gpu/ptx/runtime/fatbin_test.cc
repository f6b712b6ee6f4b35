#include "tests/gpu/ptx/runtime/fatbin.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::ptx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
void Append(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string Entry(uint16_t kind, std::string_view payload, uint32_t compressed_bytes = 0) {
  std::string entry;
  Append<uint16_t>(entry, kind);
  Append<uint16_t>(entry, 0x101);
  Append<uint32_t>(entry, 64);
  Append<uint64_t>(entry, payload.size());
  Append<uint32_t>(entry, compressed_bytes);
  entry.resize(64);
  return entry.append(payload);
}

// A container and its wrapper.
struct Fatbin {
  explicit Fatbin(const std::string& entries, uint32_t magic = 0xba55ed50) {
    Append<uint32_t>(container, magic);
    Append<uint16_t>(container, 1);
    Append<uint16_t>(container, 16);
    Append<uint64_t>(container, entries.size());
    container += entries;
    Append<uint32_t>(wrapper, 0x466243b1);
    Append<uint32_t>(wrapper, 1);
    Append<const void*>(wrapper, container.data());
  }
  std::string container;
  std::string wrapper;
};

TEST(FatbinTest, FindsThePtxAmongOtherEntries) {
  const std::string padded("second\0\0", 8);
  const Fatbin fatbin(Entry(2, "machine code") + Entry(1, "first") + Entry(1, padded));
  const auto modules = PtxOfFatbin(fatbin.wrapper.data());
  ASSERT_TRUE(modules.ok()) << modules.status();
  EXPECT_THAT(*modules, ElementsAre("first", "second"));
  EXPECT_THAT(*PtxOfFatbin(Fatbin("").wrapper.data()), ElementsAre());
}

TEST(FatbinTest, RefusesCompressedPtx) {
  const auto modules = PtxOfFatbin(Fatbin(Entry(1, "xxx", 3)).wrapper.data());
  EXPECT_EQ(modules.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(modules.status().message()), HasSubstr("--no-compress"));
}

TEST(FatbinTest, RefusesOtherFormats) {
  EXPECT_EQ(PtxOfFatbin(Fatbin("", 1).wrapper.data()).status().code(),
            absl::StatusCode::kInvalidArgument);
  std::string entry = Entry(1, "first");
  entry.pop_back();
  EXPECT_EQ(PtxOfFatbin(Fatbin(entry).wrapper.data()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster::ptx
