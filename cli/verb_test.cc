#include "cli/verb.h"

#include <stdlib.h>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Program {
  Program() {
    program = MakeProgram({.summary = "Does things.", .usage = "VERB"});
    program->add_option("--where", where, "A place")->type_name("PLACE")->default_str("here");
    Verb& verb = AddVerb(*program, "walk", kJobVerbs,
                         {.summary = "Walk far",
                          .usage = "GOAL [OPTIONS]",
                          .paragraphs = {std::string(30, 'a') + " " + std::string(30, 'b') + " " +
                                         std::string(30, 'c')},
                          .exits = {{"7", "Too far"}},
                          .examples = {{"muster walk x", "go"}}});
    verb.add_option("GOAL", goal, "Where to");
    verb.add_flag("-f,--fast", fast, "Run instead");
    AddVerb(*program, "sit", kNodeVerbs, {.summary = "Do nothing", .usage = ""});
  }
  std::string Help(const std::vector<std::string>& names) {
    const CLI::App* app = program.get();
    for (const std::string& name : names) app = app->get_subcommand(name);
    return app->help();
  }

  std::unique_ptr<Verb> program;
  std::string where, goal;
  bool fast = false;
};

TEST(VerbTest, PrintsAllSectionsOfAPage) {
  const std::string page = Program().Help({"walk"});
  EXPECT_THAT(page, HasSubstr("Walk far\n\nUsage: muster walk GOAL [OPTIONS]\n"));
  EXPECT_THAT(page, HasSubstr("\nArguments:\n  GOAL                    Where to\n"));
  EXPECT_THAT(page, HasSubstr("\nOptions:\n  -f, --fast              Run instead\n"));
  EXPECT_THAT(page, HasSubstr("\nGlobal options:\n"));
  EXPECT_THAT(page, HasSubstr("      --where PLACE       A place (default: here)\n"));
  EXPECT_THAT(page, HasSubstr("\nExit status:\n  7                       Too far\n"));
  EXPECT_THAT(page, HasSubstr("\nExamples:\n  muster walk x\n      go\n"));
  for (const absl::string_view line : absl::StrSplit(page, '\n')) EXPECT_LE(line.size(), 80u);
}

TEST(VerbTest, ContinuesLongExamples) {
  const std::string before = std::getenv("COLUMNS") == nullptr ? "" : std::getenv("COLUMNS");
  setenv("COLUMNS", "60", 1);
  const auto program = MakeProgram({.summary = "Does things.", .usage = "VERB"});
  AddVerb(
      *program, "walk", kJobVerbs,
      {.summary = "Walk far",
       .usage = "",
       .examples = {{"walk --over 'the green hills of Africa' --and \"far away\" home", "go"}}});
  const std::string page = program->get_subcommand("walk")->help();
  if (before.empty()) {
    unsetenv("COLUMNS");
  } else {
    setenv("COLUMNS", before.c_str(), 1);
  }
  EXPECT_THAT(page, HasSubstr("\nExamples:\n"
                              "  walk --over 'the green hills of Africa' --and \\\n"
                              "    \"far away\" home\n"
                              "      go\n"));
}

TEST(VerbTest, ShowsAllNamesOfAnOption) {
  Program program;
  CLI::App& walk = *program.program->get_subcommand("walk");
  walk.add_option("--step-size,--pace,--step_size", program.goal, "Length")->type_name("M");
  EXPECT_THAT(program.Help({"walk"}), HasSubstr("      --step-size, --pace M\n"));
}

TEST(VerbTest, ProgramPageListsVerbsByGroupAndExitCodes) {
  const std::string page = Program().Help({});
  EXPECT_THAT(page, HasSubstr("\nJobs:\n  walk                    Walk far\n"));
  EXPECT_THAT(page, HasSubstr("\nNodes:\n  sit                     Do nothing\n"));
  EXPECT_THAT(page, HasSubstr("\n  69                      The coordinator does not answer\n"));
  EXPECT_THAT(page, Not(HasSubstr("Global options")));
}

TEST(VerbTest, AcceptsGlobalOptionsAfterTheVerb) {
  Program program;
  program.program->parse("walk there --where away -f");
  EXPECT_EQ(program.where, "away");
  EXPECT_EQ(program.goal, "there");
  EXPECT_TRUE(program.fast);
}

TEST(VerbTest, RepeatedOptionTakesOneValueEachTime) {
  Program program;
  std::vector<std::string> stops;
  Repeatable(program.program->get_subcommand("walk")->add_option("--stop", stops, "Stops"));
  program.program->parse("walk --stop a --stop=b there");
  EXPECT_THAT(stops, ElementsAre("a", "b"));
  EXPECT_EQ(program.goal, "there");
}

TEST(VerbTest, LastValueOfAGlobalOptionWins) {
  Program program;
  program.program->parse("--where=file --where=environment sit --where=flag");
  EXPECT_EQ(program.where, "flag");
}

}  // namespace

}  // namespace muster::cli
