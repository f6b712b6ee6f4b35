#include "cli/suggestions.h"

#include <sstream>

#include "cli/program.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

class SuggestionsTest : public ::testing::Test {
 protected:
  std::string Suggested(const std::string& word) const { return UnknownVerb(*program_, word); }

  std::ostringstream out_, err_;
  Console console_{out_, err_, {}};
  Context context_{console_};
  std::string config_;
  const std::unique_ptr<Verb> program_ = MusterProgram(context_, config_);
};

TEST_F(SuggestionsTest, KnowsNamesOfOtherTools) {
  const std::pair<const char*, const char*> cases[] = {
      {"kill", "cancel"},      {"stop", "cancel"},           {"ps", "list"},
      {"ls", "list"},          {"status", "describe"},       {"show", "describe"},
      {"squeue", "queue"},     {"sbatch", "submit"},         {"nodes", "node list"},
      {"drain", "node drain"}, {"validate", "spec validate"}};
  for (const auto& [word, verb] : cases) {
    EXPECT_EQ(Suggested(word),
              std::string("'") + word + "' is not a verb; did you mean '" + verb + "'?");
  }
}

TEST_F(SuggestionsTest, KnowsMisspellings) {
  EXPECT_EQ(Suggested("lst"), "'lst' is not a verb; did you mean 'list'?");
  EXPECT_EQ(Suggested("desc"), "'desc' is not a verb; did you mean 'describe'?");
}

TEST_F(SuggestionsTest, KnowsScripts) {
  EXPECT_EQ(Suggested("train.py"),
            "'train.py' is not a verb; to run it, use `muster local -- python3 train.py`");
}

TEST_F(SuggestionsTest, SuggestsNothingWithoutAReason) {
  EXPECT_EQ(Suggested("frobnicate"), "'frobnicate' is not a verb");
}

TEST_F(SuggestionsTest, SuggestsVerbsOfTheGroup) {
  const CLI::App& node = *program_->get_subcommand("node");
  EXPECT_EQ(UnknownVerb(node, "ls"), "'ls' is not a verb; did you mean 'list'?");
  EXPECT_EQ(UnknownVerb(node, "show"), "'show' is not a verb; did you mean 'describe'?");
  EXPECT_EQ(UnknownVerb(node, "kill"), "'kill' is not a verb");
}

}  // namespace
}  // namespace muster::cli
