// libmuster-mpi.so: the only code that is compiled with MPI headers and linked with MPI.
#include "collectives/mpi/plugin.h"

#include <mpi.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

struct MusterMpiGroup {
  MPI_Comm comm = MPI_COMM_NULL;
};

struct MusterMpiBatch {
  MusterMpiMessage* messages = nullptr;
  uint32_t left = 0;
  std::vector<MPI_Request> requests;
  // Output arrays of MPI_Testsome.
  std::vector<int> indices;
  std::vector<MPI_Status> statuses;
};

namespace {

// Text of the last error. Used by the calling thread only.
std::string* Text() {
  static auto* const text = new std::string;
  return text;
}

const char* Explain(const char* what, int code) {
  char words[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, words, &length);
  *Text() = std::string(what) + ": " + std::string(words, length > 0 ? length : 0);
  return Text()->c_str();
}

const char* Version() {
  static const auto* const version = [] {
    char words[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(words, &length);
    const std::string all(words, length > 0 ? length : 0);
    return new std::string(all.substr(0, all.find_first_of(",\n")));
  }();
  return version->c_str();
}

const char* Start() {
  // With more ranks than processors, Open MPI would yield the processor in every call, which costs
  // milliseconds each time. The caller already sleeps when nothing moves.
  setenv("OMPI_MCA_mpi_yield_when_idle", "0", /*overwrite=*/0);
  int started = 0;
  MPI_Initialized(&started);
  int provided = MPI_THREAD_SINGLE;
  if (started != 0) {
    // The program initialized MPI, and its threads may call MPI concurrently with this one.
    MPI_Query_thread(&provided);
    if (provided != MPI_THREAD_MULTIPLE) {
      return "the program initialized MPI without MPI_THREAD_MULTIPLE";
    }
  } else if (const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
             code != MPI_SUCCESS) {
    return Explain("MPI_Init_thread", code);
  } else if (provided < MPI_THREAD_FUNNELED) {
    return "this MPI does not support multithreaded processes (MPI_THREAD_FUNNELED)";
  }
  // Return errors as codes instead of aborting.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  return nullptr;
}

uint32_t Rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return static_cast<uint32_t>(rank);
}

uint32_t Size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return static_cast<uint32_t>(size);
}

const char* MakeGroup(const uint32_t* members, uint32_t size, uint32_t tag,
                      MusterMpiGroup** group) {
  const std::vector<int> ranks(members, members + size);
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group some = MPI_GROUP_NULL;
  int code = MPI_Comm_group(MPI_COMM_WORLD, &world);
  if (code != MPI_SUCCESS) return Explain("MPI_Comm_group", code);
  code = MPI_Group_incl(world, static_cast<int>(size), ranks.data(), &some);
  MPI_Group_free(&world);
  if (code != MPI_SUCCESS) return Explain("MPI_Group_incl", code);
  auto made = std::make_unique<MusterMpiGroup>();
  code = MPI_Comm_create_group(MPI_COMM_WORLD, some, static_cast<int>(tag), &made->comm);
  MPI_Group_free(&some);
  if (code != MPI_SUCCESS) return Explain("MPI_Comm_create_group", code);
  MPI_Comm_set_errhandler(made->comm, MPI_ERRORS_RETURN);
  *group = made.release();
  return nullptr;
}

const char* Begin(MusterMpiGroup* group, MusterMpiMessage* messages, uint32_t count,
                  MusterMpiBatch** batch) {
  auto made = std::make_unique<MusterMpiBatch>();
  made->messages = messages;
  made->left = count;
  made->requests.assign(count, MPI_REQUEST_NULL);
  made->indices.resize(count);
  made->statuses.resize(count);
  int code = MPI_SUCCESS;
  // Post receives before sends, so that incoming messages find a posted receive.
  for (const bool sends : {false, true}) {
    for (uint32_t i = 0; i < count && code == MPI_SUCCESS; ++i) {
      const MusterMpiMessage& message = messages[i];
      if ((message.sends != 0) != sends) continue;
      const int bytes = static_cast<int>(message.bytes);
      const int peer = static_cast<int>(message.peer);
      const int tag = static_cast<int>(message.tag);
      code = sends ? MPI_Isend(message.data, bytes, MPI_BYTE, peer, tag, group->comm,
                               &made->requests[i])
                   : MPI_Irecv(message.data, bytes, MPI_BYTE, peer, tag, group->comm,
                               &made->requests[i]);
    }
  }
  // Also on error: some messages are already in flight.
  *batch = made.release();
  return code == MPI_SUCCESS ? nullptr : Explain("MPI_Isend or MPI_Irecv", code);
}

// Returns an error if the message received a different number of bytes than expected, else null.
const char* Check(const MusterMpiMessage& message, const MPI_Status& status) {
  if (message.sends != 0) return nullptr;
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (static_cast<uint64_t>(bytes) == message.bytes) return nullptr;
  char text[160];
  std::snprintf(text, sizeof(text),
                "received %d bytes, expected %llu: ranks called different operations", bytes,
                static_cast<unsigned long long>(message.bytes));
  *Text() = text;
  return Text()->c_str();
}

const char* Progress(MusterMpiBatch* batch, uint32_t* left) {
  *left = batch->left;
  if (batch->left == 0) return nullptr;
  int ended = 0;
  const int code = MPI_Testsome(static_cast<int>(batch->requests.size()), batch->requests.data(),
                                &ended, batch->indices.data(), batch->statuses.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return Explain("MPI_Testsome", code);
  for (int i = 0; i < ended; ++i) {
    MusterMpiMessage& message = batch->messages[batch->indices[i]];
    const MPI_Status& status = batch->statuses[i];
    if (code == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_SUCCESS &&
        status.MPI_ERROR != MPI_ERR_PENDING) {
      return Explain(message.sends != 0 ? "send failed" : "receive failed", status.MPI_ERROR);
    }
    if (const char* error = Check(message, status); error != nullptr) return error;
    std::atomic_ref(message.done).store(1);
    --batch->left;
  }
  *left = batch->left;
  return nullptr;
}

void Poke() {
  int there = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &there, MPI_STATUS_IGNORE);
}

void Release(MusterMpiBatch* batch) { delete batch; }

const char* Finish() {
  const int code = MPI_Finalize();
  return code == MPI_SUCCESS ? nullptr : "MPI_Finalize failed";
}

}  // namespace

const MusterMpiApi* MusterMpiGetApi(void) {
  static constexpr MusterMpiApi kApi = {
      .abi = MUSTER_MPI_ABI,
      .message_bytes = sizeof(MusterMpiMessage),
      .version = &Version,
      .start = &Start,
      .rank = &Rank,
      .size = &Size,
      .make_group = &MakeGroup,
      .begin = &Begin,
      .progress = &Progress,
      .poke = &Poke,
      .release = &Release,
      .finish = &Finish,
  };
  return &kApi;
}
