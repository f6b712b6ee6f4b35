// `muster local`.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/files/upload.h"
#include "cli/follow/follow_run.h"
#include "cli/local/local_cluster.h"
#include "cli/output/console.h"
#include "cli/spec/job_options.h"
#include "cli/spec/spec_file.h"
#include "cli/verb.h"
#include "common/status.h"
#include "proto/muster/v1/job.pb.h"
#include "spec/spec.h"

namespace muster::cli {
namespace {

// Creates ./muster-checkpoints, with a folder for each job, and removes what is empty at the end.
// A lock protects the directory while other runs in the same folder use it.
class LocalCheckpoints {
 public:
  // Creates nothing if the job, a spec with its defaults, writes elsewhere or not at all. Prints a
  // note if the directory cannot be created: then checkpoints are removed with the cluster.
  LocalCheckpoints(const v1::JobSpec& defaulted, Console& console);
  ~LocalCheckpoints();
  LocalCheckpoints(const LocalCheckpoints&) = delete;
  LocalCheckpoints& operator=(const LocalCheckpoints&) = delete;

  // Absolute path; empty if nothing was created.
  const std::string& path() const { return path_; }

 private:
  // Creates and locks the directory `path`; returns 0 or errno.
  int Open(const std::string& path);

  std::string path_;
  int lock_ = -1;  // the open directory; -1: not locked
};

namespace fs = std::filesystem;

constexpr char kName[] = "muster-checkpoints";
// Another run holds the lock exclusively only while it removes the directory.
constexpr int kLockAttempts = 100;
constexpr absl::Duration kLockInterval = absl::Milliseconds(20);

// Whether the job writes checkpoints to the cluster's directory.
bool UsesDirectory(const v1::JobSpec& spec) {
  if (!spec.has_train()) return spec.checkpoint_dir().empty();
  return spec.train().checkpoint().dir().empty() && spec.train().checkpoint().keep() > 0;
}

bool IsOpenDirectory(int directory, const std::string& path) {
  struct stat opened = {}, named = {};
  return fstat(directory, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

std::vector<fs::path> Entries(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    entries.push_back(it->path());
  }
  return entries;
}

LocalCheckpoints::LocalCheckpoints(const v1::JobSpec& defaulted, Console& console) {
  if (!UsesDirectory(defaulted)) return;
  std::error_code error;
  const std::string path = (fs::current_path(error) / kName).string();
  const int failure = error ? error.value() : Open(path);
  if (failure == 0) {
    path_ = path;
    return;
  }
  console.Note("cannot create ", path, ": ", std::strerror(failure),
               "; checkpoints will be removed with the cluster");
}

int LocalCheckpoints::Open(const std::string& path) {
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    if (attempt > 0) absl::SleepFor(kLockInterval);
    if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) return errno;
    const int directory = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) {
      if (errno == ENOENT) continue;  // another run has removed it
      return errno;
    }
    const int failure = flock(directory, LOCK_SH | LOCK_NB) == 0 ? 0 : errno;
    if (failure == 0 && IsOpenDirectory(directory, path)) {
      lock_ = directory;
      return 0;
    }
    close(directory);
    // Another run is removing the directory, or has removed it before it was locked.
    if (failure == 0 || failure == EWOULDBLOCK || failure == EINTR) continue;
    return 0;  // the file system has no locks; the directory will be left
  }
  return EWOULDBLOCK;
}

LocalCheckpoints::~LocalCheckpoints() {
  if (lock_ < 0) return;
  // Otherwise, the last run that uses the directory does this.
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0) {
    // Only a job that has written no checkpoint leaves an empty folder.
    for (const fs::path& folder : Entries(path_)) rmdir(folder.c_str());
    rmdir(path_.c_str());
  }
  close(lock_);
}

struct LocalFlags {
  JobOptions job;
  LocalClusterOptions cluster;
};

