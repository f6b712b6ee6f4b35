// Lets generations of a job use a directory at the same time, in 1,000 orders of their directory
// operations that follow from a seed. Any process may pause between two operations while others
// replace it, continue later, or be killed. One thread per process; only one runs at a time.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/sha256.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/directory_operations.h"
#include "trainer/data/testing.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSchedules = 1000;
constexpr uint32_t kKeep = 2;
constexpr uint64_t kStepsPerCheckpoint = 10;

using Random = std::mt19937_64;

uint64_t Below(Random& random, uint64_t limit) { return random() % limit; }

// Gives one process at a time its turn.
class Turns {
 public:
  explicit Turns(int processes) : finished_(processes) {}

  // Called by a process: returns when it is its turn.
  void Await(int process) {
    absl::MutexLock lock(&mutex_);
    AwaitTurn(process);
  }
  // Called by a process: ends its turn and returns at its next one.
  void Yield(int process) {
    absl::MutexLock lock(&mutex_);
    if (--turns_left_ > 0) return;
    running_ = kNone;
    AwaitTurn(process);
  }
  void Finish(int process) {
    absl::MutexLock lock(&mutex_);
    finished_[process] = true;
    running_ = kNone;
  }
  bool finished(int process) const {
    absl::MutexLock lock(&mutex_);
    return finished_[process];
  }
  // Gives the process several turns in a row and returns after them.
  void Run(int process, uint64_t turns) {
    absl::MutexLock lock(&mutex_);
    running_ = process;
    turns_left_ = turns;
    mutex_.Await(absl::Condition(
        +[](int* running) { return *running == kNone; }, &running_));
  }

 private:
  static constexpr int kNone = -1;
  void AwaitTurn(int process) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::pair<int*, int> turn{&running_, process};
    mutex_.Await(absl::Condition(
        +[](const std::pair<int*, int>* t) { return *t->first == t->second; }, &turn));
  }

  mutable absl::Mutex mutex_;
  int running_ ABSL_GUARDED_BY(mutex_) = kNone;
  uint64_t turns_left_ ABSL_GUARDED_BY(mutex_) = 0;  // of the running process
  std::vector<bool> finished_ ABSL_GUARDED_BY(mutex_);
};

// The directory of a schedule: what it must contain, and the first violation.
class World {
 public:
  explicit World(std::string path) : path_(std::move(path)) {}

  // The published checkpoints: names by inode, which a rename keeps.
  std::map<ino_t, std::string> Published() const {
    std::map<ino_t, std::string> published;
    for (const auto& entry : fs::directory_iterator(path_)) {
      const std::string name = entry.path().filename();
      struct stat info;
      if (!ParseFolderName(name).has_value() || stat(entry.path().c_str(), &info) != 0) continue;
      published[info.st_ino] = name;
    }
    return published;
  }

  // Expects that an operation of `owner` has changed only checkpoints that are its own.
  void Check(const Owner& owner, const std::map<ino_t, std::string>& before) {
    const std::map<ino_t, std::string> after = Published();
    for (const auto& [inode, name] : before) {
      const auto found = after.find(inode);
      if (found != after.end() && found->second == name) continue;
      const std::string change =
          absl::StrCat(owner.job_id, " g", owner.generation, " changed ", name, " to ",
                       found == after.end() ? "nothing" : found->second);
      const auto writer = writers_.find(inode);
      if (writer == writers_.end() || writer->second != owner.job_id) Fail(change);
      if (ParseFolderName(name)->generation > owner.generation) Fail(change);
    }
  }

  // Published states do not change: each is read only once, to save time.
  absl::StatusOr<CheckpointState> ReadState(const std::string& folder) const {
    struct stat info;
    const bool exists = stat(folder.c_str(), &info) == 0;
    const auto state = exists ? states_.find(info.st_ino) : states_.end();
    if (state != states_.end()) return state->second;
    return RealDirectoryOperations().ReadState(folder);
  }

  // Records a successful rename by a process of `owner`.
  void Renamed(int process, const Owner& owner, const std::string& from, const std::string& to) {
    const auto name = ParseFolderName(fs::path(to).filename().string());
    if (!name.has_value()) return;
    struct stat info;
    if (stat(to.c_str(), &info) != 0) return Fail("renamed folder is gone");
    const bool published = absl::StartsWith(fs::path(from).filename().string(), ".unfinished-");
    if (published) {
      states_[info.st_ino] = *RealDirectoryOperations().ReadState(to);
      publications_[info.st_ino] = ++last_event_;
      claims_[info.st_ino].clear();
    } else {
      claims_[info.st_ino][process] = ++last_event_;
    }
    writers_[info.st_ino] = owner.job_id;
    Tip& tip = tips_[owner.job_id][owner.generation];
    // A claim; ranks may claim different checkpoints before the training starts.
    if (!published && (tip.published || (tip.inode != 0 && name->step < tip.step))) return;
    tip = {info.st_ino, name->step, published};
  }

