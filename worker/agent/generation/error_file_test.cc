#include "worker/agent/generation/error_file.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace muster::agent {
namespace {

class ErrorFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/muster-error-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::optional<ProgramError> Read(const std::string& contents) {
    const std::string path = directory_ + "/error.json";
    std::ofstream(path) << contents;
    return ReadErrorFile(path);
  }

  std::string directory_;
};

TEST_F(ErrorFileTest, ReadsFilesOfRecord) {
  const auto error = Read(
      R"({"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "Traceback\n",
          "timestamp": "1700000000"}}})");
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->message, "ValueError: no");
  EXPECT_EQ(error->traceback, "Traceback\n");
  EXPECT_EQ(Read(R"({"message": "plain"})")->message, "plain");
  EXPECT_EQ(Read(R"({"message": {"message": "m", "extraInfo": 3}})")->traceback, "");
}

// Parsed, 60 MiB of brackets take 5 GiB of the worker's memory.
TEST_F(ErrorFileTest, RejectsFilesOfVeryManyValues) {
  for (const char* const value : {"[", "{},", "0,"}) {
    std::string values;
    for (int i = 0; i < 20'000; ++i) values += value;
    const std::string closing(*value == '[' ? 20'000 : 0, ']');
    EXPECT_EQ(Read(R"({"message": "m", "x": [)" + values + "0" + closing + "]}"), std::nullopt);
  }
  const std::string list(20'000, ',');
  EXPECT_EQ(Read(R"({"message": "\"[)" + list + R"(\\"})")->message, "\"[" + list + "\\");
}

TEST_F(ErrorFileTest, ReadsStatusCodeAndPeer) {
  const auto error =
      Read(R"({"message": {"message": "rank 2 went"}, "status_code": 14, "peer_rank": 2})");
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->message, "rank 2 went");
  EXPECT_EQ(error->status_code, 14);
  EXPECT_EQ(error->peer_rank, 2u);
  for (const char* text :
       {R"({"message": "m"})", R"({"message": "m", "status_code": 17, "peer_rank": 4294967296})",
        R"({"message": "m", "status_code": 0, "peer_rank": -1})",
        R"({"message": "m", "status_code": "14", "peer_rank": 1.5})"}) {
    const auto plain = Read(text);
    ASSERT_TRUE(plain.has_value()) << text;
    EXPECT_FALSE(plain->status_code.has_value()) << text;
    EXPECT_FALSE(plain->peer_rank.has_value()) << text;
  }
}

TEST_F(ErrorFileTest, IgnoresOtherFormats) {
  for (const char* text :
       {"", "{", "[]", "3", "{}", R"({"message": 3})", R"({"message": {}})", R"({"message": ""})",
        R"({"message": {"message": []}})", "\xff\xfe", R"({"message": "cut)"}) {
    EXPECT_FALSE(Read(text).has_value()) << text;
  }
  EXPECT_FALSE(Read(std::string(200'000, '[')).has_value());
  EXPECT_FALSE(Read("{\"message\": \"" + std::string(65 << 20, 'x') + "\"}").has_value());
  EXPECT_FALSE(ReadErrorFile(directory_ + "/none").has_value());
  EXPECT_FALSE(ReadErrorFile(directory_).has_value());
  ASSERT_EQ(symlink("/dev/zero", (directory_ + "/link").c_str()), 0);
  EXPECT_FALSE(ReadErrorFile(directory_ + "/link").has_value());
}

TEST(PythonErrorTest, ReturnsLastLineOfLastTraceback) {
  EXPECT_EQ(PythonError("Traceback (most recent call last):\n  File \"a.py\", line 1\n    1 / 0\n"
                        "ZeroDivisionError: division by zero\n\n"
                        "During handling of the above exception, another exception occurred:\n\n"
                        "Traceback (most recent call last):\n  File \"a.py\", line 3\n    f()\n"
                        "KeyError: 'x'\nlast words\n"),
            "KeyError: 'x'");
  EXPECT_EQ(PythonError("    in_a_frame()\n  File \"a.py\", line 3\n    f()\nKeyError: 'x'\n"),
            "KeyError: 'x'")
      << "of a long traceback, the last lines";
  EXPECT_EQ(PythonError("nothing of the kind\n"), std::nullopt);
  EXPECT_EQ(PythonError("Traceback (most recent call last):\n  File \"cut"), std::nullopt);
}

TEST(PeerTest, RecognisesBrokenConnections) {
  EXPECT_TRUE(IsPeerLostMessage(
      "RuntimeError: [../gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.1]:3"));
  EXPECT_FALSE(IsPeerLostMessage("ValueError: no such layer"));
}

}  // namespace
}  // namespace muster::agent
