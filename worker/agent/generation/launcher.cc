#include "worker/agent/generation/launcher.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/process/environment_value.h"
#include "worker/agent/storage/memory_directory.h"

namespace muster::agent {
namespace {

// The job's directory in memory; nothing if the worker keeps none.
std::vector<std::string> MemoryOf(const GenerationContext& context, const v1::Launch& launch) {
  std::string memory = MemoryDirectoryOf(context.environment.memory_dir, launch.job_id());
  if (memory.empty()) return {};
  return {std::move(memory)};
}

// `launcher: muster` and train jobs: each rank starts by itself.
class DirectLauncher final : public Launcher {
 public:
  DirectLauncher(const GenerationContext& context, const v1::Launch& launch)
      : context_(context), launch_(launch) {}

  std::vector<std::string> CommandFor(std::vector<std::string> program) const override {
    return program;
  }
  std::vector<std::string> Directories() const override {
    if (!launch_.spec().has_train()) return {};
    return MemoryOf(context_, launch_);
  }
  absl::Status CheckNode(const v1::RankPlacement&, const shim::Instructions&) const override {
    return absl::OkStatus();
  }

 private:
  const GenerationContext& context_;
  const v1::Launch& launch_;
};

bool IsInPath(const std::string& program, absl::string_view path) {
  for (const absl::string_view folder : absl::StrSplit(path, ':', absl::SkipEmpty())) {
    if (access(absl::StrCat(folder, "/", program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// `launcher: mpi`: muster-mpi is the main process of each rank; see worker/mpi/rank_process.h.
class MpiLauncher final : public Launcher {
 public:
  MpiLauncher(const GenerationContext& context, const v1::Launch& launch)
      : context_(context), launch_(launch) {}

  std::vector<std::string> CommandFor(std::vector<std::string> program) const override {
    std::vector<std::string> memory = MemoryOf(context_, launch_);
    if (!memory.empty()) absl::StrAppend(&memory[0], "/mpi-", launch_.generation());
    std::vector<std::string> command = {context_.mpi_binary, "rank", Directory(),
                                        context_.environment.interface,
                                        memory.empty() ? "" : memory[0]};
    for (std::string& argument : program) command.push_back(std::move(argument));
    return command;
  }

  std::vector<std::string> Directories() const override {
    std::vector<std::string> directories = MemoryOf(context_, launch_);
    directories.push_back(Directory());
    return directories;
  }

  absl::Status CheckNode(const v1::RankPlacement& placement,
                         const shim::Instructions& instructions) const override {
    // Only the first rank of a node runs a program of Open MPI.
    if (placement.local_rank() != 0) return absl::OkStatus();
    const std::string program = launch_.node_rank() == 0 ? "mpirun" : "orted";
    const absl::string_view path = EnvironmentValue(instructions.environment, "PATH");
    if (IsInPath(program, path)) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("launcher mpi needs Open MPI on each node, but ", program,
                     " was not found on ", context_.environment.node_name, " in PATH=", path,
                     "; install it there (Debian's package openmpi-bin)"));
  }

 private:
  // The value of NodeOptions::directory in worker/mpi/open_mpi.h.
  std::string Directory() const {
    return absl::StrCat(context_.directory->Generation(launch_.job_id(), launch_.generation()),
                        "/mpi");
  }

  const GenerationContext& context_;
  const v1::Launch& launch_;
};

}  // namespace

std::unique_ptr<Launcher> MakeLauncher(const GenerationContext& context, const v1::Launch& launch) {
  if (launch.spec().launcher() == "mpi") return std::make_unique<MpiLauncher>(context, launch);
  return std::make_unique<DirectLauncher>(context, launch);
}

}  // namespace muster::agent
