// `muster page`.
#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <cstdlib>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "cli/verb.h"
#include "common/http/address.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

extern char** environ;

namespace muster::cli {
namespace {

bool HasDisplay() {
  for (const char* const name : {"DISPLAY", "WAYLAND_DISPLAY"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0') return true;
  }
  return false;
}

// Opens the address in the user's browser, which outlives this program. False if there is no
// program to open it.
bool OpenBrowser(const std::string& url) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  char program[] = "xdg-open";
  std::string argument = url;
  char* const argv[] = {program, argument.data(), nullptr};
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, program, &actions, &attributes, argv, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0;
}

// The address of the page, or of the job's page, with a login.
absl::StatusOr<v1::CreatePageLoginResponse> Login(Context& context, const std::string& job,
                                                  std::string& url) {
  ClusterClient client(context.client_options());
  std::string view;
  if (!job.empty()) {
    ASSIGN_OR_RETURN(const v1::Job found, client.GetJob(job));
    view = absl::StrCat("/", found.job_id());
  }
  ASSIGN_OR_RETURN(Address address, ParseAddress(context.coordinator));
  ASSIGN_OR_RETURN(v1::CreatePageLoginResponse login,
                   client.Call<v1::CreatePageLoginResponse>(v1::CreatePageLoginRequest()));
  address.port = static_cast<uint16_t>(login.port());
  // Browsers send no part of an address after '#' to any server.
  url = absl::StrCat(login.tls() ? "https://" : "http://", address.ToString(), "/#/login/",
                     login.code(), view);
  return login;
}

int Page(Context& context, const std::string& job) {
  std::string url;
  const absl::StatusOr<v1::CreatePageLoginResponse> login = Login(context, job, url);
  if (!login.ok()) return context.Fail(login.status());
  if (context.structured()) {
    context.Print({{"url", url}, {"expire_time", ToJson(*login)["expire_time"]}});
    return kExitSuccess;
  }
  const bool opens = context.output != Output::kName && HasDisplay() && OpenBrowser(url);
  if (!opens) context.console.Out(url + "\n");
  if (context.output != Output::kName) {
    context.console.Note(opens ? "opening the status page in the browser"
                               : "open this address within 5 minutes; it signs in once");
  }
  return kExitSuccess;
}

}  // namespace

void AddPageVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "page", kJobVerbs,
      {.summary = "Open the status page in a browser",
       .usage = "[JOB] [OPTIONS]",
       .paragraphs = {"Signs the browser in with your name and role, without which the page shows "
                      "only how many jobs and nodes there are. On a machine without a display, or "
                      "with -o name, it prints the address. The address signs in once, within 5 "
                      "minutes; the browser then stays signed in for 12 hours."},
       .examples = {{"muster page", "the jobs, nodes and queue"},
                    {"muster page train-x7k2", "the page of a job"}}});
  auto job = std::make_shared<std::string>();
  verb.add_option("JOB", *job, "Job id or name, or a unique prefix of it");
  SetAction(verb, context, job, Page);
}

}  // namespace muster::cli
