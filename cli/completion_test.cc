#include "cli/completion.h"

#include "cli/verb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

class CompletionTest : public ::testing::Test {
 protected:
  CompletionTest() {
    program_ = MakeProgram({.summary = "s", .usage = "VERB"});
    program_->add_option("--coordinator", text_, "Where")->type_name("HOST:PORT");
    program_->add_option("-o,--output", text_, "What")->type_name("FORMAT");
    Verb& cancel = AddVerb(*program_, "cancel", kJobVerbs, {.summary = "End jobs", .usage = ""});
    cancel.add_option("JOB", texts_, "Which");
    cancel.add_flag("--force", flag_, "At once");
    cancel.add_option("--for", text_, "Until")->type_name("running|done");
    Verb& get = AddVerb(*program_, "get", kJobVerbs, {.summary = "One", .usage = ""});
    get.add_option("JOB", text_, "Which");
    Verb& copy = AddVerb(*program_, "cp", kJobVerbs, {.summary = "Copy", .usage = ""});
    copy.add_option("SOURCE", text_, "From");
    copy.add_option("DEST", text_, "To");
    Verb& run = AddVerb(*program_, "run", kJobVerbs, {.summary = "Run", .usage = ""});
    run.add_option("FILE", text_, "Spec");
    run.add_option("--set", texts_, "Fields")->type_name("FIELD=VALUE");
    Verb& node = AddVerb(*program_, "node", kNodeVerbs, {.summary = "Nodes", .usage = ""});
    Verb& drain = AddVerb(node, "drain", kNodeVerbs, {.summary = "Drain", .usage = ""});
    drain.add_option("NODE", texts_, "Which");
    Verb& explain = AddVerb(*program_, "explain", kSpecVerbs, {.summary = "Field", .usage = ""});
    explain.add_option("FIELD", text_, "Which");
  }

  std::vector<std::string> Complete(const std::vector<std::string>& words) {
    asked_.clear();
    common_.clear();
    std::vector<std::string> texts;
    const auto names = [this](const std::string& kind, const std::vector<std::string>& common) {
      asked_ = kind;
      common_ = common;
      return std::vector<Candidate>{{kind == "JOB" ? "train-a1" : "node-1", ""},
                                    {kind == "JOB" ? "eval-b2" : "gpu-1", ""}};
    };
    for (const Candidate& candidate : Candidates(*program_, words, names)) {
      texts.push_back(candidate.text);
    }
    return texts;
  }

  std::unique_ptr<Verb> program_;
  std::string text_;
  std::vector<std::string> texts_;
  bool flag_ = false;
  std::string asked_;
  std::vector<std::string> common_;
};

TEST_F(CompletionTest, CompletesVerbs) {
  EXPECT_THAT(Complete({""}), ElementsAre("cancel", "get", "cp", "run", "node", "explain"));
  EXPECT_THAT(Complete({"ca"}), ElementsAre("cancel"));
  EXPECT_THAT(Complete({"node", ""}), ElementsAre("drain"));
  EXPECT_THAT(Complete({"zzz"}), IsEmpty());
  EXPECT_THAT(Complete({}), Not(IsEmpty()));
}

TEST_F(CompletionTest, CompletesOptionsAndTheirValues) {
  EXPECT_THAT(Complete({"cancel", "--fo"}), ElementsAre("--force", "--for"));
  EXPECT_THAT(Complete({"cancel", "--c"}), ElementsAre("--coordinator"));
  EXPECT_THAT(Complete({"cancel", "--for", "r"}), ElementsAre("running"));
  EXPECT_THAT(Complete({"cancel", "--for=d"}), ElementsAre("--for=done"));
  EXPECT_THAT(Complete({"-o", ""}), ElementsAre("json", "name", "table", "wide", "yaml"));
  EXPECT_THAT(Complete({"get", "-o", "js"}), ElementsAre("json"));
  EXPECT_THAT(Complete({"cancel", "--nothing=x"}), IsEmpty());
}

TEST_F(CompletionTest, CompletesJobAndNodeNames) {
  EXPECT_THAT(Complete({"get", "t"}), ElementsAre("train-a1"));
  EXPECT_EQ(asked_, "JOB");
  EXPECT_THAT(Complete({"node", "drain", ""}), ElementsAre("node-1", "gpu-1"));
  EXPECT_EQ(asked_, "NODE");
  // Options do not count as arguments; global options are passed on.
  Complete({"--coordinator", "h:1", "get", "-o", "json", ""});
  EXPECT_THAT(common_, ElementsAre("--coordinator=h:1", "--output=json"));
  // The coordinator is queried only for names.
  Complete({"cancel", "--"});
  EXPECT_EQ(asked_, "");
}

TEST_F(CompletionTest, CountsPositionalArguments) {
  EXPECT_THAT(Complete({"get", "train-a1", ""}), IsEmpty());
  EXPECT_THAT(Complete({"cancel", "train-a1", "--force", ""}), ElementsAre("train-a1", "eval-b2"));
}

TEST_F(CompletionTest, CompletesSpecFields) {
  EXPECT_THAT(Complete({"explain", "train.optimizer.l"}),
              ElementsAre("train.optimizer.learning_rate"));
  EXPECT_THAT(Complete({"run", "--set", "restart.m"}), ElementsAre("restart.max="));
  EXPECT_THAT(Complete({"run", "--set", "backend=g"}), ElementsAre("backend=gloo"));
  EXPECT_THAT(Complete({"run", "--set", "train.epochs="}), IsEmpty());
}

TEST_F(CompletionTest, CompletesFiles) {
  EXPECT_THAT(Complete({"run", ""}), ElementsAre(kFileCandidate));
  EXPECT_THAT(Complete({"run", "x.y"}), ElementsAre(kFileCandidate));
  // After the separator comes a user's command.
  EXPECT_THAT(Complete({"run", "--", "py"}), ElementsAre(kFileCandidate));
}

TEST_F(CompletionTest, CopiesFromAJobToAFile) {
  EXPECT_THAT(Complete({"cp", "tr"}), ElementsAre("train-a1:"));
  EXPECT_EQ(asked_, "JOB");
  EXPECT_THAT(Complete({"cp", "train-a1:out", ""}), ElementsAre(kFileCandidate));
}

}  // namespace
}  // namespace muster::cli