  // Inode of the checkpoint that the next generation of the job must resume from; 0: none.
  ino_t Newest(const std::string& job) const {
    const auto tips = tips_.find(job);
    return tips == tips_.end() ? 0 : tips->second.rbegin()->second.inode;
  }

  // What a search for a checkpoint must find, as long as nothing else happens.
  struct Search {
    int process = 0;
    uint64_t begin = 0;
    std::vector<uint64_t> published;  // numbers of the job's checkpoints, oldest first
  };
  Search BeginSearch(int process, const Owner& owner) const {
    std::map<std::pair<uint64_t, uint64_t>, uint64_t> by_age;
    for (const auto& [inode, name] : Published()) {
      const auto writer = writers_.find(inode);
      if (writer == writers_.end() || writer->second != owner.job_id) continue;
      const auto parsed = ParseFolderName(name);
      by_age[{parsed->generation, parsed->step}] = publications_.at(inode);
    }
    Search search{process, last_event_, {}};
    for (const auto& [age, number] : by_age) search.published.push_back(number);
    return search;
  }
  // Expects that the search has found the newest checkpoint of its begin, or one that was published
  // or claimed by another process since.
  void EndSearch(const Search& search, const std::optional<FoundCheckpoint>& found) {
    if (search.published.empty()) return;
    if (!found.has_value()) return Fail("found nothing");
    struct stat info;
    if (stat((path_ + "/" + found->name).c_str(), &info) != 0) return;  // claimed once more
    for (const auto& [process, event] : claims_[info.st_ino]) {
      if (process != search.process && event > search.begin) return;
    }
    const uint64_t number = publications_[info.st_ino];
    const auto newest = search.published.end() - 1;
    if (std::find(search.published.begin(), newest, number) != newest) {
      Fail("found " + found->name + ", which is not the newest");
    }
  }

  // Records that a generation has begun to open the directory for writing.
  void Opens(const Owner& owner) {
    uint64_t& opened = opened_[owner.job_id];
    opened = std::max(opened, owner.generation);
  }
  bool IsOpenedAfter(const Owner& owner) const {
    return opened_.at(owner.job_id) > owner.generation;
  }

  // Whether a newer generation of the owner's job has a checkpoint.
  bool IsSuperseded(const Owner& owner) const {
    for (const auto& [inode, name] : Published()) {
      const auto writer = writers_.find(inode);
      if (writer != writers_.end() && writer->second == owner.job_id &&
          ParseFolderName(name)->generation > owner.generation) {
        return true;
      }
    }
    return false;
  }

  void Fail(const std::string& message) {
    if (failure_.empty()) failure_ = message;
  }
  const std::string& failure() const { return failure_; }
  const std::string& path() const { return path_; }

 private:
  // What a generation resumes from, then its newest checkpoint.
  struct Tip {
    ino_t inode = 0;
    uint64_t step = 0;
    bool published = false;
  };
  const std::string path_;
  std::map<ino_t, CheckpointState> states_;
  // By inode, which are used again: numbers in the order of events.
  uint64_t last_event_ = 0;
  std::map<ino_t, uint64_t> publications_;
  std::map<ino_t, std::map<int, uint64_t>> claims_;      // by process
  std::map<ino_t, std::string> writers_;                 // jobs
  std::map<std::string, std::map<uint64_t, Tip>> tips_;  // by job and generation
  std::map<std::string, uint64_t> opened_;               // newest generation by job
  std::string failure_;
};

// Operations of one process, each in its turn. After `turns_left` turns the process is killed: its
// operations have no effect any more.
class InterleavedOperations final : public DirectoryOperations {
 public:
  InterleavedOperations(Turns* turns, int process, Owner owner, World* world, uint64_t turns_left,
                        uint64_t seed)
      : turns_(*turns),
        process_(process),
        owner_(std::move(owner)),
        world_(*world),
        turns_left_(turns_left),
        random_(seed) {}