// Following the job ends when a daemon of the cluster ends.
int RunJob(Context& context, const LocalFlags& flags, const JobToSubmit& job,
           LocalCluster& cluster) {
  Stopper stopper;
  cluster.Watch([&stopper] { stopper.Stop(); });
  ClusterClient::Options options;
  options.address = cluster.address();
  ClusterClient client(options);
  v1::SubmitJobRequest request;
  *request.mutable_spec() = job.spec;
  const absl::StatusOr<v1::SubmitJobResponse> response =
      [&]() -> absl::StatusOr<v1::SubmitJobResponse> {
    RETURN_IF_ERROR(UploadFiles(job.files, client, context.console));
    return client.SubmitJob(request);
  }();
  int exit_code = kExitFailure;
  if (response.ok()) {
    if (context.output == Output::kName) {
      context.console.Out(absl::StrCat(response->job().job_id(), "\n"));
    } else {
      context.console.Note(response->job().job_id());
    }
    exit_code = FollowRun(context, client, response->job(),
                          {.losses = flags.job.losses, .may_detach = false}, stopper);
  } else if (cluster.status().ok()) {
    context.Fail(response.status());
  }
  return cluster.status().ok() ? exit_code : context.Fail(cluster.status(), kExitFailure);
}

int Local(Context& context, LocalFlags flags) {
  const absl::StatusOr<JobToSubmit> job = MakeJob(flags.job, context.trailing, Place::kThisMachine);
  if (!job.ok()) return context.Fail(job.status(), SpecExitCode(job.status()));
  v1::JobSpec defaulted = job->spec;
  spec::ApplyDefaults(defaulted);
  FitToJob(defaulted, flags.cluster);
  NoteSharedCores(flags.cluster, context.console);
  const LocalCheckpoints checkpoints(defaulted, context.console);
  flags.cluster.checkpoint_directory = checkpoints.path();
  absl::StatusOr<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Start(flags.cluster);
  if (!cluster.ok()) return context.Fail(cluster.status(), ExitCodeOfStart(cluster.status()));
  // Use the token of the coordinator that was just started, and no other.
  setenv("MUSTER_TOKEN_DIR", absl::StrCat((*cluster)->directory(), "/tokens").c_str(), 1);
  const int exit_code = RunJob(context, flags, *job, **cluster);
  if (!flags.cluster.keep_directory.empty()) {
    context.console.Note("logs kept in ", (*cluster)->directory());
  }
  cluster->reset();
  return exit_code;
}

}  // namespace

void AddLocalVerb(CLI::App& app, Context& context) {
  auto flags = std::make_shared<LocalFlags>();
  Verb& verb = AddVerb(
      app, "local", kJobVerbs,
      {.summary = "Run a job on this machine, without a cluster",
       .usage = "[FILE] [OPTIONS] [-- CMD ARGS...]",
       .paragraphs =
           {"Starts a coordinator and one worker per node of the job, on free loopback ports, runs "
            "the job as `muster run` does, and stops the daemons. Workers have as many slots as "
            "the job needs, even if there are fewer cores.",
            "A command runs in the current folder with the whole environment of this program, and "
            "the files that it writes are kept. With `files` or --files, each rank runs in a "
            "directory of its own instead.",
            "All processes and logs are removed afterwards, also after Ctrl-C, which cancels the "
            "job (a second Ctrl-C ends it at once), and if this program is killed. --keep stores "
            "the logs and the ranks' own directories in a directory that is kept.",
            "Checkpoints are written to ./muster-checkpoints/JOB, which is kept, unless the spec "
            "names another directory.",
            kJobOptionsText},
       .exits = {{"66", "The spec or a daemon's binary cannot be read"},
                 {"73", "The directory for logs cannot be created"},
                 {"130", "Interrupted"},
                 {"others", "As for `muster run`"}},
       .examples = {{"muster local job.yaml", "test a spec before submitting it to a cluster"},
                    {"muster local --ranks-per-node 4 -- python3 train.py",
                     "run a PyTorch script in four processes"},
                    {"muster local job.yaml --keep /tmp/run", "keep the logs"}}});
  AddJobOptions(verb, flags->job);
  verb.add_option(
          "--keep", flags->cluster.keep_directory,
          "Keep logs and the ranks' files in this directory, which must be empty or not exist")
      ->type_name("DIR");
  verb.add_option("--coordinator-binary", flags->cluster.coordinator_binary,
                  "Path of muster-coordinator (default: next to this program)")
      ->type_name("FILE");
  verb.add_option("--worker-binary", flags->cluster.worker_binary,
                  "Path of muster-worker (default: next to this program)")
      ->type_name("FILE");
  verb.callback([&context, flags] {
    RequireJob(flags->job, context.trailing);
    context.action = [&context, flags] { return Local(context, *flags); };
  });
}

}  // namespace muster::cli
