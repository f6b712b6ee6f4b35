#include "common/text/utf8.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(Utf8Test, ReplacesInvalidBytes) {
  EXPECT_EQ(ToUtf8("plain"), "plain");
  EXPECT_EQ(ToUtf8("zwölf 漢 🙂"), "zwölf 漢 🙂");
  EXPECT_EQ(ToUtf8("a\xff"
                   "b\x80"),
            "a?b?");
  EXPECT_EQ(ToUtf8("cut \xe6\xbc"), "cut ??");
  EXPECT_EQ(ToUtf8("\xc0\xaf"), "??");            // overlong
  EXPECT_EQ(ToUtf8("\xed\xa0\x80"), "???");       // a surrogate
  EXPECT_EQ(ToUtf8("\xf4\x90\x80\x80"), "????");  // beyond the last code point
}

std::string First(size_t size_bytes, std::string text) {
  KeepFirst(size_bytes, text);
  return text;
}
std::string Last(size_t size_bytes, std::string text) {
  KeepLast(size_bytes, text);
  return text;
}

TEST(Utf8Test, TruncatesAtCharacterBoundaries) {
  EXPECT_EQ(First(5, "zwölf"), "zwöl");
  EXPECT_EQ(First(3, "zwölf"), "zw");
  EXPECT_EQ(First(6, "zwölf"), "zwölf");
  EXPECT_EQ(First(0, "🙂"), "");
  EXPECT_EQ(Last(3, "zwölf"), "lf");
  EXPECT_EQ(Last(4, "zwölf"), "ölf");
  EXPECT_EQ(Last(3, "🙂"), "");
  EXPECT_EQ(First(2, "\x80\x80\x80"), "");  // no character begins here
}

}  // namespace
}  // namespace muster
