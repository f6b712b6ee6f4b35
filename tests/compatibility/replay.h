// What the replay tests share: the transcript of the previous protocol version.
#ifndef MUSTER_TESTS_COMPATIBILITY_REPLAY_H_
#define MUSTER_TESTS_COMPATIBILITY_REPLAY_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/version.h"
#include "gtest/gtest.h"
#include "tests/compatibility/transcript.h"

namespace muster::compatibility {

inline constexpr uint32_t kPreviousVersion = kProtocolVersion - 1;

inline std::string TranscriptPath() {
  return absl::StrCat("tests/compatibility/testdata/session_v", kPreviousVersion, ".txt");
}

// Fails the test if there is no readable transcript.
inline std::vector<Entry> PreviousTranscript() {
  absl::StatusOr<std::vector<Entry>> entries = ReadTranscript(TranscriptPath());
  EXPECT_TRUE(entries.ok()) << entries.status();
  return entries.ok() ? *std::move(entries) : std::vector<Entry>();
}

}  // namespace muster::compatibility

#endif  // MUSTER_TESTS_COMPATIBILITY_REPLAY_H_