  bool killed() const { return turns_left_ == 0; }

  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) const override {
    RETURN_IF_ERROR(TakeTurn());
    auto names = RealDirectoryOperations().List(directory);
    // The order must not depend on the file system.
    if (names.ok()) std::sort(names->begin(), names->end());
    return names;
  }
  absl::StatusOr<CheckpointState> ReadState(const std::string& folder) const override {
    // Most of the operations; not each in a turn of its own, to save time.
    if (Below(random_, 3) == 0) RETURN_IF_ERROR(TakeTurn());
    return world_.ReadState(folder);
  }
  absl::Status Create(const std::string& folder) const override {
    RETURN_IF_ERROR(TakeTurn());
    return RealDirectoryOperations().Create(folder);
  }
  int Rename(const std::string& from, const std::string& to) const override {
    if (!TakeTurn().ok()) return EIO;
    const auto before = world_.Published();
    const int error = RealDirectoryOperations().Rename(from, to);
    world_.Check(owner_, before);
    if (error == 0) world_.Renamed(process_, owner_, from, to);
    return error;
  }
  absl::Status Delete(const std::string& folder) const override {
    RETURN_IF_ERROR(TakeTurn());
    const auto before = world_.Published();
    const absl::Status deleted = RealDirectoryOperations().Delete(folder);
    if (world_.Published() != before) world_.Fail("deleted published " + folder);
    return deleted;
  }
  absl::Status Sync(const std::string&) const override { return absl::OkStatus(); }

  absl::Status TakeTurn() const {
    if (!killed()) {
      turns_.Yield(process_);
      --turns_left_;
    }
    return killed() ? absl::InternalError("killed") : absl::OkStatus();
  }

 private:
  Turns& turns_;
  const int process_;
  const Owner owner_;
  World& world_;
  mutable uint64_t turns_left_;
  mutable Random random_;
};

// Writes the files of a checkpoint without waiting for the disk.
void WriteFiles(const std::string& folder, const std::string& job, uint64_t generation,
                uint64_t step) {
  std::string files;
  const auto write = [&](const std::string& name, const std::string& text) {
    data::WriteFile(folder + "/" + name, text);
    absl::StrAppend(&files, files.empty() ? "" : ",", "\"", name, "\":{\"bytes\":", text.size(),
                    ",\"sha256\":\"", Sha256Hex(text), "\"}");
  };
  write(kModelFile, "weights");
  write(kOptimizerFile, "momentum");
  write(kStateFile, absl::StrCat("{\"step\":", step, ",\"job_id\":\"", job,
                                 "\",\"generation\":", generation, "}"));
  data::WriteFile(folder + "/" + kManifestFile, "{\"files\":{" + files + "}}");
}

// A generation of a job with two ranks: both look for a checkpoint, then rank 0 trains.
struct Generation {
  Owner owner;
  uint64_t checkpoints = 0;  // that it writes
  std::optional<FoundCheckpoint> found[2];
};

class GenerationsTest : public ::testing::Test {
 protected:
  // Runs a schedule and returns the first violation of an invariant.
  std::string RunSchedule(uint64_t seed) {
    Random random(seed);
    const data::TemporaryDirectory directory;
    World world(directory.path());
    fs::create_directories(directory.path() + "/step-00000060.g1/without state");
    std::vector<Generation> generations;
    const uint64_t last = 2 + Below(random, 2);
    for (uint64_t g = 1; g <= last; ++g) generations.push_back({{"job", g}, 0, {}});
    // Another job that continues from this directory and writes to it.
    const uint64_t other_last = Below(random, 3);
    for (uint64_t g = 1; g <= other_last; ++g) generations.push_back({{"other", g}, 0, {}});
    const int processes = static_cast<int>(2 * generations.size());
    Turns turns(processes);
    std::vector<std::unique_ptr<InterleavedOperations>> operations;
    std::vector<uint64_t> starts;  // turn of all processes at which each may start
    for (int process = 0; process < processes; ++process) {
      Generation& generation = generations[process / 2];
      generation.checkpoints = Below(random, 5);
      const bool killed = Below(random, 4) == 0;
      operations.push_back(std::make_unique<InterleavedOperations>(
          &turns, process, generation.owner, &world, killed ? 1 + Below(random, 40) : 1'000'000,
          random()));
      starts.push_back((generation.owner.generation - 1) * Below(random, 40));
    }
    std::vector<std::thread> threads;
    for (int process = 0; process < processes; ++process) {
      threads.emplace_back([&, process] {
        turns.Await(process);
        RunRank(generations[process / 2], process, *operations[process], turns, world);
        turns.Finish(process);
      });
    }
    RunAll(turns, starts, random);
    for (std::thread& thread : threads) thread.join();
    if (world.failure().empty()) CheckNext(world);
    return world.failure();
  }

 private:
  // Runs the processes to their ends in random order, several turns of one in a row.
  static void RunAll(Turns& turns, const std::vector<uint64_t>& starts, Random& random) {
    std::vector<int> ready;
    for (uint64_t turn = 0;; ++turn) {
      ready.clear();
      bool all_finished = true;
      for (int process = 0; process < static_cast<int>(starts.size()); ++process) {
        if (turns.finished(process)) continue;
        all_finished = false;
        if (starts[process] <= turn) ready.push_back(process);
      }
      if (all_finished) return;
      if (ready.empty()) continue;
      const int process = ready[Below(random, ready.size())];
      turns.Run(process, Below(random, 4) == 0 ? 1 + Below(random, 40) : 1);
    }
  }

