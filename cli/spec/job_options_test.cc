#include "cli/spec/job_options.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

std::string EnvFile(const std::string& text) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/job.env");
  std::ofstream(path) << text;
  return path;
}

std::map<std::string, std::string> EnvOf(const v1::JobSpec& spec) {
  return {spec.env().begin(), spec.env().end()};
}

TEST(JobEnvTest, EntriesOverrideFilesOverrideSpec) {
  v1::JobSpec spec;
  (*spec.mutable_env())["A"] = "spec";
  (*spec.mutable_env())["B"] = "spec";
  (*spec.mutable_env())["C"] = "spec";
  const std::string file = EnvFile("# comment\n\nB=file\n  C=file\r\nD=\"x = y # z\"\n#E=1\nE=\n");
  ASSERT_TRUE(AddVariables({file}, {"C=entry", "F=a=b", "C=last"}, spec).ok());
  EXPECT_THAT(EnvOf(spec),
              ElementsAre(Pair("A", "spec"), Pair("B", "file"), Pair("C", "last"),
                          Pair("D", "\"x = y # z\""), Pair("E", ""), Pair("F", "a=b")));
}

TEST(JobEnvTest, NameAloneTakesOwnValue) {
  setenv("JOB_ENV_TEST_SET", "mine", 1);
  unsetenv("JOB_ENV_TEST_UNSET");
  v1::JobSpec spec;
  ASSERT_TRUE(AddVariables({}, {"JOB_ENV_TEST_SET"}, spec).ok());
  EXPECT_THAT(EnvOf(spec), ElementsAre(Pair("JOB_ENV_TEST_SET", "mine")));
  const absl::Status status = AddVariables({}, {"JOB_ENV_TEST_UNSET"}, spec);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(),
            "--env 'JOB_ENV_TEST_UNSET': is not set here; give JOB_ENV_TEST_UNSET=VALUE");
}

TEST(JobEnvTest, ReportsWrongFiles) {
  v1::JobSpec spec;
  EXPECT_TRUE(absl::IsNotFound(AddVariables({"/no/such.env"}, {}, spec)));
  const std::string file = EnvFile("A=1\nexport\n");
  EXPECT_THAT(AddVariables({file}, {}, spec).message(),
              HasSubstr("job.env:2: expected NAME=VALUE"));
  EXPECT_FALSE(AddVariables({EnvFile("A=\xff\n")}, {}, spec).ok());
  EXPECT_FALSE(AddVariables({}, {"A=\xff"}, spec).ok());
}

namespace fs = std::filesystem;

class JobOptionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = fs::current_path();
    here_ = fs::canonical(::testing::TempDir()).string() + "/job-" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(here_);
    Write("train.py", "import conf");
    Write("conf/a.yaml", "a: 1");
    fs::current_path(here_);
  }
  void TearDown() override { fs::current_path(before_); }

  void Write(const std::string& path, const std::string& content) {
    const fs::path file = fs::path(here_) / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << content;
  }

  JobToSubmit Make(const std::vector<std::string>& command, Place place = Place::kCluster) {
    auto job = MakeJob(options_, command, place);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *std::move(job) : JobToSubmit();
  }
  std::string Problem(const std::vector<std::string>& command) {
    return std::string(MakeJob(options_, command, Place::kCluster).status().message());
  }
  static std::vector<std::string> PathsOf(const JobToSubmit& job) {
    std::vector<std::string> paths;
    for (const v1::FileSpec& file : job.spec.files()) paths.push_back(file.path());
    return paths;
  }

  fs::path before_;
  std::string here_;
  JobOptions options_;
};

TEST_F(JobOptionsTest, UploadsScriptOfCommand) {
  const JobToSubmit job = Make({"python3", "-u", "train.py"});
  EXPECT_THAT(PathsOf(job), ElementsAre("train.py"));
  EXPECT_EQ(job.files.files().at("train.py").source, here_ + "/train.py");
  EXPECT_EQ(job.spec.files(0).size_bytes(), 11);
  EXPECT_EQ(job.spec.workdir(), "");
  EXPECT_THAT(PathsOf(Make({"./train.py"})), ElementsAre("train.py"));
  EXPECT_THAT(PathsOf(Make({"torchrun", "--nproc-per-node", "2", "train.py"})),
              ElementsAre("train.py"));
  EXPECT_THAT(PathsOf(Make({"env", "A=1", "python3", "train.py"})), ElementsAre("train.py"));
  EXPECT_THAT(PathsOf(Make({"python3", "other.py"})), IsEmpty());
  EXPECT_THAT(PathsOf(Make({"python3", here_ + "/train.py"})), IsEmpty());
  EXPECT_THAT(PathsOf(Make({"python3", "conf"})), IsEmpty());
}

