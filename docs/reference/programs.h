// The command lines of Muster's programs.
#ifndef MUSTER_DOCS_REFERENCE_PROGRAMS_H_
#define MUSTER_DOCS_REFERENCE_PROGRAMS_H_

#include <iostream>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "cli/output/console.h"
#include "cli/program.h"
#include "coordinator/flags.h"
#include "worker/flags.h"

namespace muster::reference {

struct Programs {
  cli::Console console{std::cout, std::cerr, cli::Console::Probe()};
  cli::Context context{console};
  std::string config;
  Flags coordinator_flags;
  WorkerFlags worker_flags;

  const std::unique_ptr<cli::Verb> muster = cli::MusterProgram(context, config);
  const std::unique_ptr<CLI::App> coordinator = CoordinatorApp(coordinator_flags);
  const std::unique_ptr<CLI::App> worker = WorkerApp(worker_flags);
};

}  // namespace muster::reference

#endif  // MUSTER_DOCS_REFERENCE_PROGRAMS_H_