  static void RunRank(Generation& generation, int process, const InterleavedOperations& operations,
                      Turns& turns, World& world) {
    const int rank = process % 2;
    const CheckpointOptions options{.path = world.path(),
                                    .job_id = generation.owner.job_id,
                                    .generation = generation.owner.generation,
                                    .keep = kKeep,
                                    .shared = generation.owner.job_id == "other",
                                    .operations = &operations};
    const World::Search search = world.BeginSearch(process, generation.owner);
    auto found = CheckpointDirectory::OpenForReading(options).FindNewestValid();
    if (!found.ok() || operations.killed()) {
      return Stop(generation, found.status(), operations, world);
    }
    world.EndSearch(search, *found);
    generation.found[rank] = *std::move(found);
    if (rank != 0) return;
    world.Opens(generation.owner);
    const auto directory = CheckpointDirectory::OpenForWriting(options);
    if (!directory.ok()) return Stop(generation, directory.status(), operations, world);
    while (!turns.finished(process + 1)) {
      if (!operations.TakeTurn().ok()) return;
    }
    Train(generation, *directory, operations, world);
  }

  // An error of a process that was not killed must have a newer generation as its reason.
  static void Stop(const Generation& generation, const absl::Status& status,
                   const InterleavedOperations& operations, World& world) {
    if (operations.killed()) return;
    if (!absl::IsAborted(status) || !world.IsSuperseded(generation.owner)) {
      world.Fail(absl::StrCat(generation.owner.job_id, " g", generation.owner.generation, ": ",
                              status.ToString()));
    }
  }

  // Resumes from the newest checkpoint that a rank has found, as the coordinator chooses it.
  static void Train(Generation& generation, const CheckpointDirectory& directory,
                    const InterleavedOperations& operations, World& world) {
    const auto age = [&](const std::optional<FoundCheckpoint>& found) {
      if (!found.has_value()) return std::make_pair(uint64_t{0}, uint64_t{0});
      const bool own = found->state.job_id == generation.owner.job_id;
      return std::make_pair(own ? found->state.generation : 0, found->state.step);
    };
    const auto& resume =
        *std::max_element(std::begin(generation.found), std::end(generation.found),
                          [&](const auto& a, const auto& b) { return age(a) < age(b); });
    uint64_t step = age(resume).second;
    if (resume.has_value() && resume->state.job_id == generation.owner.job_id) {
      for (int read = 0; read < 3; ++read) {
        if (!operations.TakeTurn().ok()) return;
        const auto state = directory.Verify(resume->name);
        if (!state.ok()) return Stop(generation, state.status(), operations, world);
      }
    }
    for (uint64_t k = 0; k < generation.checkpoints; ++k) {
      step += kStepsPerCheckpoint;
      const auto unfinished = directory.CreateUnfinished(step);
      if (!unfinished.ok()) return Stop(generation, unfinished.status(), operations, world);
      WriteFiles(*unfinished, generation.owner.job_id, generation.owner.generation, step);
      for (int write = 0; write < 3; ++write) {
        if (!operations.TakeTurn().ok()) return;
      }
      const auto published = directory.Publish(step);
      if (!published.ok()) return StopWriting(generation, published.status(), operations, world);
    }
  }

  // A newer generation may have deleted the unfinished folder before it has a checkpoint itself.
  static void StopWriting(const Generation& generation, const absl::Status& status,
                          const InterleavedOperations& operations, World& world) {
    if (absl::IsNotFound(status) && world.IsOpenedAfter(generation.owner)) return;
    Stop(generation, status, operations, world);
  }

  // Expects the next generation to find the newest checkpoint of its job, with valid files.
  static void CheckNext(World& world) {
    for (const std::string job : {"job", "other"}) {
      if (world.Newest(job) == 0) continue;
      const auto found =
          CheckpointDirectory::OpenForReading({world.path(), job, 99}).FindNewestValid();
      if (!found.ok() || !found->has_value()) {
        return world.Fail(absl::StrCat(job, " finds no checkpoint: ", found.status().ToString()));
      }
      const std::string expected = world.Published()[world.Newest(job)];
      if ((*found)->name != expected) {
        world.Fail(absl::StrCat(job, " resumes from ", (*found)->name, ", not from ", expected));
      }
    }
  }
};

TEST_F(GenerationsTest, ShareDirectoryInAnyOrder) {
  for (uint64_t seed = 1; seed <= kSchedules; ++seed) {
    ASSERT_EQ(RunSchedule(seed), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace muster::train