TEST_F(JobOptionsTest, SetsTheLauncher) {
  EXPECT_EQ(Make({"./solver"}).spec.launcher(), "");
  options_.launcher = "mpi";
  EXPECT_EQ(Make({"./solver"}).spec.launcher(), "mpi");
}

TEST_F(JobOptionsTest, WorkdirReplacesUpload) {
  setenv("HOME", "/home/u", 1);
  for (const auto& [given, expected] :
       {std::pair(".", here_), std::pair("conf/", here_ + "/conf"),
        std::pair("/srv/../srv/job", std::string("/srv/job")),
        std::pair("~", std::string("/home/u")), std::pair("~/x", std::string("/home/u/x")),
        std::pair("~x", here_ + "/~x")}) {
    options_.workdir = given;
    const JobToSubmit job = Make({"python3", "train.py"});
    EXPECT_EQ(job.spec.workdir(), expected);
    EXPECT_THAT(PathsOf(job), IsEmpty());
  }
  options_.files = {"conf"};
  EXPECT_THAT(Problem({"python3", "train.py"}), HasSubstr("workdir is set; remove one of them"));
}

TEST_F(JobOptionsTest, RefusesScriptOutsideOfTheFolder) {
  fs::current_path(here_ + "/conf");
  EXPECT_THAT(Problem({"python3", "../train.py"}), HasSubstr("give --workdir"));
}

TEST_F(JobOptionsTest, RefusesScriptInPlaceOfASpec) {
  options_.path = "train.py";
  EXPECT_EQ(Problem({}),
            "train.py: a script, not a spec; to run it, give `-- python3 train.py` instead");
}

TEST_F(JobOptionsTest, FilesOfSpecAreRelativeToIt) {
  Write("jobs/job.yaml", "command: [python3, run.py]\nfiles: [run.py, ../conf]\n");
  Write("jobs/run.py", "");
  options_.path = "jobs/job.yaml";
  options_.files = {"train.py"};
  const JobToSubmit job = Make({});
  EXPECT_THAT(PathsOf(job), ElementsAre("conf/a.yaml", "run.py", "train.py"));
  EXPECT_EQ(job.files.files().at("run.py").source, here_ + "/jobs/run.py");
  options_.files = {"none.py"};
  EXPECT_TRUE(absl::IsNotFound(MakeJob(options_, {}, Place::kCluster).status()));
}

TEST_F(JobOptionsTest, KeepsFilesThatWereUploadedBefore) {
  const std::string digest(64, 'a');
  Write("old.py", "newer");
  Write("job.yaml", absl::StrCat("command: [python3, ./old.py]\nfiles: [{path: old.py, sha256: ",
                                 digest, ", size_bytes: 3}]\n"));
  options_.path = "job.yaml";
  const JobToSubmit job = Make({});
  EXPECT_THAT(job.files.files(), IsEmpty());
  ASSERT_EQ(job.spec.files_size(), 1);
  EXPECT_EQ(job.spec.files(0).sha256(), digest);
}

TEST_F(JobOptionsTest, RunsInTheCurrentFolderOfThisMachine) {
  JobToSubmit job = Make({"python3", "train.py"}, Place::kThisMachine);
  EXPECT_EQ(job.spec.workdir(), here_);
  EXPECT_THAT(PathsOf(job), IsEmpty());

  options_.files = {"train.py"};
  job = Make({"python3", "train.py"}, Place::kThisMachine);
  EXPECT_EQ(job.spec.workdir(), "");
  EXPECT_THAT(PathsOf(job), ElementsAre("train.py"));

  options_.files = {};
  options_.workdir = "/srv";
  EXPECT_EQ(Make({"python3", "train.py"}, Place::kThisMachine).spec.workdir(), "/srv");
}

TEST_F(JobOptionsTest, SetsWhenAndWhereTheJobRuns) {
  options_.priority_class = "high";
  options_.after = {"prepare-x7k2", "fetch-9qd3"};
  options_.array = "12%4";
  options_.select = {"gpu=h100", "rack=a=1"};
  options_.exclude_nodes = {"gpu-3"};
  options_.exclusive = true;
  const v1::JobSpec spec = Make({"/bin/true"}).spec;
  EXPECT_EQ(spec.priority_class(), "high");
  EXPECT_THAT(spec.after().ok(), ElementsAre("prepare-x7k2", "fetch-9qd3"));
  EXPECT_EQ(spec.array().count(), 12u);
  EXPECT_EQ(spec.array().concurrency(), 4u);
  EXPECT_EQ(spec.resources().select().at("gpu"), "h100");
  EXPECT_EQ(spec.resources().select().at("rack"), "a=1");
  EXPECT_THAT(spec.resources().exclude_nodes(), ElementsAre("gpu-3"));
  EXPECT_TRUE(spec.resources().exclusive());
}

TEST_F(JobOptionsTest, AcceptsDurationsAndArraysAsSlurmWritesThem) {
  const std::pair<const char*, absl::Duration> times[] = {
      {"1-00:00:00", absl::Hours(24)}, {"2-12", absl::Hours(60)},
      {"1:00:00", absl::Hours(1)},     {"90:30", absl::Minutes(90) + absl::Seconds(30)},
      {"1h30m", absl::Minutes(90)},
  };
  for (const auto& [text, time] : times) {
    options_.time_limit = text;
    EXPECT_EQ(FromProto(Make({"/bin/true"}).spec.time_limit()), time) << text;
  }
  for (const char* text : {"60", "1:xx", "1-", ":", "-1:00", "1:00:00:00", "1--1"}) {
    options_.time_limit = text;
    EXPECT_THAT(Problem({"/bin/true"}), HasSubstr("time_limit")) << text;
  }
  options_.time_limit.clear();
  options_.array = "0-4%2";
  EXPECT_EQ(Make({"/bin/true"}).spec.array().count(), 5u);
  options_.array = "1-5%2";
  EXPECT_EQ(Problem({"/bin/true"}),
            "--array: indices begin with 0; give --array 5 in place of 1-5, and add 1 to "
            "MUSTER_ARRAY_INDEX in the program");
}

TEST_F(JobOptionsTest, RefusesAnIndexOutsideOfArrays) {
  EXPECT_THAT(Problem({"convert", "--shard={array_index}"}),
              HasSubstr("command: '--shard={array_index}' has a value only in tasks of arrays"));
  options_.array = "3";
  EXPECT_EQ(Make({"convert", "--shard={array_index}"}).spec.array().count(), 3u);
}

TEST_F(JobOptionsTest, RejectsMalformedArraysAndSelectors) {
  for (const char* text : {"0", "12%", "12%0", "-1", "a", "4%2%1", "1,3", "5-1"}) {
    options_.array = text;
    EXPECT_THAT(Problem({"/bin/true"}), HasSubstr("is not a number of jobs such as 12")) << text;
  }
  options_.array.clear();
  for (const char* text : {"gpu", "=h100", "gpu="}) {
    options_.select = {text};
    EXPECT_THAT(Problem({"/bin/true"}), HasSubstr("is not LABEL=VALUE, as in gpu=h100")) << text;
  }
}

TEST_F(JobOptionsTest, ReportsAllProblemsAtOnce) {
  options_.overrides = {"lr=0.1", "backend=glo"};
  options_.name = "Bad_Name";
  options_.priority = 5000;
  options_.env = {"RANK=1"};
  options_.files = {"none.py"};
  const std::string without_file = Problem({"python3", "train.py"});
  for (const char* problem :
       {"--set 'lr=0.1': unknown field 'lr'", "none.py", "name: must be 1 to 63",
        "backend: unknown", "priority: must be from -1000 to 1000, not 5000",
        "env 'RANK': is set by Muster"}) {
    EXPECT_THAT(without_file, HasSubstr(problem));
  }
  EXPECT_THAT(without_file, Not(HasSubstr("train: is missing"))) << "the command is given";
  Write("job.yaml", "{}");
  options_.path = "job.yaml";
  EXPECT_EQ(Problem({"python3", "train.py"}), without_file);
  // One missing file alone is still a missing input.
  options_ = {.files = {"none.py"}};
  EXPECT_TRUE(absl::IsNotFound(MakeJob(options_, {"true"}, Place::kCluster).status()));
}

TEST_F(JobOptionsTest, VariablesOverrideSpec) {
  Write("job.yaml", "command: [env]\nenv: {A: spec, B: spec, C: spec}\n");
  Write("job.env", "B=file\nC=file\n");
  options_.path = "job.yaml";
  options_.env_files = {"job.env"};
  options_.env = {"C=option"};
  const JobToSubmit job = Make({});
  EXPECT_EQ(job.spec.env().at("A"), "spec");
  EXPECT_EQ(job.spec.env().at("B"), "file");
  EXPECT_EQ(job.spec.env().at("C"), "option");
  options_.env = {"RANK=1"};
  EXPECT_THAT(Problem({}), HasSubstr("is set by Muster"));
}

}  // namespace

}  // namespace muster::cli
